"""A job: one run of a grid, trained in a separate process."""

import json
import os
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from looped.files import write_whole
from looped.launching.folder import FAILURE, RunFolder
from looped.spec import RunSpec

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

FAILURE_LINES = 12


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Arguments of `looped.train` that do not affect the result."""

    corpus: str | None = None
    device: str = "auto"
    attention: str = "auto"
    compile: bool = False
    micro_rows: int | None = None
    checkpoint_every: int | None = None


@dataclass(frozen=True)
class Job:
    """Trains one spec in its folder; submitit calls it on the machine of the job."""

    spec: dict[str, Any]
    folder: str
    options: TrainOptions = field(default_factory=TrainOptions)
    processes: int = 1

    def __call__(self) -> str:
        run = RunFolder(RunSpec.from_dict(self.spec), Path(self.folder))
        run.path.mkdir(parents=True, exist_ok=True)
        (run.path / FAILURE).unlink(missing_ok=True)
        try:
            self._train(run)
        except Exception:
            lines = traceback.format_exc().strip().splitlines()[-FAILURE_LINES:]
            write_whole(run.path / FAILURE, "\n".join(lines) + "\n")
            raise
        return run.spec.run_id

    def checkpoint(self, *_args: Any) -> "DelayedSubmission":
        """The job that submitit queues again before a time-out or a preemption.

        It is the same job, since training resumes from the newest checkpoint.
        """
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _train(self, run: RunFolder) -> None:
        # One thread for each run: more would compete with the other runs for the cores.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if self.processes == 1:
            import looped

            looped.train(run.spec, run.path, **asdict(self.options))
            return
        path = run.path / "job.json"
        write_whole(path, json.dumps(self.spec))
        subprocess.run(self._torchrun(path, run.path), check=True)

    def _torchrun(self, spec: Path, folder: Path) -> list[str]:
        options = [
            item
            for name, value in asdict(self.options).items()
            if value not in (None, False)
            for item in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
        ]
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", str(self.processes), "-m", "looped", "train"]
        return [*launcher, "--spec", str(spec), "--out", str(folder), *options]
