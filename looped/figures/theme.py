"""The theme of every figure: colours, axis titles and the finishing step.

A figure function builds an Altair chart from a table, takes axis titles from `QUANTITIES` and
colours from `recur_color`, `budget_color` or `name_color`, and passes the chart to `finish`, which
adds size, fonts, notes, a description for readers who cannot see the chart, and a download.

Text, axes and grid have the text colour of the page, so that one chart serves the light and the
dark page. The colours of marks have a contrast of at least 3 to 1 on both.
"""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any, TypeVar

import altair as alt
import numpy as np
import pandas as pd

from looped.quantities import QUANTITIES, quantity

Figure = TypeVar("Figure", bound=Any)
Sentences = Iterable[str]

# By r; colour-blind readers can distinguish the colours, and colour alone never identifies a line.
RECUR_COLORS = {1: "#767f8c", 2: "#0a7fc2", 4: "#d55e00", 8: "#009e73"}
RECUR_DASHES = {1: [1, 0], 2: [8, 3], 4: [4, 3], 8: [2, 2]}
# Of other r, in ascending order; they repeat.
MORE_COLORS = ["#b05cb4", "#b8860b", "#cc4f80", "#5b6fe0", "#4d8a2f", "#a0664a"]
MORE_DASHES = [[6, 2, 2, 2], [10, 2], [3, 1], [8, 2, 2, 2, 2, 2], [5, 5], [1, 3]]
# Of names (quantities, sections, splits), in the order of the table; they repeat.
SERIES_COLORS = [*RECUR_COLORS.values(), *MORE_COLORS[:4]]
# Of compute budgets, smallest first; others are blended from these.
BUDGET_COLORS = ["#5b6fe0", "#8e6bd8", "#b05cb4", "#cc4f80", "#d8603a", "#b8860b"]

HEIGHT = 360
PANEL_HEIGHT = 240
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK = "currentColor"  # the page's text colour

_INKED = {"labelColor": INK, "titleColor": INK}
_LINES = dict.fromkeys(("domainColor", "tickColor", "gridColor"), INK)
_FAINT = {"domainOpacity": 0.6, "gridOpacity": 0.12}
_TEXT = {"labelFontSize": 12, "titleFontWeight": "normal"}
_TICKS = {"titlePadding": 8, "labelOverlap": True, "labelSeparation": 6}
_SYMBOLS = {"symbolStrokeWidth": 2.5, "symbolSize": 80, "columns": 6}

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "padding": {"left": 5, "top": 5, "right": 14, "bottom": 5},  # room for the last tick's label
    "view": {"stroke": None},
    "axis": _INKED | _LINES | _FAINT | _TEXT | _TICKS | {"titleFontSize": 13},
    # Above the plot: beside it a legend would be cut off on a phone.
    "legend": _INKED | _TEXT | _SYMBOLS | {"orient": "top", "titleFontSize": 12},
    "header": _INKED | {"labelFontSize": 13, "title": None},
    "title": {"color": INK, "subtitleColor": INK, "fontSize": 14, "fontWeight": "normal"},
    "text": {"color": INK, "fontSize": 12},
    "rule": {"color": INK},
    "point": {"filled": True, "size": 55, "opacity": 0.9},
    "line": {"strokeWidth": 2},
}

# "r = 4" in legends and headers; the brackets are for a conditional that Vega-Lite inserts.
RECUR_LABEL = "'r = ' + (datum.label)"
_POWER_LABEL = (
    "datum.value >= 1e12 ? replace(format(datum.value, '.2~e'), '+', '') "
    ": replace(format(datum.value, '.3~s'), 'G', 'B')"
)
# Only 1, 2 and 5 of each decade have a label.
_DIGIT = "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))"
_TICK_LABEL = f"indexof([1, 2, 5], {_DIGIT}) < 0 ? '' : ({_POWER_LABEL})"


def axis(
    channel: Any, field: str, *, like: str | None = None, log: bool = False, **options: Any
) -> Any:
    """Quantitative axis with the title of `QUANTITIES`; it need not include zero.

    Args:
        channel: `alt.X` or `alt.Y`.
        field: column drawn; its title is that of `QUANTITIES`, or the option `title`.
        like: quantity whose title the axis takes in place of that of the field.
        log: logarithmic, with ticks such as 20M, 1B or, for compute, 1e18.

    Raises ValueError if neither `QUANTITIES` nor the options have a title.
    """
    known = quantity(like or field)
    options.setdefault("title", known.axis if known else None)
    if options["title"] is None:
        raise ValueError(f"no axis title for {field!r}: add one to QUANTITIES, or pass title=")
    options.setdefault("scale", alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False))
    if log:
        options.setdefault("axis", alt.Axis(labelExpr=_TICK_LABEL))
    return channel(f"{field}:Q", **options)


