"""Results on the terminal: tables for a reader, JSON and CSV in full precision for programs."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from looped.diagnose.report import records
from looped.quantities import MISSING

EXACT = 1e12  # whole numbers below it are shown in full
FILE_WIDTH = 120  # of a table that goes to a file or a pipe


def print_json(value: Any) -> None:
    """Print a value as JSON. Raises ValueError for a number that is not finite."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(frame: pd.DataFrame, title: str) -> None:
    """Print rows as a table, numbers to the right."""
    _stdout().print(as_table(frame, title))


def as_table(frame: pd.DataFrame, title: str) -> Table:
    """Rows as a table, numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for name in frame:
        numeric = pd.api.types.is_numeric_dtype(frame[name])
        table.add_column(name, justify="right" if numeric else "left", no_wrap=numeric)
    for row in records(frame):
        table.add_row(*map(text, row.values()))
    return table


def text(value: Any) -> str:
    """A value for a reader: counts in full, other numbers to five digits."""
    if value is None or value == "":
        return MISSING
    if not isinstance(value, int | float):
        return str(value)
    if math.isfinite(value) and (value == int(value) or abs(value) >= 1e5) and abs(value) < EXACT:
        return f"{value:,.0f}"
    return f"{value:.5g}"


@contextmanager
def progress(what: str, unit: str = "") -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where someone watches, moved by (done, total); total 0 means unknown."""
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn(f"{{task.completed:,.0f}} {unit}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console, quiet = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None)

        yield advance


def _stdout() -> Console:
    width = None if sys.stdout.isatty() else FILE_WIDTH
    return Console(highlight=False, soft_wrap=True, width=width)
