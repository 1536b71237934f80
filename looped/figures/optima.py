"""Lowest loss, loss gap and optimal sizes at each budget, per r (paper Figs 1 right and 3)."""

from typing import Any

import altair as alt
import pandas as pd

from looped.figures import parts, theme
from looped.registry.cells import CELL

SIZES = {"n_params": "Optimal parameters N*", "n_tokens": "Optimal tokens D*"}
Ranges = dict[int, tuple[float, float]]  # r -> lowest and highest
HELD = "law with phi = 1"
CROSS = "M-0.7,-0.7L0.7,0.7M-0.7,0.7L0.7,-0.7"


def frontier(
    minima: pd.DataFrame, optimal: pd.DataFrame, optimal_phi1: pd.DataFrame | None = None
) -> alt.LayerChart:
    """Lowest loss at each budget: minima of the runs, and the optimum of the joint law for each r.

    Args:
        minima: of `looped.isoflop_minima`; cells without a minimum are left out.
        optimal: of `Law.optimal`, concatenated over r, at many budgets.
        optimal_phi1: the same for a fit with φ held at 1, for a dashed line.
    """
    kinds = {"minimum": minima, "law": optimal}
    if optimal_phi1 is not None:
        kinds[HELD] = optimal_phi1
    table = _by_kind(kinds, ["val_loss_star"], "frontier")
    base = alt.Chart(table)
    x, y, color = _channels(table, "val_loss")
    law = base.transform_filter("datum.kind == 'law'").mark_line().encode(x, y, color)
    held = base.transform_filter(f"datum.kind == '{HELD}'").encode(x, y, detail="n_recur:N")
    held = held.mark_line(color=theme.INK, strokeDash=[5, 4], strokeWidth=1.5)
    crosses = _crosses(base.transform_filter("datum.kind == 'minimum'"), table, x, y, color)
    marks = ["cross: minimum", "line: law", "dashed: φ = 1" if HELD in kinds else ""]
    notes = [[parts.known("split {}", optimal.get("split", ()))], marks]
    chart = alt.layer(held, law, crosses)
    return theme.finish(chart, "frontier", _frontier_description(table), table, notes)


def gaps(gaps: pd.DataFrame, published: Ranges | None = None) -> alt.LayerChart:
    """Loss above the minimum of r = 1 at the same budget, for each r.

    Args:
        gaps: of `looped.loss_gaps`; cells without a minimum are left out.
        published: r -> lowest and highest published gap (nats per token), for bands.
    """
    parts.require(gaps, [*CELL, "gap"], "gaps", may_miss=("gap",))
    found = gaps.dropna(subset=["gap"])
    published = published or {}
    x, y, color = _channels(found, "gap")
    lines = alt.Chart(found).mark_line(point=alt.OverlayMarkDef(size=55))
    lines = lines.encode(x, y, color, tooltip=parts.tooltips(found, [*CELL, "gap"]))
    rows = [(n_recur, *ends) for n_recur, ends in published.items()]
    bands = pd.DataFrame(rows, columns=["n_recur", "low", "high"])
    chart = alt.layer(*_bands(bands, color["scale"]), lines)
    data = found.merge(bands, how="left", on="n_recur")
    notes = [["band: published range" if published else ""]]
    return theme.finish(chart, "gaps", _gaps_description(found, published), data, notes)


def _bands(bands: pd.DataFrame, scale: alt.Scale) -> list[alt.Chart]:
    """One chart per band, not coloured by the scale: the legend would take on the low opacity."""
    y = theme.axis(alt.Y, "low", like="gap")
    colors = dict(zip(scale["domain"], scale["range"], strict=True))
    charts = {r: alt.Chart(rows).encode(y, y2="high") for r, rows in bands.groupby("n_recur")}
    return [charts[r].mark_rect(opacity=0.16, color=colors[r]) for r in charts if r in colors]