def recur_color(n_recurs: Iterable[int], **options: Any) -> alt.Color:
    """Colour by n_recur; 1, 2, 4 and 8 have the same colour in every figure, others `MORE_COLORS`.

    The options are those of the channel, such as `legend=None`.
    """
    return alt.Color("n_recur:N", **_recur_channel(n_recurs, RECUR_COLORS, MORE_COLORS) | options)


def recur_dash(n_recurs: Iterable[int], **options: Any) -> alt.StrokeDash:
    """Dash by n_recur, in analogy to `recur_color`; both share one legend."""
    dashes = _recur_channel(n_recurs, RECUR_DASHES, MORE_DASHES)
    return alt.StrokeDash("n_recur:N", **dashes | options)


def _recur_channel(
    n_recurs: Iterable[int], known: dict[int, Any], more: Sequence[Any]
) -> dict[str, Any]:
    domain = sorted({int(n_recur) for n_recur in n_recurs})
    others = [n_recur for n_recur in domain if n_recur not in known]
    chosen = known | dict(zip(others, cycle(more), strict=False))
    scale = alt.Scale(domain=domain, range=[chosen[n_recur] for n_recur in domain])
    legend = alt.Legend(labelExpr=RECUR_LABEL, columns=4)  # short labels: four fit on a phone
    return {"scale": scale, "title": None, "legend": legend}


def name_color(
    field: str, names: Sequence[str], colors: Sequence[str] = SERIES_COLORS, **options: Any
) -> alt.Color:
    """Colour by a column of names, in the order of `names`."""
    scale = alt.Scale(domain=list(names), range=[c for _, c in zip(names, cycle(colors))])
    return alt.Color(f"{field}:N", scale=scale, title=None, **options)


def budget_color(budgets: Iterable[float]) -> alt.Color:
    """Colour by compute budget, from the smallest of `budgets` (FLOPs) to the largest."""
    domain = sorted(set(budgets))
    scale = alt.Scale(domain=domain, range=_ramp(len(domain)))
    legend = alt.Legend(labelExpr=_POWER_LABEL)
    return alt.Color("budget:O", scale=scale, legend=legend, title=QUANTITIES["budget"].axis)


def _ramp(n: int) -> list[str]:
    """`n` colours, evenly spaced along BUDGET_COLORS: Vega-Lite blends no ordinal colours."""
    parts = np.array([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in BUDGET_COLORS])
    at = np.linspace(0, len(parts) - 1, n)
    blends = np.stack([np.interp(at, range(len(parts)), part) for part in parts.T], axis=1)
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in blends.round().astype(int)]


def finish(
    chart: Figure, name: str, text: str | Sentences, data: pd.DataFrame, notes: Sequence = ()
) -> Figure:
    """The chart for a page: full width, theme, notes, description, and data for download.

    Args:
        chart: any Altair chart. A single plot fills the column; the page sizes the panels of an
            `alt.concat`, or of a facet with `columns`, so that they share it.
        name: file name of the download, without suffix.
        text: what the chart shows, for readers who cannot see it.
        data: the rows drawn, for download as CSV.
        notes: lines above the chart, each a list of phrases: data and fit (source, split, φ),
            meaning of marks; empty phrases are left out.

    Raises ValueError if the description is empty.
    """
    description = " ".join((text if isinstance(text, str) else " ".join(text)).split())
    if not description:
        raise ValueError(
            f"figure {name!r} has no description: write a sentence that says what it shows, "
            "for readers who cannot see it"
        )
    about = {"name": name, "csv": data.to_csv(index=False)}
    usermeta = {"looped": about, "embedOptions": {"renderer": "svg"}}
    chart = chart.properties(description=description, usermeta=usermeta)
    if notes:
        lines = [" · ".join(filter(None, phrases)) for phrases in notes]
        title = alt.Title([line for line in lines if line], anchor="start", fontSize=12, offset=8)
        chart = chart.properties(title=title)
    if _is_single_plot(chart):
        sizes = {"width": "container", "height": HEIGHT}
        unset = {k: size for k, size in sizes.items() if getattr(chart, k) is alt.Undefined}
        chart = chart.properties(**unset)
    chart.config = alt.Config(**CONFIG)
    return chart


def _is_single_plot(chart: Any) -> bool:
    """True if Vega-Lite can stretch the chart to its container; it cannot stretch panels."""
    encoding = getattr(chart, "encoding", None)
    facets = [getattr(encoding, name, alt.Undefined) for name in ("row", "column", "facet")]
    unset = all(facet is alt.Undefined for facet in facets)
    return unset and isinstance(chart, alt.Chart | alt.LayerChart)
