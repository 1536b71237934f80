"""The errors of the package. Each message says what, got, expected, and what to do."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class ConfigError(ValueError):
    """A model or run configuration that cannot exist."""


class RecordError(ValueError):
    """A run that fails the schema: names file, row, field and value."""

    def __init__(self, problem, *, file=None, row=None, field=None, value=None, fix=None):
        self.file, self.row, self.field, self.value = file, row, field, value
        where = [str(file)] if file is not None else []
        where += [f"row {row}"] if row is not None else []
        where += [f"column {field!r}"] if field is not None else []
        got = f" (got {value!r})" if value is not None else ""
        remedy = f". {fix}" if fix else ""
        super().__init__(f"{', '.join(where)}{': ' if where else ''}{problem}{got}{remedy}")


class FitError(RuntimeError):
    """No usable estimate came out of a fit."""


class NoMinimum(FitError):
    """An isoFLOP cell without an interior minimum, or with fewer than three runs."""


class TrainingError(RuntimeError):
    """A run that cannot continue: names the step and the problem; its last checkpoint is kept."""


def pick(kind: str, name: str, known: Collection[str]) -> Any:
    """`known[name]` for a mapping, or `name` itself for any other collection of names.

    Args:
        kind: what the name stands for, such as "law"; the message starts with it.

    Raises:
        ConfigError: an unknown name; the message lists the known ones and the closest match.
    """
    if name in known:
        return known[name] if isinstance(known, Mapping) else name
    close = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(f"{kind}: got {name!r}, expected one of {', '.join(known)}{hint}")


def require(
    frame: "pd.DataFrame", columns: Collection[str], who: str, may_miss: Collection[str] = ()
) -> None:
    """Refuse a table that lacks a column, or a value of one.

    Args:
        who: the function or figure that needs the columns; the message starts with it.
        may_miss: columns whose values may be missing in some rows.

    Raises:
        ValueError: names the missing columns, and the first row without a value.
    """
    lacking = {
        name: "no such column"
        if name not in frame
        else f"missing in row {frame.index[frame[name].isna().to_numpy().argmax()]}"
        for name in columns
        if name not in frame or (name not in may_miss and frame[name].isna().any())
    }
    if lacking:
        found = ", ".join(f"{name} ({problem})" for name, problem in lacking.items())
        raise ValueError(
            f"{who} needs {', '.join(columns)} of every run, got {found}; add the values, or leave "
            "these runs out"
        )
