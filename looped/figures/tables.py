"""Numbered tables, and numbers for the prose, from the results of the cells above them.

    table(parameters, name="tbl-joint", caption="The joint law.")
    glue(phi=fit.params["phi"], n_runs=fit.n_runs)

The table appears below its cell. In the book it has a number, and {numref}`tbl-joint` refers to it;
a notebook shows it as HTML. {glue:text}`phi:.3f` writes a glued number into the prose of the page.
"""

import base64
import html
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype

from looped.quantities import MISSING, QUANTITIES, quantity


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that shows itself: numbered in the book, as HTML in a notebook."""

    cells: list[list[str]]  # headings, then rows
    numeric: list[bool]  # by column
    name: str
    caption: str
    csv: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/markdown": self.to_markdown(), "text/html": self.to_html()}

    def to_markdown(self) -> str:
        """MyST source of the numbered table and of its download link."""
        safe = [[cell.replace("|", r"\|").replace("\n", " ") for cell in r] for r in self.cells]
        rule = ["---:" if n else ":---" for n in self.numeric]
        rows = "\n".join(f"| {' | '.join(row)} |" for row in [safe[0], rule, *safe[1:]])
        return (
            f"::::{{table}} {self.caption}\n:name: {self.name}\n\n{rows}\n::::\n\n"
            f"```{{raw}} html\n{csv_link(self.name, self.csv)}\n```\n"
        )

    def to_html(self) -> str:
        """HTML of the table and of its download link, for a notebook."""
        rows = f"<caption>{html.escape(self.caption)}</caption>"
        for i, row in enumerate(self.cells):
            tag = "td" if i else "th"
            cells = (
                f'<{tag} style="text-align:{"right" if n else "left"}">{html.escape(cell)}</{tag}>'
                for cell, n in zip(row, self.numeric, strict=True)
            )
            rows += f"<tr>{''.join(cells)}</tr>"
        return f'<table class="dataframe">{rows}</table>{csv_link(self.name, self.csv)}'


def table(
    frame: pd.DataFrame,
    *,
    name: str,
    caption: str,
    formats: dict[str, str] | None = None,
    like: str | None = None,
    missing: str = "",
) -> "Table | Note":
    """Numbered table of the rows of `frame` (without its index); the last expression of a cell.

    Headings and formats are those of `looped.quantities.QUANTITIES`; floats of unknown columns
    show four significant digits.

    An estimate and its interval share one cell, "0.459 [0.415, 0.516]", in the column of the
    estimate. The ends are the columns NAME_low and NAME_high, anywhere in the table, or `low` and
    `high` directly after a numeric column. The download keeps all columns.

    Args:
        name: label that {numref} refers to, and file name of the download.
        caption: MyST text on one line; may hold numbers, mathematics and citations.
        formats: column -> Python format specification, where the one of `QUANTITIES` does not fit.
        like: quantity whose format applies to all columns that `QUANTITIES` does not know.
        missing: remark that replaces a table without rows.

    Raises:
        ValueError: a name that cannot be a label, no caption, or a format for a column that the
            table does not have.
    """
    formats = formats or {}
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"table name {name!r}: use lower-case letters, digits and -, as tbl-joint")
    if not caption.strip():
        raise ValueError(f"table {name!r} has no caption: write a sentence that says what it shows")
    if unknown := sorted(set(formats) - set(frame.columns)):
        raise ValueError(f"table {name!r}: formats for {unknown}, but columns {list(frame)}")
    if frame.empty and missing:
        return note(missing)
    default = QUANTITIES[like].format if like else ""
    known = {column: quantity(str(column)) for column in frame}
    specs = {column: about.format if about else default for column, about in known.items()}
    specs |= formats
    intervals = _intervals(frame)
    shown = [column for column in frame if column not in sum(intervals.values(), ())]
    head = [about.symbol if (about := known[column]) else str(column) for column in shown]
    columns = [_cells(frame, [c, *intervals.get(c, ())], specs[c]) for c in shown]
    return Table(
        cells=[[_unbroken(cell) for cell in row] for row in [head, *zip(*columns, strict=True)]],
        numeric=[is_numeric_dtype(frame[column]) for column in shown],
        name=name,
        caption=" ".join(caption.split()),
        csv=frame.to_csv(index=False),
    )


def csv_link(name: str, csv: str | None) -> str:
    """HTML link that saves `csv` as `name`.csv; empty without data.

    The link contains the data, so that it works in a page that is opened from disk.
    """
    if csv is None:
        return ""
    data = base64.b64encode(csv.encode()).decode()
    return (
        f'<a class="book-download" download="{html.escape(name)}.csv" '
        f'href="data:text/csv;base64,{data}">Download data (CSV)</a>'
    )


@dataclass(frozen=True)
class Note:
    """A remark that a cell shows in place of a result."""

    text: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        shown = f"<p><em>{html.escape(self.text)}</em></p>"
        return {"text/markdown": f":::{{note}}\n{self.text}\n:::\n", "text/html": shown}


def note(text: str) -> Note:
    """Remark (MyST text) where a cell has no result to show; the last expression of the cell."""
    return Note(" ".join(text.split()))


def glue(**values: Any) -> None:
    """Store numbers under their names for the prose of the same page; outside the book, nothing."""
    from IPython.display import display

    # MyST-NB recognises this MIME type and metadata; importing its own function takes a second.
    prefix = "application/papermill.record/"
    for name, value in values.items():
        if isinstance(value, np.generic):
            value = value.item()  # 0.45, not np.float64(0.45)
        text = value if isinstance(value, str) else repr(value)
        record = {"scrapbook": {"name": name, "mime_prefix": prefix}}
        display({f"{prefix}text/plain": text}, metadata=record, raw=True)


def _intervals(frame: pd.DataFrame) -> dict[Hashable, tuple[Hashable, Hashable]]:
    """Column of an estimate -> columns of its interval's lower and upper end."""
    names = list(frame)
    ends = {name: (f"{name}_low", f"{name}_high") for name in names}
    for name, low, high in zip(names, names[1:], names[2:], strict=False):
        if (low, high) == ("low", "high") and is_numeric_dtype(frame[name]):
            ends[name] = (low, high)
    return {name: pair for name, pair in ends.items() if set(pair) <= set(names)}


def _cells(frame: pd.DataFrame, columns: list[Hashable], spec: str) -> list[str]:
    """Texts of an estimate, with its interval if `columns` also names the ends."""
    values, *ends = [_texts(frame[column], spec) for column in columns]
    if not ends:
        return values
    rows = zip(values, *ends, frame[columns].notna().all(axis=1), strict=True)
    return [f"{value} [{low},\u00a0{high}]" if known else value for value, low, high, known in rows]


def _texts(column: pd.Series, spec: str) -> list[str]:
    if not spec or not is_numeric_dtype(column):
        spec = ".4g" if is_float_dtype(column) else ""
    if spec.endswith("d") and is_float_dtype(column):
        spec = f"{spec[:-1]}.0f"  # whole numbers beside missing ones
    return [MISSING if pd.isna(value) else format(value, spec) for value in column]


def _unbroken(cell: str) -> str:
    """The cell without line breaks in `r = 4` or in an exponent."""
    cell = re.sub(r"(?<=\w) = (?=[\d.])", "\u00a0=\u00a0", cell)
    return re.sub(r"(?<=\de)-(?=\d)", "\u2011", cell)
