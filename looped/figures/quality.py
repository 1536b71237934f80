"""Quality of fits: predicted against actual loss, and residuals (paper Figs 8 to 10)."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme
from looped.fitting.result import FitResult

Fits = dict[str, tuple[pd.DataFrame, FitResult]]
"""Label -> (the fitted runs, their fit)."""

COLUMNS = ["n_recur", "n_params", "n_tokens", "val_loss"]


def predicted_actual(fits: Fits) -> alt.ConcatChart:
    """Predicted against actual loss, one panel per fit; on the line both are equal.

    Args:
        fits: label -> (the fitted runs, their fit).

    Raises:
        ValueError: no fit, a column or all rows are missing, or runs other than those of the fit.
    """
    table = _table(fits, "predicted_actual")
    both = table[["val_loss", "predicted"]]
    scale = alt.Scale(domain=[both.min().min(), both.max().max()], nice=True, zero=False)
    chart = parts.panels(
        [_identity_panel(table[table["label"] == label], table, scale) for label in fits],
        [alt.Title(label, subtitle=_quality(fit)) for label, (_, fit) in fits.items()],
    )
    return theme.finish(
        chart.properties(title=_note(fits, table)),
        name="predicted-actual",
        description=f"Predicted against actual validation loss. {_descriptions(fits)}",
        data=table,
    )


def residuals(fits: Fits) -> alt.ConcatChart:
    """Actual minus predicted loss against parameters and against tokens.

    Args:
        fits: label -> (the fitted runs, their fit), such as one fit per r.

    Raises:
        ValueError: no fit, a column or all rows are missing, or runs other than those of the fit.
    """
    table = _table(fits, "residuals")
    reach = table["residual"].abs().max()
    y = theme.axis(alt.Y, "residual", scale=alt.Scale(domain=[-reach, reach], nice=True))
    color = theme.recur_color(table["n_recur"])
    sizes = [theme.axis(alt.X, size, log=True) for size in ("n_params", "n_tokens")]
    points = [parts.run_points(table, x, y, color) for x in sizes]
    return theme.finish(
        parts.panels([alt.layer(parts.zero_rule(y=y), layer) for layer in points]).properties(
            title=_note(fits, table)
        ),
        name="residuals",
        description=(
            "Actual minus predicted validation loss against unique parameters and against "
            f"training tokens. {_descriptions(fits)}"
        ),
        data=table,
    )


def _table(fits: Fits, figure: str) -> pd.DataFrame:
    """The runs of all fits with label, predicted loss and residual."""
    parts.require_any(fits, figure, "fit", "{label: (runs, fit)}")
    tables = []
    for label, (runs, fit) in fits.items():
        parts.require(runs, COLUMNS, figure)
        fit.problem(runs)  # refuses other runs than those of the fit
        predicted = fit.predict(runs)
        added = {"predicted": predicted, "residual": runs["val_loss"] - predicted}
        tables.append(parts.drawable(runs).assign(label=label, **added))
    return pd.concat(tables, ignore_index=True)


def _identity_panel(rows: pd.DataFrame, table: pd.DataFrame, scale: alt.Scale) -> alt.LayerChart:
    x = theme.axis(alt.X, "val_loss", title="Actual loss (nats/token)", scale=scale)
    y = theme.axis(alt.Y, "predicted", title="Predicted loss (nats/token)", scale=scale)
    ends = pd.DataFrame({"val_loss": scale["domain"], "predicted": scale["domain"]})
    line = alt.Chart(ends).mark_line(color=theme.INK, opacity=0.5, strokeWidth=1.2).encode(x=x, y=y)
    points = parts.run_points(rows, x, y, theme.recur_color(table["n_recur"]))
    return alt.layer(line, points)


def _quality(fit: FitResult) -> str:
    return f"R² {fit.r2:.4f} · RMSE {fit.rmse:.4f} nats"


def _note(fits: Fits, table: pd.DataFrame) -> alt.Title:
    splits = sorted({fit.split for _, fit in fits.values() if fit.split})
    split = f"split {parts.listed(splits)}" if splits else ""
    source = parts.source_note(pd.concat([runs for runs, _ in fits.values()]))
    return parts.note(parts.joined(source, split, parts.flag_note(table)))


def _descriptions(fits: Fits) -> str:
    return " ".join(
        f"{label}: {fit.n_runs} runs, {parts.fit_prose(fit)}, R² {fit.r2:.4f}, "
        f"RMSE {fit.rmse:.4f}, largest residual {fit.max_abs_residual:.4f} nats."
        for label, (_, fit) in fits.items()
    )
