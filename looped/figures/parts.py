"""What several figures share: checked input, marks of runs, tooltips, notes and phrases."""

import altair as alt
import pandas as pd

from looped.figures import theme
from looped.fitting.result import FitResult
from looped.quantities import Quantity, quantity

FLAG_REASONS = {
    "star": "partly under a star in the source figure",
    "overlap": "touches another circle in the source figure",
    "hidden": "hardly visible in the source figure",
}
"""What the flags of digitised runs mean; other flags are shown as they are."""

RUN_FIELDS = ["label", "case", "n_recur", "d_model", "budget", "n_params", "n_tokens", "val_loss"]
RUN_FIELDS += ["val_loss_se", "predicted", "residual", "care"]


def require(
    frame: pd.DataFrame, columns: list[str], figure: str, may_miss: tuple[str, ...] = ()
) -> None:
    """Refuse a table that the figure cannot draw.

    Args:
        frame: the table.
        columns: that the figure draws.
        figure: its name, for the message.
        may_miss: columns whose values may be missing in some rows.

    Raises:
        ValueError: no rows, a column that is not there, or one with missing values.
    """
    if frame.empty:
        raise ValueError(f"figure {figure}: the table has no rows; check how it was selected")
    missing = [
        name
        for name in columns
        if name not in frame or (name not in may_miss and frame[name].isna().any())
    ]
    if missing:
        raise ValueError(
            f"figure {figure} needs {columns} in every row, but {missing} are missing; "
            f"the table has {list(frame)}: add them, or leave out the rows without them"
        )


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The table as a chart can hold it: missing text is empty, since JSON has no NaN."""
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.fillna(dict.fromkeys(texts, ""))


def tooltips(frame: pd.DataFrame, fields: list[str]) -> list[alt.Tooltip]:
    """A tooltip line for each of the fields that the table has a value for."""
    shown = [name for name in fields if name in frame and frame[name].notna().any()]
    return [_tooltip(name, frame[name]) for name in shown]


def _tooltip(name: str, column: pd.Series) -> alt.Tooltip:
    known = quantity(name) or Quantity(name.replace("_", " "))
    if not known.format or not pd.api.types.is_numeric_dtype(column):
        return alt.Tooltip(f"{name}:N", title=known.axis)
    return alt.Tooltip(f"{name}:Q", title=known.axis, format=known.format)


def drawable(runs: pd.DataFrame) -> pd.DataFrame:
    """The columns of the runs that are drawn or shown on pointing, with `care` from the flags."""
    shown = runs[[name for name in RUN_FIELDS if name in runs]]
    if "flag" not in runs:
        return shown
    flags = runs["flag"].fillna("").astype(str)
    return shown.assign(flag=flags, care=[_reason(flag) for flag in flags])


def _reason(flag: str) -> str:
    return "; ".join(FLAG_REASONS.get(part, part) for part in flag.split("+")) if flag else "no"


def at_minimum(frame: pd.DataFrame, columns: list[str], figure: str) -> pd.DataFrame:
    """Minima or optima under the names of runs (n_params for n_params_star), without refused cells.

    Raises:
        ValueError: a column or all rows are missing.
    """
    may_miss = tuple(name for name in columns if name not in ("n_recur", "budget"))
    require(frame, columns, figure, may_miss)
    found = frame.dropna(subset=list(may_miss))
    return found.rename(columns=lambda name: name.removesuffix("_star"))


def run_points(runs: pd.DataFrame, x, y, color: alt.Color, chart=None) -> alt.Chart:
    """One circle a run, hollow where the run is flagged, with the run's details on pointing.

    Args:
        runs: rows of `drawable`, for the tooltip.
        x: channel.
        y: channel.
        color: channel.
        chart: what holds the rows, if not `runs` alone.
    """
    same = {name: color[name] for name in ("scale", "title", "legend")}
    fill = alt.Fill(color["shorthand"], **same)
    solid = alt.condition("datum.flag", alt.value(0), alt.value(1))
    return (
        (alt.Chart(plain(runs)) if chart is None else chart)
        .mark_point(filled=False, size=40, strokeWidth=1.5, opacity=0.9)
        .encode(
            x=x,
            y=y,
            color=color,
            fill=fill,
            fillOpacity=solid,
            tooltip=tooltips(runs, RUN_FIELDS),
        )
    )


def recur_lines(n_recurs) -> dict[str, alt.Color | alt.StrokeDash]:
    """Colour and dash of lines by number of recurrences, with one legend of short lines."""
    legend = alt.Legend(labelExpr=theme.RECUR_LABEL, columns=4, symbolType="stroke", symbolSize=300)
    return {
        "color": theme.recur_color(n_recurs, legend=legend),
        "strokeDash": theme.recur_dash(n_recurs, legend=legend),
    }


def note(*lines: str) -> alt.Title:
    """Lines above the chart that say what it rests on (source, split, φ) and what marks mean."""
    return alt.Title([line for line in lines if line], anchor="start", fontSize=12, offset=8)


def joined(*phrases: str) -> str:
    """Phrases of one line of a note; the empty ones are left out."""
    return " · ".join(phrase for phrase in phrases if phrase)


def split_note(optimal: pd.DataFrame) -> str:
    """The split that optima of a law rest on, where their table names it."""
    splits = sorted(optimal["split"].dropna().unique()) if "split" in optimal else []
    return f"split {listed(splits)}" if splits else ""


def source_note(runs: pd.DataFrame) -> str:
    """Where the runs come from, if the table says so: "digitised runs"."""
    sources = sorted(runs["source"].dropna().unique()) if "source" in runs else []
    return f"{listed(sources)} runs" if sources else ""


def runs_prose(runs: pd.DataFrame) -> str:
    """How many runs of which source: "116 digitised runs"."""
    return f"{len(runs)} {source_note(runs) or 'runs'}"


def panel_width(n_panels: int) -> int:
    """Width (pixels) of one of so many panels, two in a row, until the page sizes them."""
    return 560 if n_panels == 1 else 260


def flag_note(points: pd.DataFrame) -> str:
    """The meaning of hollow circles, if there are any."""
    return "hollow: flagged" if "flag" in points and points["flag"].ne("").any() else ""


def fit_note(fit: FitResult) -> str:
    """The convention and the exponent of a fit: "split fitted · φ = 0.459"."""
    return joined(*_fit_phrases(fit))


def fit_prose(fit: FitResult) -> str:
    """The same in a sentence: "joint law, split fitted, φ = 0.459"."""
    return ", ".join([f"{fit.law.name} law", *_fit_phrases(fit)])


def _fit_phrases(fit) -> list[str]:
    phrases = [f"split {fit.split}"] if fit.split else []
    if "phi" in fit.params:
        held = " held" if "phi" in fit.fixed else ""
        phrases.append(f"φ = {fit.params['phi']:.3f}{held}")
    return phrases


def recurrences(frame: pd.DataFrame) -> list[int]:
    """The numbers of recurrences in the table, ascending."""
    return sorted({int(n_recur) for n_recur in frame["n_recur"]})


def flops(budget: float) -> str:
    """A budget in prose: 4.64e17."""
    return f"{budget:.3g}".replace("e+", "e")


def listed(values) -> str:
    """Values in prose: "1, 2 and 8"."""
    *first, last = [str(value) for value in values]
    return f"{', '.join(first)} and {last}" if first else last


def counted(n: int, noun: str) -> str:
    """A number of things in prose: "1 budget", "6 budgets"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def spread(values, spec: str = ".3f") -> str:
    """A range in prose: "2.309 to 2.852", or the one value."""
    low, high = format(min(values), spec), format(max(values), spec)
    return low if low == high else f"{low} to {high}"
