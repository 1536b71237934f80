"""φ and its uncertainty: resamples, profile of the objective, and φ under each split."""

from collections.abc import Iterable
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from looped.figures import parts, theme
from looped.fitting.result import Bootstrap

Interval = tuple[float, float]

BINS = 40
FENCE = 6.0  # resamples more interquartile ranges away from the quartiles are not drawn
ENDS = (0, 1)  # φ if a recurrence is worth nothing, and φ if it is worth a unique block
ROW_HEIGHT = 52
SPLIT_COLORS = theme.SERIES_COLORS[1:5]

# Breaks a long name at a space, so that the plot has room on a phone.
_BROKEN = "split(replace(datum.label, regexp('(.{10,}?) '), '$1|'), '|')"
TWO_LINES = f"length(datum.label) > 20 ? {_BROKEN} : datum.label"


def bootstrap_histogram(
    bootstraps: dict[str, Bootstrap], published: Interval | None = None
) -> alt.ConcatChart:
    """Distribution of φ over the resamples and its interval, one panel per bootstrap.

    Lines mark φ = 0 and φ = 1 where they are in view. Raises ValueError without any bootstrap, or
    if φ was held.

    Args:
        bootstraps: label -> bootstrap.
        published: the published interval, for a band in every panel.
    """
    parts.require_any(bootstraps, "bootstrap_histogram", "bootstrap", "{label: bootstrap}")
    intervals = {label: found.interval("phi") for label, found in bootstraps.items()}
    draws = {label: np.asarray(found.draws["phi"]) for label, found in bootstraps.items()}
    bulk = [phi[parts.near(phi, FENCE)] for phi in draws.values()]
    low, high = _view([*bulk, *intervals.values(), *([published] if published else [])])
    table = pd.concat([_histogram(label, phi, low, high) for label, phi in draws.items()])
    x_scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    y_scale = alt.Scale(domain=[0, 1.05 * int(table["n_resamples"].max())])
    y = alt.Y("n_resamples:Q", title="Resamples", scale=y_scale)
    charts, titles = [], []
    for label, found in bootstraps.items():
        rows, ends = table[table["label"] == label], intervals[label]
        charts.append(_distribution(rows, ends, published, x_scale, y))
        interval = f"{found.level:.0%} [{ends[0]:.3f}, {ends[1]:.3f}]"
        resamples = f"{found.resamples} {found.method} resamples"
        titles.append(alt.Title(label, subtitle=f"{interval} · {resamples}"))
    chart = parts.panels(charts, titles, columns=1, height=130 if len(charts) > 1 else 220)
    unseen = sum(int(((phi < low) | (phi > high)).sum()) for phi in draws.values())
    outside = f"{unseen} resamples outside the view" if unseen else ""
    notes = [["dashed: interval", "band: published" if published else "", outside]]
    sentences = _bootstrap_description(bootstraps, intervals, published)
    return theme.finish(chart, "bootstrap-phi", sentences, table, notes)


def split_phi(table: pd.DataFrame) -> alt.LayerChart:
    """φ of each study under each split, with the published value as a vertical line.

    Args:
        table: one row per (study, split): study, split, phi, published (may be missing).
    """
    columns = ["study", "split", "phi", "published"]
    parts.require(table, columns, "split_phi", may_miss=("published",))
    studies, splits = (list(table[name].unique()) for name in ("study", "split"))
    ticks = alt.Axis(tickCount=6)
    y = alt.Y("study:N", sort=studies, title=None).axis(labelExpr=TWO_LINES, labelLimit=150)
    dots = (
        alt.Chart(table)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            theme.axis(alt.X, "phi", axis=ticks),
            y,
            alt.YOffset("split:N", sort=splits),
            theme.name_color("split", splits, SPLIT_COLORS),
            alt.Shape("split:N", scale=alt.Scale(domain=splits), title=None),
            tooltip=parts.tooltips(table, columns),
        )
    )
    published = theme.axis(alt.X, "published", like="phi", axis=ticks)
    lines = alt.Chart(table.dropna(subset=["published"]).drop_duplicates("study"))
    lines = lines.mark_tick(color=theme.INK, thickness=1.5, size=ROW_HEIGHT * 0.85)
    chart = alt.layer(lines.encode(published, y), dots).properties(height=ROW_HEIGHT * len(studies))
    notes = [["splits", "vertical line: published"]]
    return theme.finish(chart, "split-phi", _split_description(table), table, notes)


def profile(profile: pd.DataFrame) -> alt.LayerChart:
    """Objective of the fits with φ held at each value, relative to the lowest.

    Args:
        profile: one row per held φ: phi, objective, r2.
    """
    parts.require(profile, ["phi", "objective", "r2"], "profile")
    lowest = profile["objective"].min()
    table = profile.sort_values("phi").assign(relative_objective=lambda t: t["objective"] / lowest)
    marked = _marked(table)
    x, y = theme.axis(alt.X, "phi"), theme.axis(alt.Y, "relative_objective")
    details = parts.tooltips(table, ["phi", "relative_objective", "r2"])
    base = alt.Chart(table).encode(x, y)
    line = base.mark_line(color=SPLIT_COLORS[0])
    rules = alt.Chart(marked).mark_rule(strokeDash=[3, 3], opacity=0.6).encode(x)
    points = base.mark_point(filled=True, size=30, color=SPLIT_COLORS[0], opacity=1)
    chart = alt.layer(rules, line, points.encode(tooltip=details), *_labels(marked, x, y))
    notes = [
        [parts.known("split {}", table.get("split", ())), "other parameters refitted at each φ"]
    ]
    return theme.finish(chart, "profile", _profile_description(marked), table, notes)


