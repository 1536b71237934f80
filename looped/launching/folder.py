"""State and progress of a run, read from its work folder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from looped.extras import need
from looped.spec import RunSpec
from looped.training.names import LOCK, METRICS

WORK = Path("work")
FAILURE = "failure.txt"
LAST_BYTES = 4096  # more than one line of metrics
SHOWN = ("run_id", "case", "n_recur", "variant", "d_model", "budget", "n_tokens", "seed")
STATES = ("done", "running", "failed", "stopped", "waiting")


@dataclass(frozen=True)
class RunFolder:
    """The work folder of one run of a grid, and the folder of collected records, or None."""

    spec: RunSpec
    path: Path
    records: Path | None = None

    @property
    def record(self) -> Path:
        """Path of the record: the collected one, else that in the work folder of a done run."""
        name = f"{self.spec.run_id}.json"
        if self.records and (self.records / name).is_file():
            return self.records / name
        return self.path / name

    @property
    def state(self) -> str:
        """One of STATES; `failed` and `stopped` runs resume when they are launched again."""
        if self.record.is_file():
            return "done"
        if self.is_held():
            return "running"
        if (self.path / FAILURE).is_file():
            return "failed"
        return "stopped" if (self.path / METRICS).is_file() else "waiting"

    def is_held(self) -> bool:
        """Whether a process is training in this folder."""
        if not (self.path / LOCK).is_file():
            return False
        filelock = need("filelock", "grid")
        try:
            with filelock.FileLock(self.path / LOCK, timeout=0):
                return False
        except filelock.Timeout:
            return True

    def failure(self) -> str:
        """Last lines of the error of the last attempt; empty if it did not fail."""
        path = self.path / FAILURE
        return path.read_text() if path.is_file() else ""

    def last_step(self) -> dict[str, Any]:
        """Metrics of the newest step; empty before the first."""
        path = self.path / METRICS
        if not path.is_file():
            return {}
        with path.open("rb") as file:  # only its end, since the file of a long run is large
            file.seek(max(0, path.stat().st_size - LAST_BYTES))
            lines = file.read().decode().split("\n")[:-1]
        return json.loads(lines[-1]) if lines else {}


def folders(
    specs: Sequence[RunSpec], work: str | Path, records: str | Path | None = None
) -> list[RunFolder]:
    """Folders of the runs, in the order of the specs; equal specs are one run."""
    records = None if records is None else Path(records)
    by_id = {spec.run_id: spec for spec in specs}
    return [RunFolder(spec, Path(work) / run_id, records) for run_id, spec in by_id.items()]


def grid_status(
    specs: Sequence[RunSpec], work: str | Path = WORK, records: str | Path | None = None
) -> pd.DataFrame:
    """Status of each run of a grid, read from the folders.

    Args:
        specs: the grid.
        work: parent of the runs' work folders.
        records: folder of collected records, such as `runs/laptop`; a run with a record there is
            done.

    Returns:
        One row for each run: run_id, case, n_recur, variant, d_model, budget (FLOPs), n_tokens,
        seed, state (one of STATES), progress (0 to 1), tokens_per_second, eta_seconds (remaining
        seconds of a run in progress, else missing), val_loss (nats/token, of a done run), failure
        (the error of a failed run, else empty).
    """
    return pd.DataFrame([_row(folder) for folder in folders(specs, work, records)])


def grid_summary(name: str, status: pd.DataFrame) -> str:
    """One line: the number of runs in each state, and the share of the FLOPs that is spent."""
    counts = status["state"].value_counts()
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if state in counts)
    share = (status["progress"] * status["budget"]).sum() / status["budget"].sum()
    return f"{name}: {states}; {share:.0%} of the FLOPs"


def _row(folder: RunFolder) -> dict[str, Any]:
    spec, state, last = folder.spec, folder.state, folder.last_step()
    speed = last.get("tokens_per_second")
    left = spec.train.n_tokens - last.get("tokens", 0)
    result = json.loads(folder.record.read_text())["result"] if state == "done" else None
    row = spec.row()
    return {name: row[name] for name in SHOWN} | {
        "state": state,
        "progress": 1.0 if result else last.get("step", 0) / spec.n_steps,
        "tokens_per_second": result["tokens_per_second"] if result else speed,
        "eta_seconds": left / speed if state == "running" and speed else None,
        "val_loss": result["val_loss"] if result else None,
        "failure": folder.failure() if state == "failed" else "",
    }
