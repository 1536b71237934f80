"""What the folder of a run says about it."""

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from looped.extras import need
from looped.spec import RunSpec
from looped.training.names import LOCK, METRICS

WORK = Path("work")
FAILURE = "failure.txt"
LAST_BYTES = 4096  # hold more than one line of metrics
SHOWN = ("run_id", "case", "n_recur", "variant", "d_model", "budget", "n_tokens", "seed")
STATES = ("done", "running", "failed", "stopped", "waiting")


@dataclass(frozen=True)
class RunFolder:
    """The work folder of one run of a grid, and the folder of collected records, if any."""

    spec: RunSpec
    path: Path
    records: Path | None = None

    @property
    def record(self) -> Path:
        """Where the record is: collected, or in the work folder once the run is done."""
        name = f"{self.spec.run_id}.json"
        if self.records and (self.records / name).is_file():
            return self.records / name
        return self.path / name

    @property
    def state(self) -> str:
        """One of STATES: `failed` and `stopped` runs go on when they are launched again."""
        if self.record.is_file():
            return "done"
        if self.is_held():
            return "running"
        if (self.path / FAILURE).is_file():
            return "failed"
        return "stopped" if (self.path / METRICS).is_file() else "waiting"

    def is_held(self) -> bool:
        """Whether a process is training here."""
        if not (self.path / LOCK).is_file():
            return False
        filelock = need("filelock", "grid")
        try:
            with filelock.FileLock(self.path / LOCK, timeout=0):
                return False
        except filelock.Timeout:
            return True

    def failure(self) -> str:
        """Last lines of what the last attempt said, if it failed."""
        path = self.path / FAILURE
        return path.read_text() if path.is_file() else ""

    def last_step(self) -> dict:
        """Metrics of the newest step; empty before the first."""
        path = self.path / METRICS
        if not path.is_file():
            return {}
        with path.open("rb") as file:  # the end of it: a long run has a long file
            file.seek(max(0, path.stat().st_size - LAST_BYTES))
            whole = file.read().decode().split("\n")[:-1]
        return json.loads(whole[-1]) if whole else {}


def folders(
    specs: list[RunSpec], work: str | Path, records: str | Path | None = None
) -> list[RunFolder]:
    """Folder of each spec, in the order given; equal specs are one run."""
    records = None if records is None else Path(records)
    by_id = {spec.run_id: spec for spec in specs}
    return [RunFolder(spec, Path(work) / run_id, records) for run_id, spec in by_id.items()]


def grid_status(
    specs: list[RunSpec], work: str | Path = WORK, records: str | Path | None = None
) -> pd.DataFrame:
    """Where each run of a grid stands, read off the folders.

    Args:
        specs: the grid.
        work: folder of the runs' folders.
        records: folder of records that were collected, such as `runs/laptop`.

    Columns: run_id, case, n_recur, variant, d_model, budget, n_tokens, seed, state, progress (0 to
    1), tokens_per_second, eta_seconds (of this run, missing where unknown), val_loss, failure.
    """
    return pd.DataFrame([_row(folder) for folder in folders(specs, work, records)])


def summary(name: str, status: pd.DataFrame) -> str:
    """One line: how many runs are in each state, and how much of the FLOPs is spent."""
    counts = status["state"].value_counts()
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if state in counts)
    share = (status["progress"] * status["budget"]).sum() / status["budget"].sum()
    return f"{name}: {states}; {share:.0%} of the FLOPs"


def _row(folder: RunFolder) -> dict:
    spec, state, last = folder.spec, folder.state, folder.last_step()
    speed = last.get("tokens_per_second")
    left = spec.train.n_tokens - last.get("tokens", 0)
    running = state == "running" and speed
    record = json.loads(folder.record.read_text()) if state == "done" else None
    row = spec.row()
    return {
        **{name: row[name] for name in SHOWN},
        "state": state,
        "progress": 1.0 if record else last.get("step", 0) / spec.n_steps,
        "tokens_per_second": record["result"]["tokens_per_second"] if record else speed,
        "eta_seconds": left / speed if running else None,
        "val_loss": record["result"]["val_loss"] if record else None,
        "failure": folder.failure() if state == "failed" else "",
    }
