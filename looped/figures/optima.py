"""Lowest loss, loss gap and optimal sizes at each budget, per r (paper Figs 1 right and 3)."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme
from looped.quantities import QUANTITIES
from looped.registry.cells import CELL

SIZES = {"n_params": "Optimal parameters N*", "n_tokens": "Optimal tokens D*"}

CROSS = "M-0.7,-0.7L0.7,0.7M-0.7,0.7L0.7,-0.7"


def frontier(
    minima: pd.DataFrame, optimal: pd.DataFrame, optimal_phi1: pd.DataFrame | None = None
) -> alt.LayerChart:
    """Lowest loss at each budget: minima of the runs, and the optimum of the joint law for each r.

    Args:
        minima: of `looped.isoflop_minima`; cells without a minimum are left out.
        optimal: of `Law.optimal`, concatenated over r, at many budgets.
        optimal_phi1: the same for a fit with φ held at 1, for a dashed line.

    Raises:
        ValueError: a column or all rows are missing.
    """
    columns = [*CELL, "val_loss_star"]
    tables = {"minimum": minima, "law": optimal, "law with phi = 1": optimal_phi1}
    tables = {
        kind: parts.at_minimum(table, columns, "frontier").assign(kind=kind)
        for kind, table in tables.items()
        if table is not None
    }
    table = pd.concat(tables.values())[[*CELL, "val_loss", "kind"]]
    base = alt.Chart(table)
    x = theme.axis(alt.X, "budget", log=True)
    y = theme.axis(alt.Y, "val_loss")
    color = theme.recur_color(table["n_recur"])
    law = base.transform_filter("datum.kind == 'law'").mark_line().encode(x, y, color)
    held = (
        base.transform_filter("datum.kind == 'law with phi = 1'")
        .mark_line(color=theme.INK, strokeDash=[5, 4], strokeWidth=1.5)
        .encode(x=x, y=y, detail="n_recur:N")
    )
    crosses = _crosses(base.transform_filter("datum.kind == 'minimum'"), table, x, y, color)
    dashed = "dashed: φ = 1" if "law with phi = 1" in tables else ""
    key = parts.joined("cross: minimum", "line: law", dashed)
    return theme.finish(
        alt.layer(held, law, crosses).properties(title=parts.note(parts.split_note(optimal), key)),
        name="frontier",
        description=_frontier_description(table),
        data=table,
    )


def gaps(
    gaps: pd.DataFrame, published: dict[int, tuple[float, float]] | None = None
) -> alt.LayerChart:
    """Loss above the minimum of r = 1 at the same budget, for each r.

    Args:
        gaps: of `looped.loss_gaps`; cells without a minimum are left out.
        published: r -> lowest and highest published gap (nats per token), for bands.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(gaps, [*CELL, "gap"], "gaps", may_miss=("gap",))
    found = gaps.dropna(subset=["gap"])
    published = published or {}
    y = theme.axis(alt.Y, "gap")
    x = theme.axis(alt.X, "budget", log=True)
    color = theme.recur_color(found["n_recur"])
    lines = alt.Chart(found).mark_line(point=alt.OverlayMarkDef(size=55))
    lines = lines.encode(x, y, color, tooltip=parts.tooltips(found, [*CELL, "gap"]))
    rows = [(n_recur, *ends) for n_recur, ends in published.items()]
    bands = pd.DataFrame(rows, columns=["n_recur", "low", "high"])
    chart = alt.layer(*_bands(bands, color["scale"]), lines)
    return theme.finish(
        chart.properties(title=parts.note("band: published range" if published else "")),
        name="gaps",
        description=_gaps_description(found, published),
        data=found.merge(bands, how="left", on="n_recur"),
    )


