"""The one vocabulary: symbol, title, unit and number format of every quantity that is shown.

Figures take axis titles and tooltips from `QUANTITIES`, tables take headings and formats, and the
terminal takes units. The key is the column name in the tables of the package.
"""

import re
from typing import NamedTuple


class Quantity(NamedTuple):
    """How one quantity is shown."""

    symbol: str  # short: heading of a table column
    title: str = ""  # long, without unit: axis or tooltip; empty: the symbol
    unit: str = ""  # nats/token, FLOPs
    format: str = ""  # Python format specification; empty: text, or four significant digits

    @property
    def axis(self) -> str:
        """Title of an axis: the long name, with the unit in brackets unless the name has it."""
        title = self.title or self.symbol
        return f"{title} ({self.unit})" if self.unit and self.unit not in title else title

    @property
    def d3(self) -> str:
        """`format` in the notation of d3, which Vega reads: trailing zeros go only with `~`."""
        return re.sub("g$", "~g", self.format)


NATS = "nats/token"
PART = "+.4f"

QUANTITIES: dict[str, Quantity] = {
    # a run
    "n_recur": Quantity("r", "Recurrences r", format="d"),
    "budget": Quantity("C (FLOPs)", "Training compute C", "FLOPs", ".3g"),
    "d_model": Quantity("width d", "Model width d_model", format=".0f"),
    "width": Quantity("s", "Width multiplier", format="d"),
    "n_params": Quantity("N", "Unique parameters N", format=",.0f"),
    "n_params_stored": Quantity("stored", "Stored parameters", format=",.0f"),
    "n_params_once": Quantity("N once", "Parameters used once N_once", format=",.0f"),
    "n_params_rec": Quantity("N rec", "Recurring parameters N_rec", format=",.0f"),
    "n_params_embed": Quantity("embeddings", "Embedding parameters", format=",.0f"),
    "n_tokens": Quantity("D", "Training tokens D", "tokens", ",.0f"),
    "n_steps": Quantity("steps", "Optimizer steps", "steps", ",d"),
    "epochs": Quantity("epochs", "Passes over the training split", format=".3g"),
    "flops": Quantity("FLOPs", "Training FLOPs", "FLOPs", ".3g"),
    "seconds": Quantity("seconds", "Training time", "s", ",.0f"),
    "tokens_per_second": Quantity("tokens/s", "Training speed", "tokens/s", ",.0f"),
    "flops_per_token": Quantity("training FLOPs", "Training compute", "FLOPs/token", ",.0f"),
    "inference_flops_per_token": Quantity(
        "inference FLOPs", "Inference compute", "FLOPs/token", ",.0f"
    ),
    "kv_cache_bytes_per_token": Quantity("cache bytes", "Cache", "bytes/token", ",.0f"),
    "lr": Quantity("learning rate", "MuonH learning rate at the reference", format="g"),
    "n_runs": Quantity("runs", "Runs", format="d"),
    "fewest tokens": Quantity("fewest tokens", format=",.0f"),
    "most tokens": Quantity("most tokens", format=",.0f"),
    "tokens (M)": Quantity("tokens (M)", "Training tokens, millions", format=".0f"),
    "tokens (B)": Quantity("tokens (B)", "Training tokens, billions", format=".2f"),
    "N (M)": Quantity("N (M)", "Unique parameters N, millions", format=".1f"),
    "vocabulary": Quantity("vocabulary", "Tokens of the vocabulary", format=",d"),
    "context": Quantity("context", "Tokens of a row", format=",d"),
    "FLOPs saved": Quantity("FLOPs saved", format=".1%"),
    "more tokens": Quantity("more tokens", format=".1%"),
    "source": Quantity("source", "Source"),
    "case": Quantity("case", "Case"),
    "care": Quantity("read with care", "Read with care"),
    # its loss
    "val_loss": Quantity("L", "Validation loss", NATS, ".4f"),
    "val_loss_se": Quantity("standard error", "Standard error", NATS, ".1e"),
    "val_rows": Quantity("rows", "Validation rows", "rows", ",d"),
    "median error": Quantity("median error", unit=NATS, format=".1e"),
    "largest error": Quantity("largest error", unit=NATS, format=".1e"),
    "L* published": Quantity("L* published", unit=NATS, format=".5f"),
    "best": Quantity("best", "Lowest validation loss", NATS, ".3f"),
    "worst": Quantity("worst", "Highest validation loss", NATS, ".3f"),
    "over": Quantity("over", "Loss above that of the linear injection", NATS, "+.3f"),
    "train_loss": Quantity("training loss", "Training loss", NATS, ".4f"),
    "predicted": Quantity("predicted", "Predicted validation loss", NATS, ".4f"),
    "residual": Quantity("residual", "Actual − predicted", NATS, "+.4f"),
    "gap": Quantity("gap", "Loss above that of r = 1", NATS, "+.4f"),
    "loss": Quantity("loss", "Continuation loss", NATS, ".3f"),
    "se": Quantity("standard error", "Standard error", NATS, ".3f"),
    "best rate": Quantity("best rate", "Best MuonH learning rate", format="g"),
    "regret": Quantity("regret", "Loss above that of the best rate", NATS, ".4f"),
    # a fit
    "label": Quantity("fit", "Fit"),
    "law": Quantity("law", "Law"),
    "split": Quantity("split", "Split"),
    "study": Quantity("study", "Study"),
    "phi": Quantity("φ", "Recurrence exponent φ", format=".3f"),
    "alpha": Quantity("α", format=".3f"),
    "beta": Quantity("β", format=".3f"),
    "kappa": Quantity("κ", format=".3f"),
    "A": Quantity("A", format=".2f"),
    "B": Quantity("B", format=".0f"),
    "E": Quantity("E", format=".3f"),
    "objective": Quantity("Huber sum", format=".2e"),
    "relative_objective": Quantity(
        "relative objective", "Huber objective relative to its minimum", format=".3f"
    ),
    "r2": Quantity("R²", format=".4f"),
    "rmse": Quantity("RMSE", unit=NATS, format=".4f"),
    "mean": Quantity("mean", unit=NATS, format="+.4f"),
    "max_abs": Quantity("largest", unit=NATS, format=".4f"),
    "max_abs_residual": Quantity("largest", unit=NATS, format=".4f"),
    "starts_at_optimum": Quantity("arrived", format=".0%"),
    "low": Quantity("low", "Lower end of the interval", format=".3f"),
    "high": Quantity("high", "Upper end of the interval", format=".3f"),
    "edge_error": Quantity("±", "Monte Carlo error of the interval's ends", format=".3f"),
    "n_resamples": Quantity("resamples", "Bootstrap resamples", format="d"),
    # a shift
    "delta_phi": Quantity("Δφ", "Shift of φ", format="+.3f"),
    "delta_phi_published": Quantity("published Δφ", format="+.3f"),
    "p_sign": Quantity("sign", "Share of resamples with the estimate's sign", format=".0%"),
    "change": Quantity("change", "Change of the loss", NATS, PART),
    "phi_baseline": Quantity("φ baseline", "φ of the baseline", format=".3f"),
    "phi_variant": Quantity("φ variant", "φ of the variant", format=".3f"),
    "measured": Quantity("measured", "Measured change of the loss", NATS, PART),
    "tokens": Quantity("tokens", unit=NATS, format=PART),
    "capacity": Quantity("capacity", unit=NATS, format=PART),
    "rest": Quantity("rest", unit=NATS, format=PART),
    "misfit": Quantity("misfit", unit=NATS, format=PART),
    "gain": Quantity("gain", unit=NATS, format=".4f"),
    "ratio": Quantity("ratio", "Ratio to the model without recurrence", format=".3f"),
    "difference": Quantity("difference", unit=NATS, format="+.3f"),
    "part": Quantity("part", "Part"),
    # a downstream task
    "task": Quantity("task", "Task"),
    "axis": Quantity("axis", "Axis"),
    "samples": Quantity("samples", "Examples", format=",d"),
    "lowest": Quantity("lowest", "Lowest loss over the runs", NATS, ".2f"),
    "highest": Quantity("highest", "Highest loss over the runs", NATS, ".2f"),
    "largest se": Quantity("largest se", "Largest standard error", NATS, ".2f"),
    "listed": Quantity("listed", "Loss of a guess among the listed answers", NATS, ".2f"),
    "any": Quantity("any", "Loss of a guess among all answers", NATS, ".2f"),
    "best accuracy": Quantity("best accuracy", "Greedy accuracy of the best run", format=".1%"),
    "accuracy": Quantity("accuracy", "Greedy accuracy", format=".1%"),
    "correlation": Quantity("correlation", "Pearson correlation", format="+.2f"),
    "share": Quantity("share of the range", "Share of the range of r = 1", format="+.3f"),
    # a claim or a count
    "quantity": Quantity("quantity", "Quantity"),
    "section": Quantity("section", "Section"),
    "published": Quantity("published", "Published value", format=".4g"),
}

MISSING = "–"
"""What stands for a missing value in tables, on pages and on the terminal."""

SUFFIXES = {
    "_star": "*",
    "_baseline": " baseline",
    "_variant": " variant",
    "_looped": " looped",
    "_plain": " plain",
}
"""Ending of a column name -> ending of its heading; the format is that of the name before it."""

ENDS = {"_low": "low", "_high": "high"}
"""Ending of an interval's end -> its heading; the column stands after that of the estimate."""


def quantity(name: str) -> Quantity | None:
    """Quantity of a column name, with or without an ending of `SUFFIXES`; None if unknown."""
    if name in QUANTITIES:
        return QUANTITIES[name]
    for suffix, mark in (ENDS | SUFFIXES).items():
        base = QUANTITIES.get(name.removesuffix(suffix))
        if name.endswith(suffix) and base is not None:
            symbol = mark if suffix in ENDS else base.symbol + mark
            return base._replace(symbol=symbol, title=f"{base.title or base.symbol} {mark.strip()}")
    return None
