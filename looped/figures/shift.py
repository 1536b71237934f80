"""The shift of φ between two cases: its paired resamples, and the parts of the loss change."""

import altair as alt
import pandas as pd

from looped.diagnose.decomposition import PARTS
from looped.diagnose.delta import DeltaPhi
from looped.figures import parts, theme
from looped.quantities import QUANTITIES

Deltas = dict[str, DeltaPhi]  # label -> shift
EXAMPLE = "{label: looped.delta_phi(...)}"
SHOWN = [*PARTS, "misfit"]
PART_COLORS = [theme.SERIES_COLORS[i] for i in (5, 7, 6, 0)]  # none is that of an r > 1
PHIS = ["phi_baseline", "phi_variant"]
POINT_COLOR = theme.SERIES_COLORS[1]
FENCE = 3.0  # resamples more interquartile ranges away from the quartiles are not drawn


def loss_change(deltas: Deltas) -> alt.ConcatChart:
    """Parts of the loss change at equal FLOPs and width, stacked above and below 0, for each r.

    Means over the budgets. A tick marks the measured change, which is the sum of the parts. Raises
    ValueError without any shift, or if one has no decomposition.
    """
    parts.require_any(deltas, "loss_change", "shift", EXAMPLE)
    if bare := [label for label, delta in deltas.items() if delta.decomposition.empty]:
        raise ValueError(
            f"figure loss_change: {bare} have no decomposition to draw; their warnings say why: "
            f"{list(deltas[bare[0]].warnings)}"
        )
    table = pd.concat([_parts_by_r(label, delta) for label, delta in deltas.items()])
    bars = table.groupby(["label", "n_recur"])["change"]
    low = bars.agg(lambda change: change[change < 0].sum()).min()
    high = bars.agg(lambda change: change[change > 0].sum()).max()
    scale = alt.Scale(domain=[float(low), float(high)], nice=True)
    charts = [_stack_panel(table[table["label"] == label], scale) for label in deltas]
    chart = parts.panels(charts, list(deltas))
    notes = [_notes(deltas), ["tick: measured; below 0 the variant's loss is lower"]]
    return theme.finish(chart, "loss-change", _change_description(table), table, notes)


def phi_pairs(deltas: Deltas) -> alt.ConcatChart:
    """φ of the variant against φ of the baseline in each paired resample, one panel per shift.

    On the line both are equal. Outlying resamples are not drawn; the note above the panels counts
    them, and the data for download contain them. Raises ValueError without any shift.
    """
    parts.require_any(deltas, "phi_pairs", "shift", EXAMPLE)
    tables = {label: _pairs(label, delta) for label, delta in deltas.items()}
    charts = [_pairs_panel(tables[label], delta) for label, delta in deltas.items()]
    titles = [alt.Title(label, subtitle=_interval_text(d)) for label, d in deltas.items()]
    table = pd.concat(tables.values(), ignore_index=True)
    unseen = f"{(~table['in_view']).sum()} of {len(table)} resamples outside the view"
    notes = [_notes(deltas), ["cross: fit to all runs"], [unseen]]
    sentences = _pairs_description(deltas, tables)
    return theme.finish(parts.panels(charts, titles), "phi-pairs", sentences, table, notes)


def _parts_by_r(label: str, delta: DeltaPhi) -> pd.DataFrame:
    """label, n_recur, part, change (mean over budgets), measured."""
    means = delta.decomposition.groupby("n_recur")[["measured", *SHOWN]].mean().reset_index()
    long = means.melt(["n_recur", "measured"], SHOWN, var_name="part", value_name="change")
    long = long.astype({"n_recur": int}).assign(label=label)
    return long[["label", "n_recur", "part", "change", "measured"]]


