"""Downstream tasks: effect of recurrence on each, and their loss against validation loss."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme

# Column of a chance level -> the answers that a guess chooses from.
CHANCE = {"chance_listed": "among the listed answers", "chance_any": "among all answers"}
CHANCE_DASHES = [[8, 3], [2, 3]]
TASK_HEIGHT = 22  # pixels per task


def task_gaps(gaps: pd.DataFrame) -> alt.LayerChart:
    """Loss above that of r = 1 on each task, as a share of its range over the budgets.

    Args:
        gaps: axis, task, n_recur, gap (nats per token), share (gap over the range of the
            loss of r = 1 over the budgets). The order of the tasks is that of the rows.
    """
    fields = ["axis", "task", "n_recur", "gap", "share"]
    parts.require(gaps, fields, "task_gaps")
    tasks = list(gaps["task"].unique())
    y = alt.Y("task:N", sort=tasks, title=None, axis=alt.Axis(grid=True, labelLimit=180))
    x, color = theme.axis(alt.X, "share"), theme.recur_color(gaps["n_recur"])
    points = alt.Chart(gaps).mark_point()
    points = points.encode(x, y, color, tooltip=parts.tooltips(gaps, fields))
    chart = alt.layer(parts.zero_rule(x=x), points).properties(height=TASK_HEIGHT * len(tasks))
    return theme.finish(chart, "task-gaps", _gaps_description(gaps), gaps)


def task_losses(losses: pd.DataFrame) -> alt.ConcatChart:
    """Downstream loss against validation loss, one panel per task or axis of tasks.

    Args:
        losses: panel, n_recur, val_loss, loss (nats per token); optionally se (for bars of two
            standard errors), chance_listed and chance_any (for lines at their means), source.
    """
    parts.require(losses, ["panel", "n_recur", "val_loss", "loss"], "task_losses")
    names = list(losses["panel"].unique())
    color = theme.recur_color(losses["n_recur"])
    chart = parts.panels([_panel(losses[losses["panel"] == n], color) for n in names], names)
    source = parts.known("{}", losses.get("source", ()))
    bars = "bars: two standard errors" if "se" in losses else ""
    return theme.finish(chart, "task-losses", _losses_description(losses), losses, [[source, bars]])


def _panel(rows: pd.DataFrame, color: alt.Color) -> alt.LayerChart:
    reach = 2 * rows["se"] if "se" in rows else 0
    rows = rows.assign(low=rows["loss"] - reach, high=rows["loss"] + reach)
    details = parts.tooltips(rows, ["n_recur", "d_model", "budget", "val_loss", "loss", "se"])
    base = alt.Chart(rows).encode(theme.axis(alt.X, "val_loss"), color, tooltip=details)
    bars = base.mark_rule(strokeWidth=1.5).encode(_loss("low"), y2="high")
    layers = [bars, base.mark_point().encode(_loss("loss"))]
    if levels := [column for column in CHANCE if column in rows]:
        layers.append(_chance(rows[levels].mean()))
    return alt.layer(*layers)


def _loss(field: str) -> alt.Y:
    return theme.axis(alt.Y, field, like="loss")


def _chance(levels: pd.Series) -> alt.Chart:
    """One horizontal line for each kind of guess."""
    rows = pd.DataFrame({"loss": levels, "guess": levels.index.map(CHANCE)})
    scale = alt.Scale(domain=list(CHANCE.values()), range=CHANCE_DASHES)
    dash = alt.StrokeDash("guess:N", scale=scale, title="Guessing")
    dash = dash.legend(symbolType="stroke", symbolSize=300, columns=1, orient="bottom")
    return alt.Chart(rows).mark_rule(strokeWidth=1.5).encode(_loss("loss"), dash)


def _gaps_description(gaps: pd.DataFrame) -> theme.Sentences:
    yield "Loss of looped models above that of r = 1 by task, as a share of the range of r = 1."
    for axis, rows in gaps.groupby("axis", sort=False):
        shares = rows.groupby("n_recur")["share"]
        ranges = [f"r = {r} {parts.spread(share, '+.2f')}" for r, share in shares]
        yield f"{axis}: {', '.join(ranges)}."


def _losses_description(losses: pd.DataFrame) -> theme.Sentences:
    yield "Continuation loss against validation loss."
    for name, rows in losses.groupby("panel", sort=False):
        at = f"at validation losses of {parts.spread(rows['val_loss'])}"
        yield f"{name}: {parts.spread(rows['loss'])} nats per token {at}."
        if "chance_listed" in rows:
            yield f"Guessing among the listed answers: {rows['chance_listed'].mean():.3f}."
