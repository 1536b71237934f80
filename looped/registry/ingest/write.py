"""A source of runs on disk: `runs.csv` and a README that says where it comes from."""

import hashlib
import os
import re
import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from looped.paths import own_runs_dir
from looped.registry import SOURCES

TABLE = "runs.csv"

README = """# {name}

Runs that were read from `{file}` with `looped ingest`, checked, and written with the columns of
the table of runs (`looped.registry.schema`: losses in nats per token, budgets in FLOPs).

| | |
|---|---|
| file | `{file}` |
| SHA-256 | `{sha256}` |
| read on | {date} (UTC) |
| with | looped {version} |
| runs | {n_runs} |

## What was done

{notes}
"""


def target(name: str, out: Path | None) -> Path:
    """The folder of a new source of this name.

    Args:
        out: folder of the sources; None for the checkout's `runs/`, or without a checkout for
            `runs/` in the working directory.

    Raises:
        ValueError: no name for a folder, or one that is taken.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ValueError(f"name: got {name!r}, expected letters, digits, - and _")
    folder = (own_runs_dir() if out is None else Path(out)) / name
    if folder.exists() or name in SOURCES:
        raise ValueError(f"name: {name!r} is taken already; choose another, or remove {folder}")
    return folder


def write_source(table: pd.DataFrame, folder: Path, file: Path, notes: list[str]) -> None:
    """Write the source, whole or not at all."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process that had our number
    partial.mkdir(parents=True)
    try:
        _write(partial / TABLE, table.to_csv(index=False))
        _write(partial / "README.md", _readme(table, folder.name, file, notes))
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(path, text):
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _readme(table, name, file, notes) -> str:
    return README.format(
        name=name,
        file=file.name,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        date=datetime.now(UTC).date().isoformat(),
        version=version("looped"),
        n_runs=len(table),
        notes="\n".join(f"- {note}" for note in notes),
    )
