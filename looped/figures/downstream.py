"""Downstream tasks: effect of recurrence on each, and their loss against validation loss."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme
from looped.quantities import QUANTITIES

CHANCE = {"chance_listed": "among the listed answers", "chance_any": "among all answers"}
"""Column of a chance level -> the answers that a guess chooses from."""

CHANCE_DASHES = [[8, 3], [2, 3]]
TASK_HEIGHT = 22  # pixels per task


def task_gaps(gaps: pd.DataFrame) -> alt.LayerChart:
    """Loss above that of r = 1 on each task, as a share of its range over the budgets.

    Args:
        gaps: axis, task, n_recur, gap (nats per token), share (gap over the range of the
            loss of r = 1 over the budgets). The order of the tasks is that of the rows.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(gaps, ["axis", "task", "n_recur", "gap", "share"], "task_gaps")
    tasks = list(gaps["task"].unique())
    y = alt.Y("task:N", sort=tasks, title=None, axis=alt.Axis(grid=True, labelLimit=180))
    x = theme.axis(alt.X, "share")
    color = theme.recur_color(gaps["n_recur"])
    details = parts.tooltips(gaps, ["axis", "task", "n_recur", "gap", "share"])
    points = alt.Chart(gaps).mark_point().encode(x, y, color, tooltip=details)
    return theme.finish(
        alt.layer(parts.zero_rule(x=x), points).properties(height=TASK_HEIGHT * len(tasks)),
        name="task-gaps",
        description=_gaps_description(gaps),
        data=gaps,
    )


def task_losses(losses: pd.DataFrame) -> alt.ConcatChart:
    """Downstream loss against validation loss, one panel per task or axis of tasks.

    Args:
        losses: panel, n_recur, val_loss, loss (nats per token); optionally se (for bars of two
            standard errors), chance_listed and chance_any (for lines at their means), source.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(losses, ["panel", "n_recur", "val_loss", "loss"], "task_losses")
    names = list(losses["panel"].unique())
    color = theme.recur_color(losses["n_recur"])
    chart = parts.panels([_panel(losses[losses["panel"] == n], color) for n in names], names)
    bars = "bars: two standard errors" if "se" in losses else ""
    note = parts.joined(parts.source_note(losses).replace(" runs", ""), bars)
    return theme.finish(
        chart.properties(title=parts.note(note)),
        name="task-losses",
        description=_losses_description(losses),
        data=losses,
    )


def _panel(rows: pd.DataFrame, color: alt.Color) -> alt.LayerChart:
    x = theme.axis(alt.X, "val_loss")
    rows = rows.assign(low=rows["loss"], high=rows["loss"])
    if "se" in rows:
        rows = rows.assign(low=rows["loss"] - 2 * rows["se"], high=rows["loss"] + 2 * rows["se"])
    fields = ["n_recur", "d_model", "budget", "val_loss", "loss", "se"]
    base = alt.Chart(rows).encode(x=x, color=color, tooltip=parts.tooltips(rows, fields))
    bars = base.mark_rule(strokeWidth=1.5).encode(y=_loss("low"), y2="high")
    layers = [bars, base.mark_point().encode(y=_loss("loss"))]
    if levels := [column for column in CHANCE if column in rows]:
        layers.append(_chance(rows[levels].mean()))
    return alt.layer(*layers)


def _loss(field: str) -> alt.Y:
    return theme.axis(alt.Y, field, title=QUANTITIES["loss"].axis)


def _chance(levels: pd.Series) -> alt.Chart:
    """One horizontal line for each kind of guess."""
    rows = pd.DataFrame({"loss": levels, "guess": levels.index.map(CHANCE)})
    dash = alt.StrokeDash(
        "guess:N",
        scale=alt.Scale(domain=list(CHANCE.values()), range=CHANCE_DASHES),
        title="Guessing",
        legend=alt.Legend(symbolType="stroke", symbolSize=300, columns=1, orient="bottom"),
    )
    return alt.Chart(rows).mark_rule(strokeWidth=1.5).encode(y=_loss("loss"), strokeDash=dash)


def _gaps_description(gaps: pd.DataFrame) -> str:
    text = "Loss of looped models above that of r = 1 by task, as a share of the range of r = 1."
    for axis, rows in gaps.groupby("axis", sort=False):
        shares = rows.groupby("n_recur")["share"]
        ranges = [f"r = {r} {parts.spread(share, '+.2f')}" for r, share in shares]
        text += f" {axis}: {', '.join(ranges)}."
    return text


def _losses_description(losses: pd.DataFrame) -> str:
    text = "Continuation loss against validation loss."
    for name, rows in losses.groupby("panel", sort=False):
        text += (
            f" {name}: {parts.spread(rows['loss'])} nats per token at validation losses of "
            f"{parts.spread(rows['val_loss'])}."
        )
        if "chance_listed" in rows:
            text += f" Guessing among the listed answers: {rows['chance_listed'].mean():.3f}."
    return text
