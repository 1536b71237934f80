"""What is trained and how it goes: the stack as it is executed, and training curves."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme
from looped.figures.counts import SERIES
from looped.quantities import QUANTITIES

SECTIONS = {"prelude": SERIES[5], "loop": SERIES[1], "coda": SERIES[3]}
LAYER_HEIGHT = 20
TEXT_ON_MARK = "#ffffff"
_STACK_AXIS = alt.Axis(labelAngle=0, labelOverlap=False)
_BANDS = alt.Scale(paddingInner=0.45, paddingOuter=0.3)


def schematic(layers: pd.DataFrame):
    """Each executed layer of some stacks as a box, from the input up, with the layer that it runs.

    A cross marks a layer that no gradient reaches (truncated backpropagation), e where the
    prelude's output enters again.

    Args:
        layers: one row an executed layer: stack (its label), and the keys of
            `looped.accounting.executed_layers`.

    Raises:
        ValueError: a column or all rows are missing.
    """
    needed = ["stack", "position", "section", "layer", "reused", "gradient", "injection"]
    parts.require(layers, needed, "schematic")
    table = parts.plain(layers).assign(
        run=layers["reused"].map({False: "first run", True: "run again"}),
        backward=layers["gradient"].map({True: "yes", False: "no"}),
    )
    table["label"] = (
        table["layer"].astype(str).where(layers["gradient"], table["layer"].map("{} ×".format))
    )
    table["recurrence"] = layers["recurrence"].map(lambda r: "" if pd.isna(r) else f"{r:.0f}")
    boxes = _boxes(table)
    return theme.finish(
        boxes.properties(height=LAYER_HEIGHT * int(table["position"].max())),
        name="schematic",
        description=_schematic_description(table),
        data=table.drop(columns=["reused", "gradient", "label"]),
    )


def _boxes(table):
    stacks = list(dict.fromkeys(table["stack"]))
    x = alt.X("stack:N", sort=stacks, title=None, axis=_STACK_AXIS, scale=_BANDS)
    y = alt.Y(
        "position:O",
        sort="descending",
        title="Executed layer, input below",
        axis=alt.Axis(labelOverlap=True),
        scale=alt.Scale(paddingInner=0.12),
    )
    colors = alt.Scale(domain=list(SECTIONS), range=list(SECTIONS.values()))
    boxes = (
        alt.Chart(table)
        .mark_bar(cornerRadius=3)
        .encode(
            x=x,
            y=y,
            color=alt.Color("section:N", scale=colors, title=None, legend=alt.Legend(columns=3)),
            opacity=alt.Opacity(
                "run:N",
                scale=alt.Scale(domain=["first run", "run again"], range=[1, 0.55]),
                title=None,
                legend=alt.Legend(symbolFillColor=SECTIONS["loop"], symbolStrokeWidth=0, columns=2),
            ),
            tooltip=[
                alt.Tooltip("section:N", title="Section"),
                alt.Tooltip("layer:Q", title="Stored layer"),
                alt.Tooltip("recurrence:N", title="Recurrence"),
                alt.Tooltip("run:N", title="Run"),
                alt.Tooltip("backward:N", title="Gradient"),
            ],
        )
    )
    base = alt.Chart(table).encode(x=x, y=y)
    ink = alt.condition("datum.run === 'first run'", alt.value(TEXT_ON_MARK), alt.value(theme.INK))
    names = base.mark_text(fontSize=11).encode(text="label:N", color=ink)
    entering = base.transform_filter("datum.injection").mark_text(
        text="e ▸", align="right", fontSize=12
    )
    entering = entering.encode(xOffset=alt.value(-4))
    return alt.layer(boxes, names, entering)


def _schematic_description(table) -> str:
    text = "Executed layers from input to output, each named by the stored layer that it runs."
    for stack, rows in table.groupby("stack", sort=False):
        stored = rows["layer"].nunique()
        text += f" {stack}: {len(rows)} executed layers, {stored} stored."
    return text


def training_curves(metrics: pd.DataFrame):
    """Training loss against tokens, one line a run.

    Args:
        metrics: one row a (run, step): n_recur, tokens, loss (nats per token; smoothed or not),
            optionally val_loss, drawn at the run's end.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(metrics, ["n_recur", "tokens", "loss"], "training_curves")
    recurrences = parts.recurrences(metrics)
    color, dash = theme.recur_color(recurrences), theme.recur_dash(recurrences)
    x = theme.axis(alt.X, "tokens", title=QUANTITIES["n_tokens"].axis, scale=alt.Scale(zero=True))
    y = theme.axis(alt.Y, "loss", title="Training loss (nats/token)")
    lines = alt.Chart(metrics).mark_line().encode(x=x, y=y, color=color, strokeDash=dash)
    layers = [lines]
    ends = metrics.loc[metrics.groupby("n_recur")["tokens"].idxmax()]
    if "val_loss" in metrics:
        layers.append(
            alt.Chart(ends)
            .mark_point(size=90)
            .encode(
                x=x,
                y=alt.Y("val_loss:Q"),
                color=color,
                tooltip=parts.tooltips(ends, ["n_recur", "val_loss", "val_loss_se"]),
            )
        )
    return theme.finish(
        alt.layer(*layers),
        name="training-curves",
        description=_curves_description(metrics, ends),
        data=metrics,
    )


def _curves_description(metrics, ends) -> str:
    text = "Training loss against tokens."
    for row in ends.itertuples():
        first = metrics[metrics["n_recur"] == row.n_recur]["loss"].iloc[0]
        text += f" r = {row.n_recur}: from {first:.2f} to {row.loss:.2f} nats per token."
    return text
