"""φ and its uncertainty: resamples, the objective around the fit, studies under each split."""

import altair as alt
import numpy as np
import pandas as pd

from looped.figures import parts, theme
from looped.fitting.result import Bootstrap
from looped.quantities import QUANTITIES

BINS = 40
FENCE = 6.0
"""Interquartile ranges beyond the quartiles up to which resamples are in view."""

ENDS = (0, 1)
"""φ of a recurrence worth nothing, and of one worth a unique block."""

ROW_HEIGHT = 52
TWO_LINES = (
    "length(datum.label) > 20"
    " ? split(replace(datum.label, regexp('(.{10,}?) '), '$1|'), '|') : datum.label"
)
"""Label expression that breaks a long name of a study at a space, to leave a phone room to plot."""

SPLIT_COLORS = ["#0a7fc2", "#d55e00", "#009e73", "#b05cb4"]


def bootstrap_histogram(
    bootstraps: dict[str, Bootstrap], published: tuple[float, float] | None = None
):
    """Distribution of φ over the resamples, a panel a bootstrap, with the interval's ends.

    φ = 0 and φ = 1 are marked where they are near enough to be in view.

    Args:
        bootstraps: label -> bootstrap.
        published: the published interval, drawn as a band in every panel.

    Raises:
        ValueError: no bootstrap, or one that held φ.
    """
    if not bootstraps:
        raise ValueError("figure bootstrap_histogram: no bootstrap; give {label: bootstrap}")
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
    panels = [
        _distribution(tables[label], intervals[label], published, scales).properties(
            title=alt.Title(label, subtitle=_interval_text(found, intervals[label])),
            width=560,
            height=130 if len(bootstraps) > 1 else 220,
        )
        for label, found in bootstraps.items()
    ]
    unseen = sum(int(((phi < low) | (phi > high)).sum()) for phi in draws.values())
    outside = f"{unseen} resamples outside the view" if unseen else ""
    key = parts.joined("dashed: interval", "band: published" if published else "", outside)
    return theme.finish(
        alt.concat(*panels, columns=1).properties(title=parts.note(key)),
        name="bootstrap-phi",
        description=_bootstrap_description(bootstraps, intervals, published),
        data=pd.concat(tables.values(), ignore_index=True),
    )


def split_phi(table: pd.DataFrame):
    """φ of each study under each split, with the published value as an upright line.

    Args:
        table: one row a (study, split): study, split, phi, published (missing where there is none).

    Raises:
        ValueError: a column or all rows are missing.
    """
    columns = ["study", "split", "phi", "published"]
    parts.require(table, columns, "split_phi", may_miss=("published",))
    studies, splits = (list(dict.fromkeys(table[name])) for name in ("study", "split"))
    ticks = alt.Axis(tickCount=6)
    x = theme.axis(alt.X, "phi", axis=ticks)
    y = alt.Y(
        "study:N", sort=studies, title=None, axis=alt.Axis(labelExpr=TWO_LINES, labelLimit=150)
    )
    offset = alt.YOffset("split:N", sort=splits)
    colors = alt.Scale(domain=splits, range=_cycled(SPLIT_COLORS, len(splits)))
    dots = (
        alt.Chart(table)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=x,
            y=y,
            yOffset=offset,
            color=alt.Color("split:N", scale=colors, title=None),
            shape=alt.Shape("split:N", scale=alt.Scale(domain=splits), title=None),
            tooltip=parts.tooltips(table, ["study", "split", "phi", "published"]),
        )
    )
    lines = (
        alt.Chart(table.dropna(subset=["published"]).drop_duplicates("study"))
        .mark_tick(color=theme.INK, thickness=1.5, size=ROW_HEIGHT * 0.85)
        .encode(x=theme.axis(alt.X, "published", title=QUANTITIES["phi"].axis, axis=ticks), y=y)
    )
    return theme.finish(
        alt.layer(lines, dots).properties(
            height=ROW_HEIGHT * len(studies), title=parts.note("splits · upright line: published")
        ),
        name="split-phi",
        description=_split_description(table, studies),
        data=table,
    )


