"""The look of every figure: one set of colours, one vocabulary of axis titles, one finishing step.

A figure function builds an Altair chart from a table, takes axis titles from `QUANTITIES` and
colours from `recur_color` or `budget_color`, and hands the chart to `finish`, which adds what the
page needs: size, fonts, a description for those who cannot see it, and the data for download.

Text, axes and grid are drawn in the page's own text colour, so that one chart serves the light
and the dark page. The colours of marks have a contrast of at least 3 to 1 on both.
"""

import altair as alt
import numpy as np
import pandas as pd

from looped.quantities import QUANTITIES, quantity

RECUR_COLORS = {1: "#767f8c", 2: "#0a7fc2", 4: "#d55e00", 8: "#009e73"}
"""Colour of each number of recurrences; colour-blind readers can tell them apart."""

RECUR_DASHES = {1: [1, 0], 2: [8, 3], 4: [4, 3], 8: [2, 2]}
"""Dash of each number of recurrences, so that no line is told by colour alone."""

MORE_COLORS = ["#b05cb4", "#b8860b", "#cc4f80", "#5b6fe0", "#4d8a2f", "#a0664a"]
MORE_DASHES = [[6, 2, 2, 2], [10, 2], [3, 1], [8, 2, 2, 2, 2, 2], [5, 5], [1, 3]]
"""Colours and dashes of further numbers of recurrences, in ascending order, then from the first."""

BUDGET_COLORS = ["#5b6fe0", "#8e6bd8", "#b05cb4", "#cc4f80", "#d8603a", "#b8860b"]
"""Colours of the compute budgets, smallest first; more than six are blended from these."""

HEIGHT = 360
PANEL_HEIGHT = 240
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK = "currentColor"  # the page's text colour

CONFIG = {
    "background": "transparent",
    "font": FONT,
    "padding": {"left": 5, "top": 5, "right": 14, "bottom": 5},  # room for the last tick's label
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "gridColor": INK,
        "gridOpacity": 0.12,
        "domainOpacity": 0.6,
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelOverlap": True,
        "labelSeparation": 6,
    },
    # Above the plot: beside it a legend would be cut off on a phone.
    "legend": {
        "orient": "top",
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "symbolStrokeWidth": 2.5,
        "symbolSize": 80,
        "columns": 6,
    },
    "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 13, "title": None},
    "title": {"color": INK, "subtitleColor": INK, "fontSize": 14, "fontWeight": "normal"},
    "text": {"color": INK, "fontSize": 12},
    "rule": {"color": INK},
    "point": {"filled": True, "size": 55, "opacity": 0.9},
    "line": {"strokeWidth": 2},
}


RECUR_LABEL = "'r = ' + (datum.label)"  # the brackets count: Vega-Lite pastes a conditional in
"""Label expression that turns a value of n_recur into "r = 4", for legends and panel headers."""


def axis(channel, field: str, *, log: bool = False, **options):
    """A quantitative axis with the title of `QUANTITIES`, not forced to zero.

    Args:
        channel: `alt.X` or `alt.Y`.
        field: column drawn; its title is that of `QUANTITIES`, or the option `title`.
        log: logarithmic, with ticks written as 20M, 1B or, for compute, 1e18.
    """
    known = quantity(field)
    options.setdefault("title", known.axis if known else None)
    if options["title"] is None:
        raise ValueError(f"no axis title for {field!r}: add one to QUANTITIES, or pass title=")
    options.setdefault("scale", alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False))
    if log:
        options.setdefault("axis", alt.Axis(labelExpr=_TICK_LABEL))
    return channel(f"{field}:Q", **options)


_POWER_LABEL = (
    "datum.value >= 1e12 ? replace(format(datum.value, '.2~e'), '+', '') "
    ": replace(format(datum.value, '.3~s'), 'G', 'B')"
)
# Only 1, 2 and 5 of each decade: the other ticks stay without a label.
_DIGIT = "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))"
_TICK_LABEL = f"indexof([1, 2, 5], {_DIGIT}) < 0 ? '' : ({_POWER_LABEL})"


