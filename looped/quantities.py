"""The one vocabulary: symbol, title, unit and number format of every quantity that is shown.

Figures take axis titles and tooltips from `QUANTITIES`, tables take headings and formats, and the
terminal takes both. The key is the column name of the tables of the package.
"""

from typing import NamedTuple


class Quantity(NamedTuple):
    """How one quantity is shown."""

    symbol: str  # short: heading of a table column, tooltip line
    title: str = ""  # long, without unit: axis title; empty: same as the symbol
    unit: str = ""  # of axis titles and captions: nats/token, FLOPs, parameters
    format: str = ""  # Python format specification; empty: text, or four significant digits

    @property
    def axis(self) -> str:
        """Axis title: the long name, with its unit in brackets where it has one."""
        title = self.title or self.symbol
        return f"{title} ({self.unit})" if self.unit else title


NATS = "nats/token"

QUANTITIES: dict[str, Quantity] = {
    "n_recur": Quantity("r", "Recurrences r", format="d"),
    "n_params": Quantity("N", "Unique parameters N", format=",.0f"),
    "n_tokens": Quantity("D", "Training tokens D", format=",.0f"),
    "budget": Quantity("C", "Training compute C", "FLOPs", ".3g"),
    "val_loss": Quantity("L", "Validation loss", NATS, ".4f"),
    "phi": Quantity("φ", "Recurrence exponent φ", format=".3f"),
    "delta_phi": Quantity("Δφ", "Shift of φ", format="+.3f"),
    "low": Quantity("low", "Lower end of the interval", format=".3f"),
    "high": Quantity("high", "Upper end of the interval", format=".3f"),
    "rmse": Quantity("RMSE", "Root mean square residual", NATS, ".4f"),
    "r2": Quantity("R²", "Share of the variance explained", format=".4f"),
}