def _stack_panel(rows: pd.DataFrame, scale: alt.Scale) -> alt.LayerChart:
    x = alt.X("n_recur:O", title=QUANTITIES["n_recur"].axis, axis=alt.Axis(labelAngle=0))
    legend = alt.Legend(symbolType="square", columns=4)
    bars = alt.Chart(rows).transform_calculate(place=f"indexof({SHOWN}, datum.part)")
    bars = bars.mark_bar(size=34, stroke=theme.INK, strokeWidth=0.4).encode(
        x,
        theme.axis(alt.Y, "change", scale=scale, stack="zero"),
        theme.name_color("part", SHOWN, PART_COLORS, legend=legend),
        order=alt.Order("place:Q"),
        tooltip=parts.tooltips(rows, ["n_recur", "part", "change", "measured"]),
    )
    ticks = alt.Chart(rows.drop_duplicates("n_recur"))
    ticks = ticks.mark_tick(color=theme.INK, thickness=2.5, size=50)
    measured = theme.axis(alt.Y, "measured", like="change", scale=scale)
    zero = parts.zero_rule(y=theme.axis(alt.Y, "change", scale=scale))
    return alt.layer(bars, zero, ticks.encode(x, measured))


def _pairs(label: str, delta: DeltaPhi) -> pd.DataFrame:
    """label, phi_baseline, phi_variant, in_view: one row per resample."""
    draws = [fit.resampled.draws["phi"] for fit in delta.fits]
    phi = pd.DataFrame(dict(zip(PHIS, draws, strict=True)))
    in_view = parts.near(phi, FENCE).all(axis=1)
    return phi.assign(label=label, in_view=in_view)[["label", *PHIS, "in_view"]]


def _pairs_panel(rows: pd.DataFrame, delta: DeltaPhi) -> alt.LayerChart:
    fitted = pd.DataFrame([[fit.params["phi"] for fit in delta.fits]], columns=PHIS)
    seen = rows[rows["in_view"]].drop(columns="in_view")
    ends = pd.concat([seen, fitted])[PHIS].agg(["min", "max"])
    anchor = fitted["phi_baseline"].iloc[0]  # in view on both axes, so that the line is in view
    views = {name: [float(f([*ends[name], anchor])) for f in (min, max)] for name in PHIS}
    x, y = (
        theme.axis(channel, name, scale=alt.Scale(domain=view, nice=True, zero=False))
        for channel, (name, view) in zip((alt.X, alt.Y), views.items(), strict=True)
    )
    points = alt.Chart(seen).mark_point(filled=True, size=14, opacity=0.5, color=POINT_COLOR)
    span = [float(ends.min().min()), float(ends.max().max())]
    line = parts.diagonal(span, x, y, opacity=0.6, clip=True)
    cross = alt.Chart(fitted).encode(x, y)
    cross = cross.mark_point(shape="cross", filled=True, size=130, color=theme.INK, opacity=1)
    return alt.layer(points.encode(x, y, tooltip=parts.tooltips(rows, PHIS)), line, cross)


def _interval_text(delta: DeltaPhi) -> str:
    low, high = delta.interval
    return f"Δφ {delta.delta_phi:+.3f} [{low:+.3f}, {high:+.3f}]"


def _notes(deltas: Deltas) -> list[str]:
    sources = [source for delta in deltas.values() for source in delta.variant.sources]
    splits = [delta.split for delta in deltas.values()]
    return [parts.known("{} runs", sources), parts.known("split {}", splits)]


def _change_description(table: pd.DataFrame) -> theme.Sentences:
    yield "Change of the validation loss at equal FLOPs and width, in nats per token, by part."
    for (label, n_recur), rows in table.groupby(["label", "n_recur"], sort=False):
        change = parts.listed(f"{row.part} {row.change:+.3f}" for row in rows.itertuples())
        measured = rows["measured"].iloc[0]
        yield f"{label}, r = {n_recur}: {change}; measured {measured:+.3f}."


def _pairs_description(deltas: Deltas, tables: dict[str, pd.DataFrame]) -> theme.Sentences:
    yield "φ of the variant against φ of the baseline in paired bootstrap resamples."
    for label, rows in tables.items():
        delta = deltas[label]
        above = (rows["phi_variant"] > rows["phi_baseline"]).sum()
        yield (
            f"{label}: {_interval_text(delta)} at {delta.level:.0%}, split {delta.split}; "
            f"φ of the variant is the larger in {above} of {len(rows)} resamples; "
            f"{(~rows['in_view']).sum()} resamples lie outside the view."
        )