def profile(profile: pd.DataFrame):
    """The objective, refitted with φ held at each value, relative to its minimum.

    Args:
        profile: one row a held φ: phi, objective, r2.

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
    points = (
        alt.Chart(table)
        .mark_point(filled=True, size=30, color=SPLIT_COLORS[0], opacity=1)
        .encode(x=x, y=y, tooltip=details)
    )
    return theme.finish(
        alt.layer(rules, line, points, *_labels(marked)).properties(title=note),
        name="profile",
        description=_profile_description(marked),
        data=table,
    )


def _bulk(phi) -> np.ndarray:
    """The resamples that are in view: without the few that run away for want of an anchor."""
    first, third = np.quantile(phi, [0.25, 0.75])
    reach = FENCE * (third - first)
    return phi[(phi >= first - reach) & (phi <= third + reach)]


def _view(values) -> tuple[float, float]:
    """The range of the values and a little more, stretched to 0 or 1 where these are near."""
    low, high = min(map(np.min, values)), max(map(np.max, values))
    margin = 0.15 * (high - low) or 0.01
    low, high = float(low - margin), float(high + margin)
    return (min(low, -0.01) if low < 0.05 else low), (max(high, 1.01) if high > 0.95 else high)


def _histogram(label, phi, edges) -> pd.DataFrame:
    counts, _ = np.histogram(phi, edges)
    return pd.DataFrame(
        {"label": label, "phi": edges[:-1], "phi_end": edges[1:], "n_resamples": counts}
    )


def _distribution(table, interval, published, scales) -> alt.LayerChart:
    x = theme.axis(alt.X, "phi", scale=scales["x"])
    binned = theme.axis(alt.X, "phi", scale=scales["x"], bin="binned")
    bars = (
        alt.Chart(table)
        .mark_bar(color=SPLIT_COLORS[0], opacity=0.8, binSpacing=1)
        .encode(
            x=binned,
            x2="phi_end",
            y=alt.Y("n_resamples:Q", title="Resamples", scale=scales["y"]),
        )
    )
    low, high = scales["x"]["domain"]
    limits = [value for value in ENDS if low <= value <= high]
    layers = [bars, _rules(interval, x, strokeDash=[5, 3], strokeWidth=1.5), _rules(limits, x)]
    if published:
        band = pd.DataFrame({"phi": [published[0]], "end": [published[1]]})
        layers.insert(
            0, alt.Chart(band).mark_rect(color=theme.INK, opacity=0.13).encode(x=x, x2="end")
        )
    return alt.layer(*layers)


def _rules(values, x, **style) -> alt.Chart:
    return (
        alt.Chart(pd.DataFrame({"phi": list(values)}, dtype=float)).mark_rule(**style).encode(x=x)
    )


def _interval_text(found, interval) -> str:
    low, high = interval
    return f"{found.level:.0%} [{low:.3f}, {high:.3f}] · {found.resamples} {found.method} resamples"


def _marked(table) -> pd.DataFrame:
    """The rows of φ = 0, of the lowest objective and of φ = 1, as far as the profile has them."""
    phi = table["phi"].to_numpy()
    ends = [i for end in ENDS for i in np.flatnonzero(np.isclose(phi, end, atol=1e-9))]
    rows = table.iloc[[*ends, table["objective"].to_numpy().argmin()]].drop_duplicates("phi")
    rows = rows.assign(phi=rows["phi"].round(9) + 0.0)  # no -0
    text = "φ = " + rows["phi"].map("{:.3g}".format) + "\nR² " + rows["r2"].map("{:.4f}".format)
    return rows.assign(text=text).sort_values("phi")


def _labels(marked) -> list[alt.Chart]:
    """The marked rows' texts: at the ends beside the curve, at the minimum high in its valley."""
    ends = marked["phi"].isin(ENDS)
    y = theme.axis(alt.Y, "relative_objective")
    return [
        _text(marked[marked["phi"] == 0], y, align="left", dx=9, dy=-16),
        _text(marked[marked["phi"] == 1], y, align="right", dx=-24, dy=4),
        _text(marked[~ends], alt.value(90), align="left", dx=7),
    ]


def _text(rows, y, **style) -> alt.Chart:
    text = alt.Chart(rows).mark_text(baseline="middle", lineBreak="\n", **style)
    return text.encode(x=theme.axis(alt.X, "phi"), y=y, text="text:N")


def _cycled(colors, n) -> list[str]:
    return [colors[i % len(colors)] for i in range(n)]


def _bootstrap_description(bootstraps, intervals, published) -> str:
    text = "Distribution of φ over bootstrap resamples."
    for label, found in bootstraps.items():
        low, high = intervals[label]
        text += (
            f" {label}: {found.resamples} resamples of {found.n_units} units ({found.method}), "
            f"median {np.median(found.draws['phi']):.3f}, {found.level:.0%} interval {low:.3f} to "
            f"{high:.3f}; {found.touched(0)} reach 0 and {found.touched(1)} reach 1."
        )
    return text + (f" Published: {parts.spread(published)}." if published else "")


def _split_description(table, studies) -> str:
    text = "φ of each study by how parameters are split into once-used and recurring."
    for study in studies:
        rows = table[table["study"] == study]
        values = [f"{row.split} {row.phi:.3f}" for row in rows.itertuples()]
        text += f" {study}: {parts.listed(values)}"
        published = rows["published"].dropna()
        text += f"; published {published.iloc[0]:.3g}." if len(published) else "."
    return text


def _profile_description(marked) -> str:
    rows = [
        f"{row.relative_objective:.2f} at φ = {row.phi:.3g} (R² {row.r2:.4f})"
        for row in marked.itertuples()
    ]
    return (
        "Objective of the law refitted with φ held, relative to the lowest, against φ: "
        f"{parts.listed(rows)}."
    )
