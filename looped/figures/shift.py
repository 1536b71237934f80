"""The shift of φ between two cases: its paired resamples, and the parts of the loss change."""

from collections.abc import Collection

import altair as alt
import pandas as pd

from looped.diagnose.decomposition import PARTS
from looped.diagnose.delta import DeltaPhi
from looped.figures import parts, theme
from looped.quantities import QUANTITIES

SHIFTS = "{label: looped.delta_phi(...)}"
SHOWN = [*PARTS, "misfit"]
PART_COLORS = [theme.SERIES_COLORS[i] for i in (5, 7, 6, 0)]
"""Colours of `SHOWN` (tokens, capacity, rest, misfit); none is that of an r > 1."""

POINT_COLOR = theme.SERIES_COLORS[1]
FENCE = 3.0
"""Resamples farther from a quartile than this many interquartile ranges are not drawn."""


def loss_change(deltas: dict[str, DeltaPhi]) -> alt.ConcatChart:
    """Parts of the loss change at equal FLOPs and width, stacked above and below 0, for each r.

    Means over the budgets. A tick marks the measured change, which is the sum of the parts.

    Args:
        deltas: label -> shift, one panel each.

    Raises:
        ValueError: no shift, or one without decomposition.
    """
    _require(deltas, "loss_change")
    table = pd.concat([_parts_by_r(label, delta) for label, delta in deltas.items()])
    ends = [_ends(rows) for _, rows in table.groupby(["label", "n_recur"])]
    scale = alt.Scale(domain=[min(ends)[0], max(high for _, high in ends)], nice=True)
    charts = [_stack_panel(table[table["label"] == label], scale) for label in deltas]
    return theme.finish(
        parts.panels(charts, list(deltas)).properties(
            title=parts.note(_note(deltas), "tick: measured; below 0 the variant's loss is lower")
        ),
        name="loss-change",
        description=_change_description(table),
        data=table,
    )


def phi_pairs(deltas: dict[str, DeltaPhi]) -> alt.ConcatChart:
    """φ of the variant against φ of the baseline in each paired resample, one panel per shift.

    On the line both are equal. Outlying resamples are not drawn; the note above the panels counts
    them, and the data for download contain them.

    Args:
        deltas: label -> shift.

    Raises:
        ValueError: no shift.
    """
    parts.require_any(deltas, "phi_pairs", "shift", SHIFTS)
    tables = {label: _pairs(label, delta) for label, delta in deltas.items()}
    chart = parts.panels(
        [_pairs_panel(tables[label], delta) for label, delta in deltas.items()],
        [alt.Title(label, subtitle=_interval_text(delta)) for label, delta in deltas.items()],
    )
    outside = sum((~rows["in_view"]).sum() for rows in tables.values())
    unseen = f"{outside} of {sum(map(len, tables.values()))} resamples outside the view"
    return theme.finish(
        chart.properties(title=parts.note(_note(deltas), "cross: fit to all runs", unseen)),
        name="phi-pairs",
        description=_pairs_description(deltas, tables),
        data=pd.concat(tables.values(), ignore_index=True),
    )


def _require(deltas: dict[str, DeltaPhi], figure: str) -> None:
    parts.require_any(deltas, figure, "shift", SHIFTS)
    bare = [label for label, delta in deltas.items() if delta.decomposition.empty]
    if bare:
        raise ValueError(
            f"figure {figure}: {bare} have no decomposition to draw; their warnings say why: "
            f"{list(deltas[bare[0]].warnings)}"
        )


def _parts_by_r(label: str, delta: DeltaPhi) -> pd.DataFrame:
    """label, n_recur, part, change (mean over budgets), measured."""
    means = delta.decomposition.groupby("n_recur")[["measured", *SHOWN]].mean().reset_index()
    long = means.melt(["n_recur", "measured"], SHOWN, var_name="part", value_name="change")
    return long.astype({"n_recur": int}).assign(label=label)[
        ["label", "n_recur", "part", "change", "measured"]
    ]


def _ends(rows: pd.DataFrame) -> tuple[float, float]:
    """Lower and upper end of one bar: the sums of its negative and of its positive parts."""
    change = rows["change"]
    return float(change[change < 0].sum()), float(change[change > 0].sum())