def optimal_sizes(optimal: pd.DataFrame, minima: pd.DataFrame) -> alt.ConcatChart:
    """Optimal parameters N* and tokens D* at each budget: lines of the law, crosses of the runs.

    Args:
        optimal: of `Law.optimal`, concatenated over r, at many budgets.
        minima: of `looped.isoflop_minima`.
    """
    stars = [f"{size}_star" for size in SIZES]
    table = _by_kind({"law": optimal, "minimum": minima}, stars, "optimal_sizes")
    table = table[["kind", *CELL, *SIZES]]
    chart = parts.panels([_size_panel(table, size) for size in SIZES])
    notes = [[parts.known("split {}", optimal.get("split", ()))], ["cross: minimum", "line: law"]]
    return theme.finish(chart, "optimal-sizes", _sizes_description(table), table, notes)


def _size_panel(table: pd.DataFrame, size: str) -> alt.LayerChart:
    x, y, color = _channels(table, size, log=True, title=SIZES[size])
    law, found = table[table["kind"] == "law"], table[table["kind"] == "minimum"]
    layers = [alt.Chart(law[[*CELL, size]]).mark_line().encode(x, y, color)]
    if len(found):
        layers.append(_crosses(alt.Chart(found), found, x, y, color))
    return alt.layer(*layers)


def _by_kind(kinds: dict[str, pd.DataFrame], stars: list[str], figure: str) -> pd.DataFrame:
    """The tables one below the other: `CELL`, the values without _star, and kind."""
    columns = [*CELL, *stars]
    found = {kind: parts.at_minimum(table, columns, figure) for kind, table in kinds.items()}
    table = pd.concat([rows.assign(kind=kind) for kind, rows in found.items()])
    return table[[*CELL, *(star.removesuffix("_star") for star in stars), "kind"]]


def _channels(table: pd.DataFrame, field: str, **options: Any) -> tuple[alt.X, alt.Y, alt.Color]:
    """Budget on the horizontal axis, the field on the vertical one, colours by r."""
    y = theme.axis(alt.Y, field, **options)
    return theme.axis(alt.X, "budget", log=True), y, theme.recur_color(table["n_recur"])


def _crosses(base: alt.Chart, table: pd.DataFrame, *channels: Any) -> alt.Chart:
    """Minima of the runs, in the colour of their r."""
    details = parts.tooltips(table, [*CELL, "n_params", "n_tokens", "val_loss"])
    crosses = base.mark_point(shape=CROSS, filled=False, size=70, strokeWidth=2, opacity=1)
    return crosses.encode(*channels, tooltip=details)


def _frontier_description(table: pd.DataFrame) -> theme.Sentences:
    yield (
        "Lowest validation loss against training compute: crosses are parabola minima of the runs, "
        "solid lines the fitted law at its optimal width."
    )
    for n_recur, rows in table.groupby("n_recur"):
        losses = rows.groupby("kind")["val_loss"]
        ranges = parts.listed(f"{kind} {parts.spread(loss)}" for kind, loss in losses)
        yield f"r = {n_recur}: {ranges} nats."


def _gaps_description(found: pd.DataFrame, published: Ranges) -> theme.Sentences:
    yield "Loss above that of r = 1 at the minima of equal training compute."
    for n_recur, cells in found.groupby("n_recur"):
        ends = published.get(n_recur)
        known = f", published {parts.spread(ends, '.2f')}" if ends else ""
        yield f"r = {n_recur}: {parts.spread(cells['gap'])} nats{known}."


def _sizes_description(table: pd.DataFrame) -> theme.Sentences:
    yield "Compute-optimal unique parameters and training tokens against training compute."
    law, found = table[table["kind"] == "law"], table[table["kind"] == "minimum"]
    for n_recur, rows in law.groupby("n_recur"):
        params = parts.spread(rows["n_params"] / 1e6, ".0f")
        tokens = parts.spread(rows["n_tokens"] / 1e9, ".2f")
        minima = found[found["n_recur"] == n_recur]["n_params"] / 1e6
        at = f"; minima of the runs at {parts.spread(minima, '.0f')} million" if len(minima) else ""
        law_at = f"{params} million parameters and {tokens} billion tokens"
        yield f"r = {n_recur}: by the law {law_at}{at}."
