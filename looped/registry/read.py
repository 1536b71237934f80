"""Read runs: by the name of a source, from a CSV file, or from a folder of records."""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from looped.errors import ConfigError, RecordError, pick
from looped.paths import runs_dir
from looped.registry import SOURCES
from looped.registry.record import read_records
from looped.registry.schema import COLUMNS, validate

BASELINE = "baseline"
"""Name of the case whose r = 1 runs anchor every other case."""


def load_runs(
    source: str | Path = "paper",
    *,
    case: str | None = BASELINE,
    n_recur: int | Sequence[int] | None = None,
    budget_min: float | None = None,
    budget_max: float | None = None,
    anchor: bool = True,
    columns: dict[str, str] | None = None,
) -> pd.DataFrame:
    """The runs of one case as a checked table (columns: `looped.registry.schema`).

    A case without r = 1 runs gets those of the baseline at the budgets that both cases have. These
    runs are its anchor: without them φ has no meaning.

    Args:
        source: name of a source (`looped.SOURCES`) or of a folder in `runs/`; or path of a CSV file
            or of a folder of records.
        case: the study; None for all runs of the source.
        n_recur: the recurrences to keep; the anchor always stays.
        budget_min: smallest budget to keep, FLOPs, inclusive.
        budget_max: largest budget to keep, FLOPs, inclusive.
        anchor: False to leave the baseline's r = 1 runs out.
        columns: for a CSV file, name in the schema -> name in the file.

    Raises:
        RecordError: a row that fails the schema.
        ValueError: an unknown source or case, or a selection without runs.
    """
    runs = _select_case(_read(source, columns or {}), case, anchor, source)
    keep = pd.Series(True, index=runs.index)
    if n_recur is not None:
        keep = runs["n_recur"].isin(np.ravel(n_recur))
        if keep.any() and case is not None:
            keep |= runs["case"] != case
    if budget_min is not None:
        keep &= runs["budget"] >= budget_min
    if budget_max is not None:
        keep &= runs["budget"] <= budget_max
    if not keep.any():
        raise ValueError(
            f"no run of source {str(source)!r}, case {case!r} is left by n_recur={n_recur}, "
            f"budget_min={budget_min}, budget_max={budget_max}; it has n_recur "
            f"{sorted(runs['n_recur'].dropna().unique().tolist())} and budgets "
            f"{sorted(runs['budget'].dropna().unique().tolist())}"
        )
    return runs[keep].reset_index(drop=True)


def read_csv(path: Path) -> pd.DataFrame:
    """The rows of a CSV file; the index counts the lines below the header, blank ones too.

    Raises:
        RecordError: text that is not comma-separated.
    """
    try:
        # blank lines count, so that an error names the line that an editor shows
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            frame = pd.read_csv(
                path, skipinitialspace=True, skip_blank_lines=False, index_col=False
            )
    except (
        pd.errors.EmptyDataError,
        pd.errors.ParserError,
        pd.errors.ParserWarning,
        UnicodeDecodeError,
    ) as error:
        raise RecordError(
            f"not a CSV table: {error}", file=path, fix="Give comma-separated text with a header"
        ) from None
    frame.columns = frame.columns.str.strip()
    if len(frame.columns) == 1 and (separators := set(frame.columns[0]) & set(";\t|")):
        raise RecordError(
            f"columns separated by {' '.join(map(repr, separators))}",
            file=path,
            fix="Separate them by commas, and write numbers with a decimal point",
        )
    return frame.dropna(how="all")


def check_mapping(
    names: Iterable[str],
    columns: Iterable[str],
    known: Sequence[str],
    in_file: Sequence[str],
    path: Path,
) -> None:
    """Refuse a mapping from names to columns of a file with an unknown name or column.

    Raises:
        RecordError: lists the unknown ones and the known ones.
    """
    if absent := sorted(set(columns) - set(in_file)):
        raise RecordError(
            f"no column {absent}; the file has {in_file}",
            file=path,
            fix="Name a column of the file on the right of each mapping",
        )
    if unknown := sorted(set(names) - set(known)):
        raise RecordError(
            f"the table of runs has no column {unknown}; it has {known}",
            file=path,
            fix="Name one of them on the left of each mapping",
        )


def _read(source: str | Path, columns: dict[str, str]) -> pd.DataFrame:
    if source in SOURCES:
        if columns:
            raise ValueError(f"columns name those of a CSV file, got {columns} for {source!r}")
        return validate(SOURCES[str(source)]())
    places = Path(source), runs_dir() / source, Path("runs") / source
    path = next((place for place in places if place.exists()), places[0])
    if (path / "runs.csv").is_file():
        path = path / "runs.csv"
    if path.is_dir() and not columns:
        return read_records(path)
    if not path.is_file():
        raise ValueError(
            f"runs: got {str(source)!r}, expected one of {sorted(SOURCES)}, the name of a folder "
            "in runs/, or the path of a CSV file or of a folder of records"
        )
    frame = read_csv(path)
    check_mapping(columns, columns.values(), COLUMNS, list(frame), path)
    renamed = {name: frame[in_file] for name, in_file in columns.items()}
    return validate(frame.assign(**renamed), file=path)


def _select_case(
    runs: pd.DataFrame, case: str | None, anchor: bool, source: str | Path
) -> pd.DataFrame:
    if case is None:
        return runs
    try:
        pick("case", case, sorted(runs["case"].unique()))
    except ConfigError as error:
        raise ConfigError(f"{error}; these are the cases of {str(source)!r}") from None
    selected = runs[runs["case"] == case]
    if not anchor or (selected["n_recur"] == 1).any():
        return selected
    at_one = (runs["case"] == BASELINE) & (runs["n_recur"] == 1)
    return pd.concat([runs[at_one & runs["budget"].isin(selected["budget"])], selected])
