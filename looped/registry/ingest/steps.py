"""From a result file to a source of runs: read, map, check, complete, validate, write."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from looped.registry.ingest.budgets import spend
from looped.registry.ingest.checks import check_units, check_values
from looped.registry.ingest.columns import map_columns
from looped.registry.ingest.complete import complete
from looped.registry.ingest.read import read_table
from looped.registry.ingest.write import target, write_source
from looped.registry.schema import validate


@dataclass(frozen=True)
class Ingested:
    """The runs of a result file as a table of runs."""

    table: pd.DataFrame  # columns of `looped.registry.schema`
    notes: list[str]  # what was mapped, guessed, computed, assumed and left out
    folder: Path | None  # the new source; None if nothing was written


def ingest(
    file: str | Path,
    *,
    name: str,
    mapping: Mapping[str, str] | None = None,
    model: Mapping[str, Any] | None = None,
    format: str | None = None,
    out: str | Path | None = None,
    dry_run: bool = False,
) -> Ingested:
    """Read and check the runs of a file, and write them as the source `name`.

    Args:
        file: CSV, JSON lines, or an export of Weights & Biases.
        name: name of the source and of its folder, with which `load_runs` finds it.
        mapping: name in the schema -> name in the file, or "-" for none; the rest is guessed, and
            the notes list the guesses.
        model: fields of `looped.ModelConfig` for all runs (or n_layers instead of n_loop), from
            which parameters and FLOPs are counted.
        format: csv, jsonl or wandb; None to recognise it.
        out: folder of the sources; default: `runs/`.
        dry_run: write nothing.

    Raises:
        RecordError: a file, column or row that cannot be right; names it and the remedy.
        ConfigError: an impossible model.
        ValueError: a name that exists already.
    """
    file = Path(file)
    folder = target(name, out)
    rows, notes = read_table(file, format)
    mapped = map_columns(rows, dict(mapping or {}), file)
    check_units(rows, mapped, file)
    check_values(mapped.frame, file)
    frame, counted = complete(mapped.frame, model, file)
    frame, spent = spend(frame, file)
    table = validate(frame, file)
    notes = [*notes, *mapped.notes, *counted, *spent, _result(table)]
    if not dry_run:
        write_source(table, folder, file, notes)
    return Ingested(table, notes, None if dry_run else folder)


def _result(table: pd.DataFrame) -> str:
    cases = ", ".join(sorted(table["case"].unique()))
    recurrences = ", ".join(map(str, sorted(table["n_recur"].dropna().unique()))) or "not known"
    return (
        f"result: {len(table)} runs; case {cases}; n_recur {recurrences}; "
        f"{table['budget'].nunique()} budgets; source {', '.join(table['source'].unique())}"
    )
