"""Downstream tasks: what recurrence changes on each, and their loss against validation loss."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme

CHANCE = {"chance_listed": "among the listed answers", "chance_any": "among all answers"}
"""Column of a chance level -> what a guess is made among."""

CHANCE_DASHES = [[8, 3], [2, 3]]
LOSS = "Continuation loss (nats/token)"
TASK_HEIGHT = 22  # pixels of one task


def task_gaps(gaps: pd.DataFrame):
    """Loss of looped models above that of r = 1 on each task, as a share of what compute buys.

    Args:
        gaps: axis, task, n_recur, gap (nats per token), share (gap over the range of r = 1's loss
            over the budgets); tasks are drawn in their order.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(gaps, ["axis", "task", "n_recur", "gap", "share"], "task_gaps")
    tasks = list(dict.fromkeys(gaps["task"]))
    y = alt.Y("task:N", sort=tasks, title=None, axis=alt.Axis(grid=True, labelLimit=180))
    x = theme.axis(alt.X, "share", title="Share of the range of r = 1")
    zero = alt.Chart(pd.DataFrame({"share": [0]})).mark_rule(opacity=0.6).encode(x=x)
    fields = ["axis", "task", "n_recur", "gap", "share"]
    points = (
        alt.Chart(gaps)
        .mark_point()
        .encode(
            x=x, y=y, color=theme.recur_color(gaps["n_recur"]), tooltip=parts.tooltips(gaps, fields)
        )
    )
    return theme.finish(
        alt.layer(zero, points).properties(height=TASK_HEIGHT * len(tasks)),
        name="task-gaps",
        description=_gaps_description(gaps),
        data=gaps,
    )


def task_losses(losses: pd.DataFrame):
    """Downstream loss against validation loss, a panel a task or axis of tasks.

    Args:
        losses: panel, n_recur, val_loss, loss (nats per token); optionally se, drawn twice to both
            sides, chance_listed and chance_any, whose means are drawn as lines, and source.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(losses, ["panel", "n_recur", "val_loss", "loss"], "task_losses")
    names = list(dict.fromkeys(losses["panel"]))
    panels = [_panel(losses[losses["panel"] == name], losses, name, len(names)) for name in names]
    bars = "bars: two standard errors" if "se" in losses else ""
    chart = alt.concat(*panels, columns=min(2, len(panels)))
    note = parts.joined(parts.source_note(losses).replace(" runs", ""), bars)
    return theme.finish(
        chart.properties(title=parts.note(note)),
        name="task-losses",
        description=_losses_description(losses),
        data=losses,
    )


def _panel(rows, losses, name, n_panels):
    color = theme.recur_color(losses["n_recur"])
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
    return alt.layer(*layers).properties(
        title=name, width=parts.panel_width(n_panels), height=theme.PANEL_HEIGHT
    )


def _loss(field) -> alt.Y:
    return theme.axis(alt.Y, field, title=LOSS)


def _chance(levels: pd.Series) -> alt.Chart:
    """One level line for each kind of guess."""
    rows = pd.DataFrame({"loss": levels, "guess": levels.index.map(CHANCE)})
    dash = alt.StrokeDash(
        "guess:N",
        scale=alt.Scale(domain=list(CHANCE.values()), range=CHANCE_DASHES),
        title="Guessing",
        legend=alt.Legend(symbolType="stroke", symbolSize=300, columns=1, orient="bottom"),
    )
    return alt.Chart(rows).mark_rule(strokeWidth=1.5).encode(y=_loss("loss"), strokeDash=dash)


def _gaps_description(gaps) -> str:
    text = "Loss of looped models above that of r = 1 by task, as a share of the range of r = 1."
    for axis, rows in gaps.groupby("axis", sort=False):
        shares = rows.groupby("n_recur")["share"]
        text += f" {axis}: " + ", ".join(
            f"r = {r} {parts.spread(share, '+.2f')}" for r, share in shares
        )
        text += "."
    return text


def _losses_description(losses) -> str:
    text = "Continuation loss against validation loss."
    for name, rows in losses.groupby("panel", sort=False):
        text += (
            f" {name}: {parts.spread(rows['loss'])} nats per token at validation losses of "
            f"{parts.spread(rows['val_loss'])}."
        )
        if "chance_listed" in rows:
            text += f" Guessing among the listed answers: {rows['chance_listed'].mean():.3f}."
    return text
