"""The executed stack of a model."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme

SECTIONS = {name: theme.SERIES_COLORS[i] for name, i in (("prelude", 5), ("loop", 1), ("coda", 3))}
RUNS = ["first run", "run again"]
LAYER_HEIGHT = 20
TEXT_ON_MARK = "#ffffff"
DETAILS = {  # field of a tooltip -> its title
    "section:N": "Section",
    "layer:Q": "Stored layer",
    "recurrence:N": "Recurrence",
    "run:N": "Run",
    "backward:N": "Gradient",
}


def schematic(layers: pd.DataFrame) -> alt.LayerChart:
    """Executed layers of some stacks, input at the bottom, with the numbers of the stored layers.

    × marks a layer that no gradient reaches (truncated backpropagation); e marks where the
    prelude's output is injected.

    Args:
        layers: one row per executed layer: stack (label), and the keys of
            `looped.accounting.executed_layers`.
    """
    needed = ["stack", "position", "section", "layer", "reused", "gradient", "injection"]
    parts.require(layers, needed, "schematic")
    number = layers["layer"].astype(str)
    table = parts.plain(layers).assign(
        run=layers["reused"].map({False: RUNS[0], True: RUNS[1]}),
        backward=layers["gradient"].map({True: "yes", False: "no"}),
        label=number.where(layers["gradient"], number + " ×"),
        recurrence=layers["recurrence"].map(lambda r: "" if pd.isna(r) else f"{r:.0f}"),
    )
    chart = _boxes(table).properties(height=LAYER_HEIGHT * int(table["position"].max()))
    data = table.drop(columns=["reused", "gradient", "label"])
    return theme.finish(chart, "schematic", _schematic_description(table), data)


def _boxes(table: pd.DataFrame) -> alt.LayerChart:
    x = alt.X("stack:N", sort=list(table["stack"].unique()), title=None)
    x = x.axis(labelAngle=0, labelOverlap=False).scale(paddingInner=0.45, paddingOuter=0.3)
    y = alt.Y("position:O", sort="descending", title="Executed layer, input below")
    y = y.axis(labelOverlap=True).scale(paddingInner=0.12)
    base = alt.Chart(table).encode(x, y)
    shade = alt.Opacity("run:N", scale=alt.Scale(domain=RUNS, range=[1, 0.55]), title=None)
    boxes = base.mark_bar(cornerRadius=3).encode(
        theme.name_color(
            "section", list(SECTIONS), list(SECTIONS.values()), legend=alt.Legend(columns=3)
        ),
        shade.legend(symbolFillColor=SECTIONS["loop"], symbolStrokeWidth=0, columns=2),
        tooltip=[alt.Tooltip(field, title=title) for field, title in DETAILS.items()],
    )
    ink = alt.condition("datum.run === 'first run'", alt.value(TEXT_ON_MARK), alt.value(theme.INK))
    names = base.mark_text(fontSize=11).encode(text="label:N", color=ink)
    entering = base.mark_text(text="e ▸", align="right", fontSize=12).encode(xOffset=alt.value(-4))
    return alt.layer(boxes, names, entering.transform_filter("datum.injection"))


def _schematic_description(table: pd.DataFrame) -> theme.Sentences:
    yield "Executed layers from input to output, each with the number of its stored layer."
    for stack, rows in table.groupby("stack", sort=False):
        yield f"{stack}: {len(rows)} executed layers, {rows['layer'].nunique()} stored."