def _bands(bands: pd.DataFrame, scale: alt.Scale) -> list[alt.Chart]:
    """One chart per band, not coloured by the scale: the legend would take on the low opacity."""
    colors = dict(zip(scale["domain"], scale["range"], strict=True))
    y = theme.axis(alt.Y, "low", title=QUANTITIES["gap"].axis)
    return [
        alt.Chart(bands[bands["n_recur"] == n_recur])
        .mark_rect(opacity=0.16, color=colors[n_recur])
        .encode(y=y, y2="high")
        for n_recur in bands["n_recur"]
        if n_recur in colors
    ]


def optimal_sizes(optimal: pd.DataFrame, minima: pd.DataFrame) -> alt.ConcatChart:
    """Optimal parameters N* and tokens D* at each budget: lines of the law, crosses of the runs.

    Args:
        optimal: of `Law.optimal`, concatenated over r, at many budgets.
        minima: of `looped.isoflop_minima`.

    Raises:
        ValueError: a column or all rows are missing.
    """
    columns = [*CELL, *(f"{size}_star" for size in SIZES)]
    law = parts.at_minimum(optimal, columns, "optimal_sizes")
    found = parts.at_minimum(minima, columns, "optimal_sizes")
    table = pd.concat([law.assign(kind="law"), found.assign(kind="minimum")])
    table = table[["kind", *CELL, *SIZES]]
    chart = parts.panels([_size_panel(table, size) for size in SIZES]).properties(
        title=parts.note(parts.split_note(optimal), "cross: minimum · line: law")
    )
    return theme.finish(
        chart, name="optimal-sizes", description=_sizes_description(law, found), data=table
    )


def _size_panel(table: pd.DataFrame, size: str) -> alt.LayerChart:
    x = theme.axis(alt.X, "budget", log=True)
    y = theme.axis(alt.Y, size, log=True, title=SIZES[size])
    color = theme.recur_color(table["n_recur"])
    law, found = table[table["kind"] == "law"], table[table["kind"] == "minimum"]
    layers = [alt.Chart(law[[*CELL, size]]).mark_line().encode(x, y, color)]
    if len(found):
        layers.append(_crosses(alt.Chart(found), found, x, y, color))
    return alt.layer(*layers)


def _crosses(
    base: alt.Chart, table: pd.DataFrame, x: alt.X, y: alt.Y, color: alt.Color
) -> alt.Chart:
    """Minima of the runs, in the colour of their r."""
    details = parts.tooltips(table, [*CELL, "n_params", "n_tokens", "val_loss"])
    crosses = base.mark_point(shape=CROSS, filled=False, size=70, strokeWidth=2, opacity=1)
    return crosses.encode(x, y, color, tooltip=details)


def _frontier_description(table: pd.DataFrame) -> str:
    text = (
        "Lowest validation loss against training compute: crosses are parabola minima of the runs, "
        "solid lines the fitted law at its optimal width."
    )
    for n_recur, rows in table.groupby("n_recur"):
        ranges = [
            f"{kind} {parts.spread(losses)}" for kind, losses in rows.groupby("kind")["val_loss"]
        ]
        text += f" r = {n_recur}: {parts.listed(ranges)} nats."
    return text


def _gaps_description(found: pd.DataFrame, published: dict[int, tuple[float, float]]) -> str:
    text = "Loss above that of r = 1 at the minima of equal training compute."
    for n_recur, cells in found.groupby("n_recur"):
        text += f" r = {n_recur}: {parts.spread(cells['gap'])} nats"
        if n_recur in published:
            text += f", published {parts.spread(published[n_recur], '.2f')}"
        text += "."
    return text


def _sizes_description(law: pd.DataFrame, found: pd.DataFrame) -> str:
    text = "Compute-optimal unique parameters and training tokens against training compute."
    for n_recur, rows in law.groupby("n_recur"):
        text += (
            f" r = {n_recur}: by the law {parts.spread(rows['n_params'] / 1e6, '.0f')} million "
            f"parameters and {parts.spread(rows['n_tokens'] / 1e9, '.2f')} billion tokens"
        )
        minima = found[found["n_recur"] == n_recur]["n_params"]
        if len(minima):
            text += f"; minima of the runs at {parts.spread(minima / 1e6, '.0f')} million"
        text += "."
    return text
