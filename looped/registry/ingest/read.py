"""Read result files: CSV, JSON lines, and exports of Weights & Biases in either format.

An export of Weights & Biases is a table with the columns `Name` and `State`, or one JSON object per
run with nested `config` and `summary`. Nested objects become columns named by their path:
`config.model.d_model`, `summary.val/loss`.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from looped.errors import RecordError, pick
from looped.registry.read import read_csv

FORMATS = ("csv", "jsonl", "wandb")

TO_JSON_LINES = 'Write one JSON object a line, as DataFrame.to_json(orient="records", lines=True)'


def read_table(path: Path, form: str | None = None) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a file under its own column names, and notes on what was left out.

    The index counts lines from the second one, as `validate` expects. Unfinished runs of a Weights
    & Biases export are left out.

    Args:
        form: one of FORMATS; None recognises JSON by its first character, and an export of
            Weights & Biases by its columns.

    Raises:
        RecordError: a file that is no such table.
        ValueError: no such file or format.
    """
    if form is not None:
        pick("format", form, FORMATS)
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give a CSV file or JSON lines")
    nested = form == "jsonl" or (form != "csv" and _begins_with_brace(path))
    frame = _read_json_lines(path) if nested else read_csv(path)
    if frame.empty:
        raise RecordError("no runs", file=path, fix="Give at least one run")
    for name in ("config", "summary"):  # DataFrame.to_csv turns nested objects into Python text
        if name in frame and frame[name].astype(str).str.startswith("{").any():
            raise RecordError(
                f"column {name!r} holds dictionaries as text", file=path, fix=TO_JSON_LINES
            )
    if form == "wandb" or (form is None and _is_of_wandb(frame)):
        return _finished(frame, path)
    return frame, []


def _begins_with_brace(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))


def _read_json_lines(path: Path) -> pd.DataFrame:
    lines = path.read_text("utf-8-sig").split("\n")
    rows = {i: _parse(line, i + 1, path) for i, line in enumerate(lines) if line.strip()}
    if not rows:
        raise RecordError("no runs", file=path, fix=TO_JSON_LINES)
    return pd.json_normalize(list(rows.values())).set_index(pd.Index(list(rows)) - 1)


def _parse(line: str, number: int, path: Path) -> dict[str, Any]:
    try:
        row, why = json.loads(line), ""
    except json.JSONDecodeError as error:
        row, why = None, f" ({error})"
    if not isinstance(row, dict):
        raise RecordError(f"not a JSON object{why}", file=path, row=number, fix=TO_JSON_LINES)
    return row


def _is_of_wandb(frame: pd.DataFrame) -> bool:
    parts = {name.partition(".")[0] for name in frame}
    return {"Name", "State"} <= set(frame) or {"config", "summary"} <= parts


def _finished(frame: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, list[str]]:
    by_name = {name.lower(): name for name in frame}
    if "state" not in by_name:
        return frame, ["left out: nothing, but the export has no State, so a run may have crashed"]
    state = frame[by_name["state"]].astype(str)
    ended = state.str.lower() == "finished"
    if not ended.any():
        raise RecordError(
            f"no run is finished; the states are {sorted(set(state))}",
            file=path,
            fix="Export the finished runs",
        )
    names = frame[by_name["name"]] if "name" in by_name else pd.Series("", index=frame.index)
    return frame[ended], [
        f"left out: row {i + 2}, run {names[i]!r}, whose State is {state[i]}, not finished"
        for i in frame.index[~ended]
    ]
