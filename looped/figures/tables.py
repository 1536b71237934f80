"""Numbered tables and numbers in prose, from the results of the cells above them.

    table(parameters, name="tbl-joint", caption="The joint law.", formats={"phi": ".3f"})
    glue(phi=fit.params["phi"], n_runs=fit.n_runs)

The table stands where its cell stands. In the book it has a number and can be referred to with
{numref}`tbl-joint`; a notebook shows it as HTML. A glued number is written into a sentence of the
same page with {glue:text}`phi:.3f`.
"""

import html
import re

import numpy as np
import pandas as pd

from looped.figures.render import csv_link
from looped.quantities import quantity

MISSING = "–"


class Table:
    """A table of results that shows itself: numbered in the book, as HTML in a notebook."""

    def __init__(self, cells: list[list[str]], numeric: list[bool], name, caption, csv):
        self.cells, self.numeric = cells, numeric
        self.name, self.caption, self.csv = name, caption, csv

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/markdown": self.to_markdown(), "text/html": self.to_html()}

    def to_markdown(self) -> str:
        """MyST source of the numbered table and of its download link."""
        head, *body = [[_pipe_safe(cell) for cell in row] for row in self.cells]
        rule = ["---:" if n else ":---" for n in self.numeric]
        rows = "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body])
        return (
            f"::::{{table}} {self.caption}\n:name: {self.name}\n\n{rows}\n::::\n\n"
            f"```{{raw}} html\n{self._link()}\n```\n"
        )

    def to_html(self) -> str:
        """The table for a notebook's output."""
        head, *body = [[html.escape(cell) for cell in row] for row in self.cells]
        rows = [_html_row(head, "th", self.numeric)]
        rows += [_html_row(row, "td", self.numeric) for row in body]
        caption = f"<caption>{html.escape(self.caption)}</caption>"
        return f'<table class="dataframe">{caption}{"".join(rows)}</table>{self._link()}'

    def _link(self) -> str:
        return csv_link({"name": self.name, "csv": self.csv})


def table(frame: pd.DataFrame, *, name: str, caption: str, formats: dict | None = None) -> Table:
    """A numbered table of the rows of `frame` (without its index), to be a cell's last expression.

    Args:
        name: what {numref} refers to, and the file name of the downloaded data.
        caption: MyST text on one line; may hold numbers, mathematics and citations.
        formats: format specifications in place of those of `looped.QUANTITIES`, such as
            `{"phi": ".4f"}`. Floats without either show four significant digits.

    Raises:
        ValueError: a name that cannot be a label, no caption, or a format for a column that the
            table does not have.
    """
    formats = formats or {}
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"table name {name!r}: use lower-case letters, digits and -, as tbl-joint")
    if not caption.strip():
        raise ValueError(f"table {name!r} has no caption: say in a sentence what it shows")
    if unknown := sorted(set(formats) - set(frame.columns)):
        raise ValueError(f"table {name!r}: formats for {unknown}, but columns {list(frame)}")
    known = {column: quantity(str(column)) for column in frame}
    columns = [
        _texts(frame[column], formats.get(column, about.format if about else None))
        for column, about in known.items()
    ]
    numeric = [pd.api.types.is_numeric_dtype(frame[column]) for column in frame]
    head = [about.symbol if about else str(column) for column, about in known.items()]
    cells = [[_unbroken(cell) for cell in row] for row in [head, *zip(*columns, strict=True)]]
    return Table(cells, numeric, name, " ".join(caption.split()), frame.to_csv(index=False))


class Note:
    """A remark of a cell in place of a result that it could not make."""

    def __init__(self, text: str):
        self.text = " ".join(text.split())

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {
            "text/markdown": f":::{{note}}\n{self.text}\n:::\n",
            "text/html": f"<p><em>{html.escape(self.text)}</em></p>",
        }


def note(text: str) -> Note:
    """A remark (MyST text), to be a cell's last expression, where there is nothing to show."""
    return Note(text)


def glue(**values) -> None:
    """Keep numbers of a result under their names, for the prose of the same page.

    Outside the book nothing is shown.
    """
    from IPython.display import display

    # MyST-NB looks for this MIME type and this metadata; importing it to say so takes a second.
    prefix = "application/papermill.record/"
    for name, value in values.items():
        if isinstance(value, np.generic):
            value = value.item()  # 0.45, not np.float64(0.45)
        text = value if isinstance(value, str) else repr(value)
        record = {"scrapbook": {"name": name, "mime_prefix": prefix}}
        display({f"{prefix}text/plain": text}, metadata=record, raw=True)


def _texts(column: pd.Series, spec: str | None) -> list[str]:
    if not spec or not pd.api.types.is_numeric_dtype(column):
        spec = ".4g" if pd.api.types.is_float_dtype(column) else ""
    if spec == "d" and pd.api.types.is_float_dtype(column):
        spec = ".0f"  # whole numbers beside missing ones
    return [MISSING if pd.isna(value) else format(value, spec) for value in column]


def _unbroken(cell: str) -> str:
    """A cell that does not end a line inside `r = 4` or an exponent."""
    cell = re.sub(r"(?<=\w) = (?=[\d.])", "\u00a0=\u00a0", cell)
    return re.sub(r"(?<=\de)-(?=\d)", "\u2011", cell)


def _pipe_safe(cell: str) -> str:
    return cell.replace("|", r"\|").replace("\n", " ")


def _html_row(row: list[str], tag: str, numeric: list[bool]) -> str:
    align = ["right" if n else "left" for n in numeric]
    cells = (f'<{tag} style="text-align:{a}">{c}</{tag}>' for c, a in zip(row, align, strict=True))
    return f"<tr>{''.join(cells)}</tr>"
