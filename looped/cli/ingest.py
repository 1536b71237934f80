"""`looped ingest`: results that others measured, checked and stored as a source of runs."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from looped.cli import options as opt
from looped.cli import show
from looped.errors import ConfigError
from looped.registry.ingest import Ingested, ingest
from looped.registry.ingest.read import FORMATS

SHOWN = ["case", "n_recur", "d_model", "budget", "n_params", "n_tokens", "val_loss", "source"]
FIRST = 5
"""Rows of the result that are printed."""

File = Annotated[Path, typer.Argument(help="CSV, JSON lines, or an export of Weights & Biases.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="NAME=COLUMN, as val_loss=eval/loss, or NAME=- (repeatable)."),
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="Of the model of all runs: FIELD=VALUE, as n_layers=20."),
]


def ingest_command(
    file: File,
    name: Annotated[str | None, typer.Option(help="Of the source; default: the file's.")] = None,
    mapping: Map = None,
    model: Annotated[Path | None, typer.Option(help="JSON file of the model's fields.")] = None,
    setting: Setting = None,
    format: Annotated[str | None, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of sources; default: runs.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print and write nothing.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Check the runs of a file, and store them as a source of runs."""
    ingested = ingest(
        file,
        name=name or re.sub(r"\W+", "-", file.stem.lower()).strip("-_"),
        mapping=opt.pairs(mapping, "--map"),
        model=read_model(model, setting),
        format=format,
        out=out,
        dry_run=dry_run,
    )
    _print(ingested, as_json)


def read_model(file: Path | None, settings: list[str] | None) -> dict[str, Any] | None:
    """Fields of the model from a JSON file and from FIELD=VALUE, which wins; None without both.

    Raises:
        ConfigError: a file without a JSON object.
    """
    if file is None and not settings:
        return None
    given = opt.pairs(settings, "--set")
    return _read_fields(file) | {name: _value(text) for name, text in given.items()}


def _read_fields(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        fields = json.loads(file.read_text())
    except json.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise ConfigError(f'--model: {file} is not a JSON object, as {{"n_layers": 20}}')
    return fields


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _print(ingested: Ingested, as_json: bool) -> None:
    folder = None if ingested.folder is None else str(ingested.folder)
    if as_json:
        rows = show.records(ingested.table)
        show.print_json({"folder": folder, "notes": ingested.notes, "runs": rows})
        return
    shown = ingested.table[SHOWN].head(FIRST)
    title = f"The first {len(shown)} of {len(ingested.table)} runs: nats per token, FLOPs"
    show.print_table(shown, title)
    print(*ingested.notes, sep="\n")
    print(f"written to {folder}" if folder else "nothing was written (--dry-run)")
