"""φ and its uncertainty: resamples, profile of the objective, and φ under each split."""

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from looped.figures import parts, theme
from looped.fitting.result import Bootstrap
from looped.quantities import QUANTITIES

BINS = 40
FENCE = 6.0
"""Resamples farther from the quartiles than this many interquartile ranges are not drawn."""

ENDS = (0, 1)
"""φ if a recurrence is worth nothing, and φ if it is worth a unique block."""

ROW_HEIGHT = 52
TWO_LINES = (
    "length(datum.label) > 20"
    " ? split(replace(datum.label, regexp('(.{10,}?) '), '$1|'), '|') : datum.label"
)
"""Label expression that breaks a long name at a space, so that the plot has room on a phone."""

SPLIT_COLORS = theme.SERIES_COLORS[1:5]


def bootstrap_histogram(
    bootstraps: dict[str, Bootstrap], published: tuple[float, float] | None = None
) -> alt.ConcatChart:
    """Distribution of φ over the resamples and its interval, one panel per bootstrap.

    Lines mark φ = 0 and φ = 1 where they are in view.

    Args:
        bootstraps: label -> bootstrap.
        published: the published interval, for a band in every panel.

    Raises:
        ValueError: no bootstrap, or one with φ held.
    """
    parts.require_any(bootstraps, "bootstrap_histogram", "bootstrap", "{label: bootstrap}")
    intervals = {label: found.interval("phi") for label, found in bootstraps.items()}
    draws = {label: np.asarray(found.draws["phi"]) for label, found in bootstraps.items()}
    bulk = [_bulk(phi) for phi in draws.values()]
    low, high = _view([*bulk, *intervals.values(), *([published] if published else [])])
    edges = np.linspace(low, high, BINS + 1)
    tables = {label: _histogram(label, phi, edges) for label, phi in draws.items()}
    tallest = max(table["n_resamples"].max() for table in tables.values())
    scales = {
        "x": alt.Scale(domain=[low, high], nice=False, zero=False),
        "y": alt.Scale(domain=[0, 1.05 * int(tallest)]),
    }
    chart = parts.panels(
        [_distribution(tables[label], intervals[label], published, scales) for label in tables],
        [
            alt.Title(label, subtitle=_interval_text(found, intervals[label]))
            for label, found in bootstraps.items()
        ],
        columns=1,
        height=130 if len(bootstraps) > 1 else 220,
    )
    unseen = sum(int(((phi < low) | (phi > high)).sum()) for phi in draws.values())
    outside = f"{unseen} resamples outside the view" if unseen else ""
    key = parts.joined("dashed: interval", "band: published" if published else "", outside)
    return theme.finish(
        chart.properties(title=parts.note(key)),
        name="bootstrap-phi",
        description=_bootstrap_description(bootstraps, intervals, published),
        data=pd.concat(tables.values(), ignore_index=True),
    )


def split_phi(table: pd.DataFrame) -> alt.LayerChart:
    """φ of each study under each split, with the published value as a vertical line.

    Args:
        table: one row per (study, split): study, split, phi, published (may be missing).

    Raises:
        ValueError: a column or all rows are missing.
    """
    columns = ["study", "split", "phi", "published"]
    parts.require(table, columns, "split_phi", may_miss=("published",))
    studies, splits = (list(table[name].unique()) for name in ("study", "split"))
    ticks = alt.Axis(tickCount=6)
    x = theme.axis(alt.X, "phi", axis=ticks)
    y = alt.Y(
        "study:N", sort=studies, title=None, axis=alt.Axis(labelExpr=TWO_LINES, labelLimit=150)
    )
    dots = (
        alt.Chart(table)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=x,
            y=y,
            yOffset=alt.YOffset("split:N", sort=splits),
            color=theme.name_color("split", splits, SPLIT_COLORS),
            shape=alt.Shape("split:N", scale=alt.Scale(domain=splits), title=None),
            tooltip=parts.tooltips(table, columns),
        )
    )
    lines = (
        alt.Chart(table.dropna(subset=["published"]).drop_duplicates("study"))
        .mark_tick(color=theme.INK, thickness=1.5, size=ROW_HEIGHT * 0.85)
        .encode(x=theme.axis(alt.X, "published", title=QUANTITIES["phi"].axis, axis=ticks), y=y)
    )
    return theme.finish(
        alt.layer(lines, dots).properties(
            height=ROW_HEIGHT * len(studies), title=parts.note("splits · vertical line: published")
        ),
        name="split-phi",
        description=_split_description(table, studies),
        data=table,
    )


