"""Learning rates: the loss of a sweep, and what another rate than the best costs."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme


def rate_sweep(sweep: pd.DataFrame):
    """Validation loss against the MuonH rate, one line an r; a ring marks the best rate of each.

    Args:
        sweep: one row a run: n_recur, lr, val_loss, optionally panel (the text above its panel).

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(sweep, ["n_recur", "lr", "val_loss"], "rate_sweep")
    table = sweep if "panel" in sweep else sweep.assign(panel="")
    names = list(dict.fromkeys(table["panel"]))
    panels = [_panel(table[table["panel"] == name], name, len(names)) for name in names]
    chart = panels[0] if len(panels) == 1 else alt.concat(*panels, columns=2)
    return theme.finish(chart, name="rate-sweep", description=_description(table), data=table)


def _panel(table, name, n_panels):
    recurrences = parts.recurrences(table)
    x = theme.axis(alt.X, "lr", scale=alt.Scale(type="log", nice=False, padding=16))
    base = alt.Chart(table).encode(
        x=x,
        y=theme.axis(alt.Y, "val_loss"),
        color=theme.recur_color(recurrences),
        tooltip=parts.tooltips(table, ["n_recur", "lr", "val_loss", "d_model", "n_tokens"]),
    )
    best = table.loc[table.groupby("n_recur")["val_loss"].idxmin()]
    lines = base.mark_line().encode(strokeDash=theme.recur_dash(recurrences))
    rings = base.properties(data=best).mark_point(size=160, filled=False, strokeWidth=2)
    chart = alt.layer(lines, base.mark_point(), rings)
    if n_panels == 1:
        return chart
    return chart.properties(
        title=name, width=parts.panel_width(n_panels), height=theme.PANEL_HEIGHT
    )


def _description(table) -> str:
    text = "Validation loss against the MuonH learning rate."
    for (panel, n_recur), rows in table.groupby(["panel", "n_recur"], sort=False):
        best = rows.loc[rows["val_loss"].idxmin()]
        where = f"{panel}, " if panel else ""
        text += f" {where}r = {n_recur}: lowest, {best.val_loss:.3f}, at {best.lr:g}."
    return text
