"""Quality of fits: predicted against actual loss, and residuals (paper Figs 8 to 10)."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme
from looped.fitting.result import FitResult

Fits = dict[str, tuple[pd.DataFrame, FitResult]]  # label -> (the fitted runs, their fit)
COLUMNS = ["n_recur", "n_params", "n_tokens", "val_loss"]


def predicted_actual(fits: Fits) -> alt.ConcatChart:
    """Predicted against actual loss, one panel per fit; on the line both are equal.

    Raises ValueError without any fit, or for runs other than those of the fit.
    """
    table = _table(fits, "predicted_actual")
    both = table[["val_loss", "predicted"]]
    scale = alt.Scale(domain=[both.min().min(), both.max().max()], nice=True, zero=False)
    x = theme.axis(alt.X, "val_loss", title="Actual loss (nats/token)", scale=scale)
    y = theme.axis(alt.Y, "predicted", title="Predicted loss (nats/token)", scale=scale)
    color = theme.recur_color(table["n_recur"])
    line = parts.diagonal(scale["domain"], x, y, opacity=0.5)
    points = [parts.run_points(table[table["label"] == label], x, y, color) for label in fits]
    titles = [
        alt.Title(label, subtitle=f"R² {fit.r2:.4f} · RMSE {fit.rmse:.4f} nats")
        for label, (_, fit) in fits.items()
    ]
    chart = parts.panels([alt.layer(line, circles) for circles in points], titles)
    sentences = _description("Predicted against actual validation loss.", fits)
    return theme.finish(chart, "predicted-actual", sentences, table, _notes(fits, table))


def residuals(fits: Fits) -> alt.ConcatChart:
    """Actual minus predicted loss against parameters and against tokens.

    Raises ValueError without any fit, or for runs other than those of the fit.
    """
    table = _table(fits, "residuals")
    y, color = parts.symmetric_axis(table, "residual"), theme.recur_color(table["n_recur"])
    sizes = [theme.axis(alt.X, size, log=True) for size in ("n_params", "n_tokens")]
    points = [parts.run_points(table, x, y, color) for x in sizes]
    chart = parts.panels([alt.layer(parts.zero_rule(y=y), circles) for circles in points])
    axes = "against unique parameters and against training tokens"
    sentences = _description(f"Actual minus predicted validation loss {axes}.", fits)
    return theme.finish(chart, "residuals", sentences, table, _notes(fits, table))


def _table(fits: Fits, figure: str) -> pd.DataFrame:
    """The runs of all fits with label, predicted loss and residual."""
    parts.require_any(fits, figure, "fit", "{label: (runs, fit)}")
    tables = []
    for label, (runs, fit) in fits.items():
        parts.require(runs, COLUMNS, figure)
        fit.problem(runs)  # refuses other runs than those of the fit
        table = parts.drawable(runs).assign(label=label, predicted=fit.predict(runs))
        tables.append(table.assign(residual=table["val_loss"] - table["predicted"]))
    return pd.concat(tables, ignore_index=True)


def _notes(fits: Fits, table: pd.DataFrame) -> list[list[str]]:
    source = parts.source_note(pd.concat([runs for runs, _ in fits.values()]))
    split = parts.known("split {}", [fit.split for _, fit in fits.values()])
    return [[source, split, parts.flag_note(table)]]


def _description(shown: str, fits: Fits) -> theme.Sentences:
    yield shown
    for label, (_, fit) in fits.items():
        yield (
            f"{label}: {fit.n_runs} runs, {parts.fit_prose(fit)}, R² {fit.r2:.4f}, RMSE "
            f"{fit.rmse:.4f}, largest residual {fit.max_abs_residual:.4f} nats."
        )