def profile(profile: pd.DataFrame) -> alt.LayerChart:
    """Objective of the fits with φ held at each value, relative to the lowest.

    Args:
        profile: one row per held φ: phi, objective, r2.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(profile, ["phi", "objective", "r2"], "profile")
    lowest = profile["objective"].min()
    table = profile.sort_values("phi").assign(relative_objective=lambda t: t["objective"] / lowest)
    marked = _marked(table)
    note = parts.note(parts.joined(parts.split_note(table), "other parameters refitted at each φ"))
    x = theme.axis(alt.X, "phi")
    y = theme.axis(alt.Y, "relative_objective")
    details = parts.tooltips(table, ["phi", "relative_objective", "r2"])
    line = alt.Chart(table).mark_line(color=SPLIT_COLORS[0]).encode(x=x, y=y)
    rules = alt.Chart(marked).mark_rule(strokeDash=[3, 3], opacity=0.6).encode(x=x)
    points = alt.Chart(table).mark_point(filled=True, size=30, color=SPLIT_COLORS[0], opacity=1)
    points = points.encode(x, y, tooltip=details)
    return theme.finish(
        alt.layer(rules, line, points, *_labels(marked)).properties(title=note),
        name="profile",
        description=_profile_description(marked),
        data=table,
    )


def _bulk(phi: np.ndarray) -> np.ndarray:
    """The resamples in view: without the few that lack the cells that determine φ."""
    first, third = np.quantile(phi, [0.25, 0.75])
    reach = FENCE * (third - first)
    return phi[(phi >= first - reach) & (phi <= third + reach)]


def _view(values: Sequence[Sequence[float] | np.ndarray]) -> tuple[float, float]:
    """Range of the values with a margin, extended to 0 or 1 if these are close."""
    low, high = min(map(np.min, values)), max(map(np.max, values))
    margin = 0.15 * (high - low) or 0.01
    low, high = float(low - margin), float(high + margin)
    return (min(low, -0.01) if low < 0.05 else low), (max(high, 1.01) if high > 0.95 else high)


def _histogram(label: str, phi: np.ndarray, edges: np.ndarray) -> pd.DataFrame:
    counts, _ = np.histogram(phi, edges)
    return pd.DataFrame(
        {"label": label, "phi": edges[:-1], "phi_end": edges[1:], "n_resamples": counts}
    )


def _distribution(
    table: pd.DataFrame,
    interval: tuple[float, float],
    published: tuple[float, float] | None,
    scales: dict[str, alt.Scale],
) -> alt.LayerChart:
    x = theme.axis(alt.X, "phi", scale=scales["x"])
    binned = theme.axis(alt.X, "phi", scale=scales["x"], bin="binned")
    y = alt.Y("n_resamples:Q", title="Resamples", scale=scales["y"])
    bars = alt.Chart(table).mark_bar(color=SPLIT_COLORS[0], opacity=0.8, binSpacing=1)
    bars = bars.encode(x=binned, x2="phi_end", y=y)
    low, high = scales["x"]["domain"]
    limits = [value for value in ENDS if low <= value <= high]
    layers = [bars, _rules(interval, x, strokeDash=[5, 3], strokeWidth=1.5), _rules(limits, x)]
    if published:
        band = pd.DataFrame({"phi": [published[0]], "end": [published[1]]})
        rect = alt.Chart(band).mark_rect(color=theme.INK, opacity=0.13)
        layers.insert(0, rect.encode(x=x, x2="end"))
    return alt.layer(*layers)


def _rules(values: Iterable[float], x: alt.X, **style: Any) -> alt.Chart:
    rows = pd.DataFrame({"phi": list(values)}, dtype=float)
    return alt.Chart(rows).mark_rule(**style).encode(x=x)


def _interval_text(found: Bootstrap, interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{found.level:.0%} [{low:.3f}, {high:.3f}] · {found.resamples} {found.method} resamples"


def _marked(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of the lowest objective, and of φ = 0 and φ = 1 if the profile contains them."""
    phi = table["phi"].to_numpy()
    ends = [i for end in ENDS for i in np.flatnonzero(np.isclose(phi, end, atol=1e-9))]
    rows = table.iloc[[*ends, table["objective"].to_numpy().argmin()]].drop_duplicates("phi")
    rows = rows.assign(phi=rows["phi"].round(9) + 0.0)  # no -0
    text = "φ = " + rows["phi"].map("{:.3g}".format) + "\nR² " + rows["r2"].map("{:.4f}".format)
    return rows.assign(text=text).sort_values("phi")


def _labels(marked: pd.DataFrame) -> list[alt.Chart]:
    """Texts of the marked rows: beside the curve at its ends, above it at the minimum."""
    ends = marked["phi"].isin(ENDS)
    y = theme.axis(alt.Y, "relative_objective")
    return [
        _text(marked[marked["phi"] == 0], y, align="left", dx=9, dy=-16),
        _text(marked[marked["phi"] == 1], y, align="right", dx=-24, dy=4),
        _text(marked[~ends], alt.value(90), align="left", dx=7),
    ]


def _text(rows: pd.DataFrame, y: Any, **style: Any) -> alt.Chart:
    text = alt.Chart(rows).mark_text(baseline="middle", lineBreak="\n", **style)
    return text.encode(x=theme.axis(alt.X, "phi"), y=y, text="text:N")


def _bootstrap_description(
    bootstraps: dict[str, Bootstrap],
    intervals: dict[str, tuple[float, float]],
    published: tuple[float, float] | None,
) -> str:
    text = "Distribution of φ over bootstrap resamples."
    for label, found in bootstraps.items():
        low, high = intervals[label]
        text += (
            f" {label}: {found.resamples} resamples of {found.n_units} units ({found.method}), "
            f"median {np.median(found.draws['phi']):.3f}, {found.level:.0%} interval {low:.3f} to "
            f"{high:.3f}; {found.touched(0)} reach 0 and {found.touched(1)} reach 1."
        )
    return text + (f" Published: {parts.spread(published)}." if published else "")


def _split_description(table: pd.DataFrame, studies: list[str]) -> str:
    text = "φ of each study by how parameters are split into once-used and recurring."
    for study in studies:
        rows = table[table["study"] == study]
        values = [f"{row.split} {row.phi:.3f}" for row in rows.itertuples()]
        text += f" {study}: {parts.listed(values)}"
        published = rows["published"].dropna()
        text += f"; published {published.iloc[0]:.3g}." if len(published) else "."
    return text


def _profile_description(marked: pd.DataFrame) -> str:
    rows = [
        f"{row.relative_objective:.2f} at φ = {row.phi:.3g} (R² {row.r2:.4f})"
        for row in marked.itertuples()
    ]
    return (
        "Objective of the law refitted with φ held, relative to the lowest, against φ: "
        f"{parts.listed(rows)}."
    )
