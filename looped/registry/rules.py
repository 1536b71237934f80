"""Row checks of a table: which rows break a rule, and the error that names the first of them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from looped.errors import RecordError

NUMBER = "Write a number with a decimal point and nothing else"


class Violation(NamedTuple):
    """The rows that break one rule."""

    rows: pd.Series  # bool [n], True where the rule is broken
    column: str | None  # None: the rule is about several columns
    problem: str | Callable[[int], str]  # a function gets the position of the row
    remedy: str


def refuse(
    violations: Iterable[Violation], frame: pd.DataFrame, file: str | Path | None = None
) -> None:
    """Raise for the first row that breaks a rule; without a broken rule, do nothing.

    Args:
        violations: in order of importance, which decides between rules that one row breaks.
        frame: the table; its index names the rows.
        file: where the rows come from. If given, a row is named by its line (header: line 1), and
            the index must count the lines below the header.

    Raises:
        RecordError: names file, row, column and value, and says what to do.
    """
    broken = [each for each in violations if each.rows.any()]
    if not broken:
        return
    first = min(broken, key=lambda each: _position(each.rows))
    position = _position(first.rows)
    problem = first.problem if isinstance(first.problem, str) else first.problem(position)
    raise RecordError(
        problem,
        file=file,
        row=line(frame.index[position], file),
        field=first.column,
        value=None if first.column is None else _value(frame[first.column], position),
        fix=first.remedy,
    )


def line(label: int, file: str | Path | None) -> int:
    """The number that an error gives a row: its line in the file, or its index label."""
    return int(label) + 2 if file is not None else label


def numbers(frame: pd.DataFrame, name: str) -> pd.Series:
    """A column as floats; missing where the column is absent or the value is not a number."""
    if name not in frame:
        return pd.Series(np.nan, index=frame.index)
    return pd.to_numeric(frame[name], errors="coerce").astype(float)


def _position(rows: pd.Series) -> int:
    return int(rows.to_numpy(bool).argmax())


def _value(column: pd.Series, position: int) -> Any:
    """A plain Python value, whose repr has no numpy type; None for a missing one."""
    (value,) = column.iloc[[position]].tolist()
    return None if pd.isna(value) else value