def _stack_panel(rows: pd.DataFrame, scale: alt.Scale) -> alt.LayerChart:
    x = alt.X("n_recur:O", title=QUANTITIES["n_recur"].axis, axis=alt.Axis(labelAngle=0))
    ordered = alt.Chart(rows).transform_calculate(place=f"indexof({SHOWN}, datum.part)")
    bars = ordered.mark_bar(size=34, stroke=theme.INK, strokeWidth=0.4).encode(
        x=x,
        y=theme.axis(alt.Y, "change", scale=scale, stack="zero"),
        color=theme.name_color(
            "part", SHOWN, PART_COLORS, legend=alt.Legend(symbolType="square", columns=4)
        ),
        order=alt.Order("place:Q"),
        tooltip=parts.tooltips(rows, ["n_recur", "part", "change", "measured"]),
    )
    ticks = (
        alt.Chart(rows.drop_duplicates("n_recur"))
        .mark_tick(color=theme.INK, thickness=2.5, size=50)
        .encode(x=x, y=theme.axis(alt.Y, "measured", title=QUANTITIES["change"].axis, scale=scale))
    )
    zero = parts.zero_rule(y=theme.axis(alt.Y, "change", scale=scale))
    return alt.layer(bars, zero, ticks)


def _pairs(label: str, delta: DeltaPhi) -> pd.DataFrame:
    """label, phi_baseline, phi_variant, in_view: one row per resample."""
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


def _pairs_panel(rows: pd.DataFrame, delta: DeltaPhi) -> alt.LayerChart:
    both = {"phi_baseline": delta.baseline, "phi_variant": delta.variant}
    fitted = pd.DataFrame({name: [fit.params["phi"]] for name, fit in both.items()})
    seen = rows[rows["in_view"]].drop(columns="in_view")
    shown = pd.concat([seen, fitted])
    anchor = fitted["phi_baseline"].iloc[
        0
    ]  # in view on both axes, so that the line is in view, too
    x, y = (
        theme.axis(channel, name, scale=_scale([*shown[name], anchor]))
        for channel, name in ((alt.X, "phi_baseline"), (alt.Y, "phi_variant"))
    )
    ends = shown[["phi_baseline", "phi_variant"]].agg(["min", "max"])
    span = [float(ends.min().min()), float(ends.max().max())]
    line = alt.Chart(pd.DataFrame(dict.fromkeys(both, span))).mark_line(
        color=theme.INK, opacity=0.6, strokeWidth=1.2, clip=True
    )
    points = alt.Chart(seen).mark_point(filled=True, size=14, opacity=0.5, color=POINT_COLOR)
    cross = alt.Chart(fitted).mark_point(
        shape="cross", filled=True, size=130, color=theme.INK, opacity=1
    )
    details = parts.tooltips(rows, ["phi_baseline", "phi_variant"])
    placed = [layer.encode(x=x, y=y) for layer in (points.encode(tooltip=details), line, cross)]
    return alt.layer(*placed)


def _scale(values: Collection[float]) -> alt.Scale:
    return alt.Scale(domain=[float(min(values)), float(max(values))], nice=True, zero=False)


def _interval_text(delta: DeltaPhi) -> str:
    low, high = delta.interval
    return f"Δφ {delta.delta_phi:+.3f} [{low:+.3f}, {high:+.3f}]"


def _note(deltas: dict[str, DeltaPhi]) -> str:
    fits = [delta.variant for delta in deltas.values()]
    sources = sorted({source for fit in fits for source in fit.sources})
    splits = sorted({fit.split for fit in fits})
    return parts.joined(f"{parts.listed(sources)} runs", f"split {parts.listed(splits)}")


def _change_description(table: pd.DataFrame) -> str:
    text = "Change of the validation loss at equal FLOPs and width, in nats per token, by part."
    for (label, n_recur), rows in table.groupby(["label", "n_recur"], sort=False):
        change = [f"{row.part} {row.change:+.3f}" for row in rows.itertuples()]
        measured = rows["measured"].iloc[0]
        text += f" {label}, r = {n_recur}: {parts.listed(change)}; measured {measured:+.3f}."
    return text


def _pairs_description(deltas: dict[str, DeltaPhi], tables: dict[str, pd.DataFrame]) -> str:
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
