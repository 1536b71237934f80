"""Runs by source. A new source is one folder in `runs/` and one line in SOURCES."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from looped.errors import RecordError
from looped.paths import runs_dir
from looped.registry.laptop import laptop_runs
from looped.registry.paper import paper_runs
from looped.registry.record import read_records
from looped.registry.schema import COLUMNS, validate

SOURCES: dict[str, Callable[[], pd.DataFrame]] = {"paper": paper_runs, "laptop": laptop_runs}

BASELINE = "baseline"
"""The case whose r = 1 runs anchor every other case."""


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
    """The runs of one case, as a checked table (columns: `looped.registry.schema`).

    A case without r = 1 runs of its own gets the baseline's, of the budgets that they share: its
    anchor, without which φ means nothing.

    Args:
        source: a name in SOURCES or of a folder in runs/; or the path of a CSV file, or of a folder
            of records.
        case: the study to read; None for every run of the source.
        n_recur: keep these recurrences of the case; the anchor stays.
        budget_min: keep budgets from here, FLOPs, inclusive.
        budget_max: keep budgets up to here, FLOPs, inclusive.
        anchor: False for the case's own runs alone.
        columns: for a CSV file, our name -> the file's name of a column.

    Raises:
        RecordError: a row that fails the schema.
        ValueError: an unknown source or case, or a selection that leaves no run.
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


def _read(source, columns) -> pd.DataFrame:
    if source in SOURCES:
        if columns:
            raise ValueError(f"columns name those of a CSV file, got {columns} for {source!r}")
        return validate(SOURCES[source]())
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
    return validate(_renamed(_read_csv(path), columns, path), file=path)


def _read_csv(path) -> pd.DataFrame:
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
    if len(frame.columns) == 1 and (found := set(frame.columns[0]) & set(";\t|")):
        raise RecordError(
            f"columns separated by {' '.join(map(repr, found))}",
            file=path,
            fix="Separate them by commas, and write numbers with a decimal point",
        )
    return frame.dropna(how="all")


def _renamed(frame, columns, path) -> pd.DataFrame:
    absent = sorted(set(columns.values()) - set(frame.columns))
    if absent:
        raise RecordError(
            f"no column {absent}; the file has {list(frame.columns)}",
            file=path,
            fix="Name a column of the file on the right of each mapping",
        )
    unknown = sorted(set(columns) - set(COLUMNS))
    if unknown:
        raise RecordError(
            f"the table of runs has no column {unknown}; it has {COLUMNS}",
            file=path,
            fix="Name one of them on the left of each mapping",
        )
    return frame.assign(**{ours: frame[theirs] for ours, theirs in columns.items()})


def _select_case(runs, case, with_anchor, source) -> pd.DataFrame:
    if case is None:
        return runs
    own = runs[runs["case"] == case]
    if own.empty:
        known = sorted(runs["case"].unique())
        raise ValueError(
            f"case: got {case!r}, expected one of {known}, the cases of {str(source)!r}"
        )
    if not with_anchor or (own["n_recur"] == 1).any():
        return own
    anchor = runs[
        (runs["case"] == BASELINE) & (runs["n_recur"] == 1) & runs["budget"].isin(own["budget"])
    ]
    return pd.concat([anchor, own])
