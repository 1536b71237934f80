"""Parts of several figures: checks of input, marks of runs, panels, tooltips, phrases."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from looped import errors
from looped.figures import theme
from looped.fitting.result import FitResult
from looped.quantities import Quantity, quantity

# Flag of a digitised run -> its meaning; other flags are shown unchanged.
FLAG_REASONS = {
    "": "no",
    "star": "partly under a star in the source figure",
    "overlap": "touches another circle in the source figure",
    "hidden": "hardly visible in the source figure",
}
RUN_FIELDS = ["label", "case", "n_recur", "d_model", "budget", "n_params", "n_tokens", "val_loss"]
RUN_FIELDS += ["val_loss_se", "predicted", "residual", "care"]


def require(
    frame: pd.DataFrame, columns: Sequence[str], figure: str, may_miss: Sequence[str] = ()
) -> None:
    """Refuse, by ValueError, a table without rows, or without a column or value that is drawn.

    Columns in `may_miss` may lack values in some rows.
    """
    if frame.empty:
        raise ValueError(f"figure {figure}: the table has no rows; check how they were selected")
    errors.require(frame, columns, f"figure {figure}", may_miss)


def require_any(results: Collection[object], figure: str, noun: str, example: str) -> None:
    """Refuse a figure without anything to draw. Raises ValueError, whose message has `example`."""
    if not results:
        raise ValueError(f"figure {figure}: got no {noun}, expected at least one; pass {example}")


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with empty strings for missing text, since JSON has no NaN."""
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.fillna(dict.fromkeys(texts, ""))


def tooltips(frame: pd.DataFrame, fields: Sequence[str]) -> list[alt.Tooltip]:
    """A tooltip line for each field that has a value in the table."""
    shown = [name for name in fields if name in frame and frame[name].notna().any()]
    return [_tooltip(name, frame[name]) for name in shown]


def _tooltip(name: str, column: pd.Series) -> alt.Tooltip:
    about = quantity(name) or Quantity(name.replace("_", " "))
    if not about.format or not pd.api.types.is_numeric_dtype(column):
        return alt.Tooltip(f"{name}:N", title=about.axis)
    return alt.Tooltip(f"{name}:Q", title=about.axis, format=about.d3)


def drawable(runs: pd.DataFrame) -> pd.DataFrame:
    """The columns of the runs for marks and tooltips, with `care` from the flags."""
    shown = runs[[name for name in RUN_FIELDS if name in runs]]
    if "flag" not in runs:
        return shown
    flags = runs["flag"].fillna("").astype(str)
    care = ["; ".join(FLAG_REASONS.get(part, part) for part in f.split("+")) for f in flags]
    return shown.assign(flag=flags, care=care)


def at_minimum(frame: pd.DataFrame, columns: Sequence[str], figure: str) -> pd.DataFrame:
    """Minima or optima with the column names of runs (n_params for n_params_star).

    Cells without a minimum are left out. Raises ValueError if a column or all rows are missing.
    """
    may_miss = [name for name in columns if name not in ("n_recur", "budget")]
    require(frame, columns, figure, may_miss)
    return frame.dropna(subset=may_miss).rename(columns=lambda name: name.removesuffix("_star"))


def run_points(
    runs: pd.DataFrame, x: alt.X, y: alt.Y, color: alt.Color, chart: alt.Chart | None = None
) -> alt.Chart:
    """One circle per run (of `drawable`), hollow where the run is flagged, with a tooltip.

    The data of `chart`, if there is one, include the runs.
    """
    fill = alt.Fill(**{name: color[name] for name in ("shorthand", "scale", "title", "legend")})
    solid = alt.condition("datum.flag", alt.value(0), alt.value(1))
    return (
        (alt.Chart(plain(runs)) if chart is None else chart)
        .mark_point(filled=False, size=40, strokeWidth=1.5, opacity=0.9)
        .encode(x, y, color, fill, fillOpacity=solid, tooltip=tooltips(runs, RUN_FIELDS))
    )


def recur_lines(n_recurs: Iterable[int]) -> dict[str, Any]:
    """Colour and dash of lines by number of recurrences, with one legend of short lines."""
    legend = alt.Legend(labelExpr=theme.RECUR_LABEL, columns=4, symbolType="stroke", symbolSize=300)
    color = theme.recur_color(n_recurs, legend=legend)
    return {"color": color, "strokeDash": theme.recur_dash(n_recurs, legend=legend)}