def _view(values: Iterable[Interval | np.ndarray]) -> Interval:
    """Range of the values with a margin, extended to 0 or 1 if these are close."""
    every = np.concatenate([np.asarray(value) for value in values])
    margin = 0.15 * np.ptp(every) or 0.01
    low, high = float(every.min() - margin), float(every.max() + margin)
    return (min(low, -0.01) if low < 0.05 else low), (max(high, 1.01) if high > 0.95 else high)


def _histogram(label: str, phi: np.ndarray, low: float, high: float) -> pd.DataFrame:
    counts, edges = np.histogram(phi, np.linspace(low, high, BINS + 1))
    bins = {"phi": edges[:-1], "phi_end": edges[1:], "n_resamples": counts}
    return pd.DataFrame({"label": label} | bins)


def _distribution(
    table: pd.DataFrame, interval: Interval, published: Interval | None, scale: alt.Scale, y: alt.Y
) -> alt.LayerChart:
    x = theme.axis(alt.X, "phi", scale=scale)
    binned = theme.axis(alt.X, "phi", scale=scale, bin="binned")
    bars = alt.Chart(table).mark_bar(color=SPLIT_COLORS[0], opacity=0.8, binSpacing=1)
    low, high = scale["domain"]
    limits = [value for value in ENDS if low <= value <= high]
    dashed = _rules(interval, x, strokeDash=[5, 3], strokeWidth=1.5)
    layers = [bars.encode(binned, y, x2="phi_end"), dashed, _rules(limits, x)]
    if published:
        band = alt.Chart(pd.DataFrame({"phi": [published[0]], "end": [published[1]]}))
        layers.insert(0, band.mark_rect(color=theme.INK, opacity=0.13).encode(x, x2="end"))
    return alt.layer(*layers)


def _rules(values: Iterable[float], x: alt.X, **style: Any) -> alt.Chart:
    rows = pd.DataFrame({"phi": list(values)}, dtype=float)
    return alt.Chart(rows).mark_rule(**style).encode(x)


def _marked(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of the lowest objective, and of φ = 0 and φ = 1 if the profile contains them."""
    phi = table["phi"].to_numpy()
    ends = [i for end in ENDS for i in np.flatnonzero(np.isclose(phi, end, atol=1e-9))]
    rows = table.iloc[[*ends, table["objective"].to_numpy().argmin()]].drop_duplicates("phi")
    rows = rows.assign(phi=rows["phi"].round(9) + 0.0)  # no -0
    text = "φ = " + rows["phi"].map("{:.3g}".format) + "\nR² " + rows["r2"].map("{:.4f}".format)
    return rows.assign(text=text).sort_values("phi")


def _labels(marked: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Texts of the marked rows: beside the curve at its ends, above it at the minimum."""
    places: list[tuple[pd.Series, Any, dict[str, Any]]] = [
        (marked["phi"] == 0, y, {"align": "left", "dx": 9, "dy": -16}),
        (marked["phi"] == 1, y, {"align": "right", "dx": -24, "dy": 4}),
        (~marked["phi"].isin(ENDS), alt.value(90), {"align": "left", "dx": 7}),
    ]
    return [
        alt.Chart(marked[rows])
        .mark_text(baseline="middle", lineBreak="\n", **style)
        .encode(x=x, y=height, text="text:N")
        for rows, height, style in places
    ]


def _bootstrap_description(
    bootstraps: dict[str, Bootstrap], intervals: dict[str, Interval], published: Interval | None
) -> theme.Sentences:
    yield "Distribution of φ over bootstrap resamples."
    for label, found in bootstraps.items():
        low, high = intervals[label]
        yield (
            f"{label}: {found.resamples} resamples of {found.n_units} units ({found.method}), "
            f"median {np.median(found.draws['phi']):.3f}, {found.level:.0%} interval {low:.3f} to "
            f"{high:.3f}; {found.touched(0)} reach 0 and {found.touched(1)} reach 1."
        )
    if published:
        yield f"Published: {parts.spread(published)}."


def _split_description(table: pd.DataFrame) -> theme.Sentences:
    yield "φ of each study by how parameters are split into once-used and recurring."
    for study, rows in table.groupby("study", sort=False):
        values = parts.listed(f"{row.split} {row.phi:.3f}" for row in rows.itertuples())
        published = rows["published"].dropna()
        known = f"; published {published.iloc[0]:.3g}" if len(published) else ""
        yield f"{study}: {values}{known}."


def _profile_description(marked: pd.DataFrame) -> str:
    rows = parts.listed(
        f"{row.relative_objective:.2f} at φ = {row.phi:.3g} (R² {row.r2:.4f})"
        for row in marked.itertuples()
    )
    return f"Objective of the law refitted with φ held, relative to the lowest, against φ: {rows}."