def recur_color(n_recurs, field: str = "n_recur", **options) -> alt.Color:
    """Colour by number of recurrences; 1, 2, 4 and 8 have the same in every figure.

    Args:
        n_recurs: the recurrences drawn; others than 1, 2, 4, 8 take further colours in order.
        field: column that holds them.
        options: of the channel, such as `legend=None`.
    """
    return alt.Color(f"{field}:N", **_recur_channel(n_recurs, RECUR_COLORS, MORE_COLORS, options))


def recur_dash(n_recurs, field: str = "n_recur", **options) -> alt.StrokeDash:
    """Dash by number of recurrences, chosen like the colour; both share one legend."""
    channel = _recur_channel(n_recurs, RECUR_DASHES, MORE_DASHES, options)
    return alt.StrokeDash(f"{field}:N", **channel)


def _recur_channel(n_recurs, known: dict, more: list, options: dict) -> dict:
    domain = sorted({int(n_recur) for n_recur in n_recurs})
    others = [n_recur for n_recur in domain if n_recur not in known]
    chosen = known | {n_recur: more[i % len(more)] for i, n_recur in enumerate(others)}
    legend = alt.Legend(labelExpr=RECUR_LABEL, columns=4)  # short labels: four fit on a phone
    defaults = {
        "scale": alt.Scale(domain=domain, range=[chosen[n_recur] for n_recur in domain]),
        "title": None,
        "legend": legend,
    }
    return defaults | options


def budget_color(budgets, field: str = "budget", **options) -> alt.Color:
    """Colour by compute budget, from the smallest of `budgets` (FLOPs) to the largest."""
    domain = sorted(set(budgets))
    scale = alt.Scale(domain=domain, range=_ramp(len(domain)))
    options.setdefault("legend", alt.Legend(labelExpr=_POWER_LABEL))
    return alt.Color(f"{field}:O", scale=scale, title=QUANTITIES["budget"].axis, **options)


def _ramp(n: int) -> list[str]:
    """`n` colours, evenly spaced along BUDGET_COLORS and blended between them."""
    parts = np.array([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in BUDGET_COLORS])
    at = np.linspace(0, len(parts) - 1, n)
    blends = np.stack([np.interp(at, range(len(parts)), part) for part in parts.T], axis=1)
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in blends.round().astype(int)]


def finish(chart, name: str, description: str, data: pd.DataFrame | None = None):
    """The chart as the page shows it: full width, the one style, a description, data to download.

    Args:
        chart: any Altair chart; a single plot fills the column, and the panels of an `alt.concat`
            or a facet with `columns` are sized by the page to share it.
        name: file name of the downloaded data, without suffix.
        description: what the chart shows, read aloud to those who cannot see it.
        data: the rows drawn, offered as CSV; None for a chart without data of its own.

    Raises:
        ValueError: the description is empty.
    """
    if not description.strip():
        raise ValueError(
            f"figure {name!r} has no description: say in a sentence what it shows, "
            "for readers who cannot see it"
        )
    about = {"name": name} if data is None else {"name": name, "csv": data.to_csv(index=False)}
    chart = chart.properties(
        description=" ".join(description.split()),
        usermeta={"looped": about, "embedOptions": {"renderer": "svg"}},
    )
    if _is_single_plot(chart):
        chart = _with_defaults(chart, width="container", height=HEIGHT)
    chart.config = alt.Config(**CONFIG)
    return chart


def _is_single_plot(chart) -> bool:
    """Whether Vega-Lite can stretch the chart to its container (it cannot stretch panels)."""
    if not isinstance(chart, alt.Chart | alt.LayerChart):
        return False
    encoding = getattr(chart, "encoding", alt.Undefined)
    channels = {} if encoding is alt.Undefined else encoding.to_dict(context={"data": None})
    return not channels.keys() & {"row", "column", "facet"}


def _with_defaults(chart, **properties):
    unset = {k: v for k, v in properties.items() if getattr(chart, k) is alt.Undefined}
    return chart.properties(**unset)
