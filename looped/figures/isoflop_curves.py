"""IsoFLOP curves: loss against unique parameters at equal training compute (paper Figs 2 and 4)."""

import altair as alt
import numpy as np
import pandas as pd

from looped.figures import parts, theme
from looped.fitting.result import FitResult
from looped.registry.cells import CELL

COLUMNS = [*CELL, "n_params", "val_loss"]
STAR_COLUMNS = [*CELL, "n_params_star", "val_loss_star", "curvature"]
CURVE_POINTS = 17
STAR = "M0,-1L0.235,-0.324L0.951,-0.309L0.38,0.124L0.588,0.809"  # its right half
STAR += "L0,0.4L-0.588,0.809L-0.38,0.124L-0.951,-0.309L-0.235,-0.324Z"


def isoflop(
    runs: pd.DataFrame, minima: pd.DataFrame, fit: FitResult | None = None
) -> alt.FacetChart:
    """IsoFLOP curves, one panel per r: runs, a curve per budget, and a star at its minimum.

    For r > 1, a faint line repeats the minima of r = 1 for comparison. Circles of flagged runs are
    hollow. A click on a budget in the legend highlights its curve.

    Args:
        runs: table of runs.
        minima: of `looped.isoflop_minima`; a cell without a minimum has no parabola and no star.
        fit: fit whose predictions replace the parabolas.
    """
    parts.require(runs, COLUMNS, "isoflop")
    found = parts.at_minimum(minima, STAR_COLUMNS, "isoflop")
    points = parts.drawable(runs).assign(kind="run")
    stars = found[COLUMNS].assign(kind="minimum")
    if fit is None:
        curves = _parabolas(points, found)
    else:
        curves = runs[COLUMNS].assign(val_loss=fit.predict(runs), kind="prediction")
    table = pd.concat([points, curves, stars, _anchors(runs, found)], ignore_index=True)
    recurrences = parts.recurrences(runs)
    width = parts.panel_width(len(recurrences))
    panel = _panel(table, points).properties(width=width, height=theme.PANEL_HEIGHT)
    r = alt.Facet("n_recur:N", header=alt.Header(labelExpr=theme.RECUR_LABEL))
    chart = panel.facet(facet=r, columns=min(2, len(recurrences)))
    data = [parts.source_note(runs), *(parts.fit_phrases(fit) if fit else [])]
    compared = "dashed: r = 1" if {1} < set(recurrences) else ""
    notes = [data, ["star: minimum", parts.flag_note(points), compared]]
    return theme.finish(chart, "isoflop", _description(runs, found, fit), table, notes)


def _panel(table: pd.DataFrame, points: pd.DataFrame) -> alt.LayerChart:
    chosen = alt.selection_point(name="chosen", fields=["budget"], bind="legend")
    faded = alt.condition(chosen, alt.value(1), alt.value(0.12))
    x, y = theme.axis(alt.X, "n_params", log=True), theme.axis(alt.Y, "val_loss")
    color = theme.budget_color(points["budget"])
    base = alt.Chart(parts.plain(table))
    anchors = base.transform_filter("datum.kind == 'minimum of r = 1'").encode(x, y)
    anchors = anchors.mark_line(color=theme.INK, opacity=0.45, strokeWidth=1.2, strokeDash=[4, 3])
    lines = base.transform_filter("datum.kind == 'parabola' || datum.kind == 'prediction'")
    lines = lines.mark_line(strokeWidth=1.6, interpolate="monotone")
    lines = lines.encode(x, y, color, opacity=faded)
    lines = lines.add_params(chosen)  # to the layer of the legend: no other makes it clickable
    circles = parts.run_points(points, x, y, color, base.transform_filter("datum.kind == 'run'"))
    stars = base.transform_filter("datum.kind == 'minimum'").encode(x, y, color, opacity=faded)
    stars = stars.mark_point(shape=STAR, size=110, filled=True, stroke=theme.INK, strokeWidth=0.7)
    layers = [lines, circles.encode(opacity=faded), stars]
    return alt.layer(*([anchors] if "minimum of r = 1" in set(table["kind"]) else []), *layers)


def _parabolas(points: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """L = L* + curvature (log N - log N*)² over the range of the runs of each cell."""
    curves = [pd.DataFrame()]
    cells = points.groupby(CELL)["n_params"]
    for cell in found.itertuples():
        sizes = cells.get_group((cell.n_recur, cell.budget))
        n_params = np.geomspace(sizes.min(), sizes.max(), CURVE_POINTS)
        loss = cell.val_loss + cell.curvature * np.log(n_params / cell.n_params) ** 2
        curve = {"n_params": n_params, "val_loss": loss, "kind": "parabola"}
        curves.append(pd.DataFrame(curve | {"n_recur": cell.n_recur, "budget": cell.budget}))
    return pd.concat(curves)


def _anchors(runs: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """The minima of r = 1, repeated for each panel of another r."""
    anchor = found[found["n_recur"] == 1][COLUMNS[1:]].assign(kind="minimum of r = 1")
    others = pd.DataFrame({"n_recur": [r for r in parts.recurrences(runs) if r > 1]}, dtype=int)
    return others.merge(anchor, how="cross")


def _description(runs: pd.DataFrame, found: pd.DataFrame, fit: FitResult | None) -> theme.Sentences:
    budgets = sorted(set(runs["budget"]))
    yield (
        f"IsoFLOP curves: validation loss against unique parameters, {parts.runs_prose(runs)} at "
        f"{parts.counted(len(budgets), 'budget')} ({', '.join(map(parts.flops, budgets))} FLOPs), "
        f"r = {parts.listed(parts.recurrences(runs))}. "
        f"Curves: {'the ' + parts.fit_prose(fit) if fit else 'parabolas'}."
    )
    for n_recur, cells in found.groupby("n_recur"):
        sizes = parts.spread(cells["n_params"] / 1e6, ".0f")
        yield (
            f"The minima of r = {n_recur} have losses {parts.spread(cells['val_loss'])} at {sizes} "
            "million parameters."
        )
    if refused := runs.groupby(CELL).ngroups - len(found):
        yield f"Without a minimum: {parts.counted(refused, 'cell')}."
