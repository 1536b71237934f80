"""Learning rates: validation loss of a sweep."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme

FIELDS = ["n_recur", "lr", "val_loss"]


def rate_sweep(sweep: pd.DataFrame) -> alt.LayerChart | alt.ConcatChart:
    """Validation loss against the MuonH rate, one line per r with a ring at its best rate.

    Args:
        sweep: one row per run: n_recur, lr, val_loss, optionally panel (title of the panel).
    """
    parts.require(sweep, FIELDS, "rate_sweep")
    table = sweep if "panel" in sweep else sweep.assign(panel="")
    names = list(table["panel"].unique())
    charts = [_panel(table[table["panel"] == name]) for name in names]
    chart = charts[0] if len(charts) == 1 else parts.panels(charts, names)
    return theme.finish(chart, "rate-sweep", _description(table), table)


def _panel(table: pd.DataFrame) -> alt.LayerChart:
    x = theme.axis(alt.X, "lr", scale=alt.Scale(type="log", nice=False, padding=16))
    color = theme.recur_color(table["n_recur"])
    details = parts.tooltips(table, [*FIELDS, "d_model", "n_tokens"])
    base = alt.Chart(table).encode(x, theme.axis(alt.Y, "val_loss"), color, tooltip=details)
    best = table.loc[table.groupby("n_recur")["val_loss"].idxmin()]
    lines = base.mark_line().encode(strokeDash=theme.recur_dash(table["n_recur"]))
    rings = base.properties(data=best).mark_point(size=160, filled=False, strokeWidth=2)
    return alt.layer(lines, base.mark_point(), rings)


def _description(table: pd.DataFrame) -> theme.Text:
    yield "Validation loss against the MuonH learning rate."
    for (panel, n_recur), rows in table.groupby(["panel", "n_recur"], sort=False):
        best = rows.loc[rows["val_loss"].idxmin()]
        where = f"{panel}, " if panel else ""
        yield f"{where}r = {n_recur}: lowest, {best.val_loss:.3f}, at {best.lr:g}."
