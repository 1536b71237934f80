"""Write a source of runs: `runs.csv`, and a README with the origin of the runs."""

import os
import re
import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from looped.files import sha256, write_whole
from looped.paths import own_runs_dir
from looped.registry import SOURCES

README = """# {name}

`looped ingest` read these runs from `{file}`, checked them, and wrote them with the columns of the
table of runs (`looped.registry.schema`: losses in nats per token, budgets in FLOPs).

| | |
|---|---|
| file | `{file}` |
| SHA-256 | `{sha256}` |
| read on | {date} (UTC) |
| with | looped {version} |
| runs | {n_runs} |

## Steps

{notes}
"""


def target(name: str, out: str | Path | None) -> Path:
    """The folder of a new source with this name.

    Args:
        out: folder of the sources; None for the checkout's `runs/`, or without a checkout for
            `runs/` in the working directory.

    Raises:
        ValueError: not a name of a folder, or a name that exists already.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ValueError(f"name: got {name!r}, expected letters, digits, - and _")
    folder = (own_runs_dir() if out is None else Path(out)) / name
    if folder.exists() or name in SOURCES:
        raise ValueError(f"name: {name!r} is taken already; choose another, or remove {folder}")
    return folder


def write_source(table: pd.DataFrame, folder: Path, file: Path, notes: list[str]) -> None:
    """Write the folder of a source atomically: it appears complete or not at all."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process with the same number
    partial.mkdir(parents=True)
    readme = README.format(
        name=folder.name,
        file=file.name,
        sha256=sha256(file),
        date=datetime.now(UTC).date().isoformat(),
        version=version("looped"),
        n_runs=len(table),
        notes="\n".join(f"- {note}" for note in notes),
    )
    try:
        write_whole(partial / "runs.csv", table.to_csv(index=False))
        write_whole(partial / "README.md", readme)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
