"""The executed stack of a model, and training curves."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme
from looped.quantities import QUANTITIES

SECTIONS = {name: theme.SERIES_COLORS[i] for name, i in (("prelude", 5), ("loop", 1), ("coda", 3))}
LAYER_HEIGHT = 20
TEXT_ON_MARK = "#ffffff"
_STACK_AXIS = alt.Axis(labelAngle=0, labelOverlap=False)
_BANDS = alt.Scale(paddingInner=0.45, paddingOuter=0.3)


def schematic(layers: pd.DataFrame) -> alt.LayerChart:
    """Executed layers of some stacks, input at the bottom, with the numbers of the stored layers.

    × marks a layer that no gradient reaches (truncated backpropagation); e marks where the
    prelude's output is injected.

    Args:
        layers: one row per executed layer: stack (label), and the keys of
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


def _boxes(table: pd.DataFrame) -> alt.LayerChart:
    stacks = list(table["stack"].unique())
    x = alt.X("stack:N", sort=stacks, title=None, axis=_STACK_AXIS, scale=_BANDS)
    y = alt.Y(
        "position:O",
        sort="descending",
        title="Executed layer, input below",
        axis=alt.Axis(labelOverlap=True),
        scale=alt.Scale(paddingInner=0.12),
    )
    boxes = (
        alt.Chart(table)
        .mark_bar(cornerRadius=3)
        .encode(
            x=x,
            y=y,
            color=theme.name_color(
                "section", list(SECTIONS), list(SECTIONS.values()), legend=alt.Legend(columns=3)
            ),
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


def _schematic_description(table: pd.DataFrame) -> str:
    text = "Executed layers from input to output, each with the number of its stored layer."
    for stack, rows in table.groupby("stack", sort=False):
        stored = rows["layer"].nunique()
        text += f" {stack}: {len(rows)} executed layers, {stored} stored."
    return text


def training_curves(metrics: pd.DataFrame) -> alt.LayerChart:
    """Training loss against tokens, one line per run.

    Args:
        metrics: one row per (run, step): n_recur, tokens, loss (nats per token; smoothed or not),
            optionally val_loss, for a point at the end of the run.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(metrics, ["n_recur", "tokens", "loss"], "training_curves")
    recurrences = parts.recurrences(metrics)
    color, dash = theme.recur_color(recurrences), theme.recur_dash(recurrences)
    x = theme.axis(alt.X, "tokens", title=QUANTITIES["n_tokens"].axis, scale=alt.Scale(zero=True))
    y = theme.axis(alt.Y, "loss", title=QUANTITIES["train_loss"].axis)
    layers = [alt.Chart(metrics).mark_line().encode(x, y, color, dash)]
    ends = metrics.loc[metrics.groupby("n_recur")["tokens"].idxmax()]
    if "val_loss" in metrics:
        details = parts.tooltips(ends, ["n_recur", "val_loss", "val_loss_se"])
        points = alt.Chart(ends).mark_point(size=90)
        layers.append(points.encode(x, alt.Y("val_loss:Q"), color, tooltip=details))
    return theme.finish(
        alt.layer(*layers),
        name="training-curves",
        description=_curves_description(metrics, ends),
        data=metrics,
    )


def _curves_description(metrics: pd.DataFrame, ends: pd.DataFrame) -> str:
    text = "Training loss against tokens."
    for row in ends.itertuples():
        first = metrics[metrics["n_recur"] == row.n_recur]["loss"].iloc[0]
        text += f" r = {row.n_recur}: from {first:.2f} to {row.loss:.2f} nats per token."
    return text
