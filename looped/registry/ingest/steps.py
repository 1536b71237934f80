"""From a file of results to a source of runs: read, map, check, complete, validate, write."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """Runs of others as a table of runs."""

    table: pd.DataFrame  # columns of `looped.registry.schema`
    notes: list[str]  # what was mapped, guessed, computed, assumed and left out
    folder: Path | None  # where they were written; None if they were not


def ingest(
    file: str | Path,
    *,
    name: str,
    mapping: Mapping[str, str] | None = None,
    model: Mapping | None = None,
    format: str | None = None,
    out: str | Path | None = None,
    dry_run: bool = False,
) -> Ingested:
    """Read and check the runs of a file, and write them as the source `name`.

    Args:
        file: CSV, JSON lines, or an export of Weights & Biases.
        name: of the source, and of its folder; `load_runs` then finds it.
        mapping: our column -> the file's, or "-" for none; the rest is guessed, and said.
        model: fields of `looped.ModelConfig` that hold for all runs (or n_layers in place of
            n_loop), to count parameters and FLOPs from.
        format: csv, jsonl or wandb; None to recognise it.
        out: folder of the sources; default: `runs/`.
        dry_run: write nothing.

    Raises:
        RecordError: a file, column or row that cannot be right: names it and says what to do.
        ConfigError: a model that cannot exist.
        ValueError: a name that is taken.
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
    notes = [*notes, *mapped.notes, *counted, *spent, _kept(table)]
    if not dry_run:
        write_source(table, folder, file, notes)
    return Ingested(table, notes, None if dry_run else folder)


def _kept(table) -> str:
    cases = ", ".join(sorted(table["case"].unique()))
    recurrences = ", ".join(map(str, sorted(table["n_recur"].dropna().unique()))) or "not known"
    return (
        f"kept: {len(table)} runs; case {cases}; n_recur {recurrences}; "
        f"{table['budget'].nunique()} budgets; source {', '.join(table['source'].unique())}"
    )
