"""The shift of φ between two cases: its paired resamples, and where the loss change comes from."""

import altair as alt
import pandas as pd

from looped.diagnose.decomposition import PARTS
from looped.diagnose.delta import DeltaPhi
from looped.figures import parts, theme
from looped.quantities import QUANTITIES

SHOWN = [*PARTS, "misfit"]
PART_COLORS = ["#b8860b", "#5b6fe0", "#cc4f80", "#767f8c"]
"""Of `SHOWN`, none of them the colour of an r: tokens, capacity, rest, misfit."""

POINT_COLOR = "#0a7fc2"
FENCE = 3.0
"""Interquartile ranges beyond the quartiles, of either φ, up to which resamples are in view."""


def loss_change(deltas: dict[str, DeltaPhi]):
    """Parts of the loss change at equal FLOPs and width, stacked on both sides of 0, for each r.

    Means over the budgets; a tick marks the change that was measured, which is their sum.

    Args:
        deltas: label -> shift, a panel each.

    Raises:
        ValueError: no shift, or one without decomposition.
    """
    _require(deltas, "loss_change")
    table = pd.concat([_parts_by_r(label, delta) for label, delta in deltas.items()])
    ends = [_ends(rows) for _, rows in table.groupby(["label", "n_recur"])]
    scale = alt.Scale(domain=[min(ends)[0], max(high for _, high in ends)], nice=True)
    panels = [
        _stack_panel(rows, scale).properties(
            title=label, width=parts.panel_width(len(deltas)), height=theme.PANEL_HEIGHT
        )
        for label, rows in table.groupby("label", sort=False)
    ]
    return theme.finish(
        alt.concat(*panels, columns=min(2, len(panels))).properties(
            title=parts.note(_note(deltas), "tick: measured; below 0 the variant's loss is lower")
        ),
        name="loss-change",
        description=_change_description(table),
        data=table,
    )


def phi_pairs(deltas: dict[str, DeltaPhi]):
    """φ of the variant against φ of the baseline in each paired resample, a panel a shift.

    On the line both are equal. Resamples far out of either φ's bulk are not drawn, which the note
    above the panels counts; the data for download have them all.

    Args:
        deltas: label -> shift.

    Raises:
        ValueError: no shift.
    """
    _require_any(deltas, "phi_pairs")
    tables = {label: _pairs(label, delta) for label, delta in deltas.items()}
    panels = [
        _pairs_panel(rows, deltas[label]).properties(
            title=alt.Title(label, subtitle=_interval_text(deltas[label])),
            width=parts.panel_width(len(deltas)),
            height=theme.PANEL_HEIGHT,
        )
        for label, rows in tables.items()
    ]
    outside = sum((~rows["in_view"]).sum() for rows in tables.values())
    unseen = f"{outside} of {sum(map(len, tables.values()))} resamples outside the view"
    return theme.finish(
        alt.concat(*panels, columns=min(2, len(panels))).properties(
            title=parts.note(_note(deltas), "cross: the runs as they are", unseen)
        ),
        name="phi-pairs",
        description=_pairs_description(deltas, tables),
        data=pd.concat(tables.values(), ignore_index=True),
    )


def _require_any(deltas, figure):
    if not deltas:
        raise ValueError(f"figure {figure}: no shift; give {{label: looped.delta_phi(...)}}")


def _require(deltas, figure):
    _require_any(deltas, figure)
    bare = [label for label, delta in deltas.items() if delta.decomposition.empty]
    if bare:
        raise ValueError(
            f"figure {figure}: {bare} have no decomposition to draw; their warnings say why: "
            f"{list(deltas[bare[0]].warnings)}"
        )


def _parts_by_r(label, delta) -> pd.DataFrame:
    """label, n_recur, part, change (mean over budgets), measured."""
    means = delta.decomposition.groupby("n_recur")[["measured", *SHOWN]].mean().reset_index()
    long = means.melt(["n_recur", "measured"], SHOWN, var_name="part", value_name="change")
    return long.astype({"n_recur": int}).assign(label=label)[
        ["label", "n_recur", "part", "change", "measured"]
    ]


def _ends(rows) -> tuple[float, float]:
    """How far the parts of one bar reach below and above 0."""
    change = rows["change"]
    return float(change[change < 0].sum()), float(change[change > 0].sum())