def symmetric_axis(table: pd.DataFrame, field: str) -> alt.Y:
    """Vertical axis that reaches as far below 0 as above it."""
    reach = table[field].abs().max()
    return theme.axis(alt.Y, field, scale=alt.Scale(domain=[-reach, reach], nice=True))


def zero_rule(**channel: Any) -> alt.Chart:
    """Line at 0 of an axis: `zero_rule(y=y)`."""
    field = _field(next(iter(channel.values())))
    return alt.Chart(pd.DataFrame({field: [0]})).mark_rule(opacity=0.6).encode(**channel)


def diagonal(ends: Sequence[float], x: alt.X, y: alt.Y, **style: Any) -> alt.Chart:
    """Line on which the values of both axes are equal."""
    line = alt.Chart(pd.DataFrame(dict.fromkeys([_field(x), _field(y)], ends)))
    return line.mark_line(color=theme.INK, strokeWidth=1.2, **style).encode(x, y)


def _field(channel: Any) -> str:
    return channel["shorthand"].removesuffix(":Q")


def panels(
    charts: Sequence, titles: Sequence = (), *, columns: int = 2, height: int = theme.PANEL_HEIGHT
) -> alt.ConcatChart:
    """Charts side by side under their titles (strings or `alt.Title`), in rows of `columns`."""
    columns = min(columns, len(charts))
    sized = [chart.properties(width=panel_width(columns), height=height) for chart in charts]
    if titles:
        sized = [chart.properties(title=t) for chart, t in zip(sized, titles, strict=True)]
    return alt.concat(*sized, columns=columns)


def panel_width(columns: int) -> int:
    """Width (pixels) of a panel until the page sizes it."""
    return 560 if columns == 1 else 260


def near(values: Any, fence: float) -> Any:
    """True within `fence` interquartile ranges of the quartiles, column by column of a table."""
    first, third = np.quantile(values, [0.25, 0.75], axis=0)
    reach = fence * (third - first)
    return (values >= first - reach) & (values <= third + reach)


def known(phrase: str, values: Iterable[object]) -> str:
    """The known values in a phrase with one {}: "split fitted"; empty if none is known."""
    names = sorted({str(value) for value in values if pd.notna(value)})
    return phrase.format(listed(names)) if names else ""


def source_note(runs: pd.DataFrame) -> str:
    """Source of the runs, if the table names it: "digitised runs"."""
    return known("{} runs", runs.get("source", ()))


def runs_prose(runs: pd.DataFrame) -> str:
    """Number and source of the runs: "116 digitised runs"."""
    return f"{len(runs)} {source_note(runs) or 'runs'}"


def flag_note(points: pd.DataFrame) -> str:
    """What hollow circles mean, if the figure has any."""
    return "hollow: flagged" if "flag" in points and points["flag"].ne("").any() else ""


def fit_phrases(fit: FitResult) -> list[str]:
    """Split and exponent of a fit: "split fitted", "φ = 0.459"."""
    phrases = [f"split {fit.split}"] if fit.split else []
    if "phi" in fit.params:
        held = " held" if "phi" in fit.fixed else ""
        phrases.append(f"φ = {fit.params['phi']:.3f}{held}")
    return phrases


def fit_prose(fit: FitResult) -> str:
    """Law, split and exponent of a fit, in prose: "joint law, split fitted, φ = 0.459"."""
    return ", ".join([f"{fit.law.name} law", *fit_phrases(fit)])


def recurrences(frame: pd.DataFrame) -> list[int]:
    """The numbers of recurrences in the table, ascending."""
    return sorted({int(n_recur) for n_recur in frame["n_recur"]})


def flops(budget: float) -> str:
    """A budget in prose: 4.64e17."""
    return f"{budget:.3g}".replace("e+", "e")


def listed(values: Iterable[object]) -> str:
    """Values in prose: "1, 2 and 8"."""
    *first, last = [str(value) for value in values]
    return f"{', '.join(first)} and {last}" if first else last


def counted(n: int, noun: str) -> str:
    """A count in prose: "1 budget", "6 budgets"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def spread(values: Collection[float], spec: str = ".3f") -> str:
    """A range in prose: "2.309 to 2.852"; a single value if both ends look the same."""
    low, high = format(min(values), spec), format(max(values), spec)
    return low if low == high else f"{low} to {high}"