def _stack_panel(rows, scale) -> alt.LayerChart:
    x = alt.X("n_recur:O", title=QUANTITIES["n_recur"].axis, axis=alt.Axis(labelAngle=0))
    ordered = alt.Chart(rows).transform_calculate(place=f"indexof({SHOWN}, datum.part)")
    bars = ordered.mark_bar(size=34, stroke=theme.INK, strokeWidth=0.4).encode(
        x=x,
        y=theme.axis(alt.Y, "change", scale=scale, stack="zero"),
        color=alt.Color(
            "part:N",
            scale=alt.Scale(domain=SHOWN, range=PART_COLORS),
            legend=alt.Legend(symbolType="square", columns=4),
            title=None,
        ),
        order=alt.Order("place:Q"),
        tooltip=parts.tooltips(rows, ["n_recur", "part", "change", "measured"]),
    )
    ticks = (
        alt.Chart(rows.drop_duplicates("n_recur"))
        .mark_tick(color=theme.INK, thickness=2.5, size=50)
        .encode(x=x, y=theme.axis(alt.Y, "measured", title=QUANTITIES["change"].axis, scale=scale))
    )
    zero = alt.Chart(pd.DataFrame({"change": [0]})).mark_rule(opacity=0.6)
    return alt.layer(bars, zero.encode(y=theme.axis(alt.Y, "change", scale=scale)), ticks)


def _pairs(label, delta) -> pd.DataFrame:
    """label, phi_baseline, phi_variant, in_view: one row a resample."""
    table = pd.DataFrame(
        {
            "label": label,
            "phi_baseline": delta.baseline.interval.draws["phi"],
            "phi_variant": delta.variant.interval.draws["phi"],
        }
    )
    phi = table[["phi_baseline", "phi_variant"]]
    low, high = phi.quantile(0.25), phi.quantile(0.75)
    reach = FENCE * (high - low)
    return table.assign(in_view=((phi >= low - reach) & (phi <= high + reach)).all(axis=1))


def _pairs_panel(rows, delta) -> alt.LayerChart:
    fitted = pd.DataFrame(
        {
            "phi_baseline": [delta.baseline.params["phi"]],
            "phi_variant": [delta.variant.params["phi"]],
        }
    )
    seen = rows[rows["in_view"]].drop(columns="in_view")
    shown = pd.concat([seen, fitted])
    anchor = fitted["phi_baseline"].iloc[0]  # in view on both axes, so that the line is, too
    x, y = (
        theme.axis(channel, name, scale=_scale([*shown[name], anchor]))
        for channel, name in ((alt.X, "phi_baseline"), (alt.Y, "phi_variant"))
    )
    ends = shown[["phi_baseline", "phi_variant"]].agg(["min", "max"])
    both = [float(ends.min().min()), float(ends.max().max())]
    line = alt.Chart(pd.DataFrame({"phi_baseline": both, "phi_variant": both})).mark_line(
        color=theme.INK, opacity=0.6, strokeWidth=1.2, clip=True
    )
    points = alt.Chart(seen).mark_point(filled=True, size=14, opacity=0.5, color=POINT_COLOR)
    cross = alt.Chart(fitted).mark_point(
        shape="cross", filled=True, size=130, color=theme.INK, opacity=1
    )
    details = parts.tooltips(rows, ["phi_baseline", "phi_variant"])
    placed = [layer.encode(x=x, y=y) for layer in (points.encode(tooltip=details), line, cross)]
    return alt.layer(*placed)


def _scale(values) -> alt.Scale:
    return alt.Scale(domain=[float(min(values)), float(max(values))], nice=True, zero=False)


def _interval_text(delta) -> str:
    low, high = delta.interval
    return f"Δφ {delta.delta_phi:+.3f} [{low:+.3f}, {high:+.3f}]"


def _note(deltas) -> str:
    fits = [delta.variant for delta in deltas.values()]
    sources = sorted({source for fit in fits for source in fit.sources})
    splits = sorted({fit.split for fit in fits})
    return parts.joined(f"{parts.listed(sources)} runs", f"split {parts.listed(splits)}")


def _change_description(table) -> str:
    text = "Change of the validation loss at equal FLOPs and width, in nats per token, by part."
    for (label, n_recur), rows in table.groupby(["label", "n_recur"], sort=False):
        change = [f"{row.part} {row.change:+.3f}" for row in rows.itertuples()]
        measured = rows["measured"].iloc[0]
        text += f" {label}, r = {n_recur}: {parts.listed(change)}; measured {measured:+.3f}."
    return text


def _pairs_description(deltas, tables) -> str:
    text = "φ of the variant against φ of the baseline in paired bootstrap resamples."
    for label, rows in tables.items():
        delta = deltas[label]
        above = (rows["phi_variant"] > rows["phi_baseline"]).sum()
        text += (
            f" {label}: {_interval_text(delta)} at {delta.level:.0%}, split {delta.variant.split}; "
            f"φ of the variant is the larger in {above} of {len(rows)} resamples; "
            f"{(~rows['in_view']).sum()} resamples lie outside the view."
        )
    return text
