"""What an engine runs: one run of a grid, in a process of its own."""

import json
import os
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path

from looped.launching.folder import FAILURE, RunFolder
from looped.spec import RunSpec

FAILURE_LINES = 12


@dataclass(frozen=True)
class TrainOptions:
    """How runs are trained: arguments of `looped.train` that do not decide the result."""

    corpus: str | None = None
    device: str = "auto"
    attention: str = "auto"
    compile: bool = False
    micro_rows: int | None = None
    checkpoint_every: int | None = None


@dataclass(frozen=True)
class Job:
    """Trains one spec in its folder; submitit calls it on the machine that it chose.

    `checkpoint` is submitit's: before a time-out or preemption it asks for a job to queue again.
    The same one will do, since training goes on from the newest checkpoint.
    """

    spec: dict
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
            told = traceback.format_exc().strip().splitlines()[-FAILURE_LINES:]
            (run.path / FAILURE).write_text("\n".join(told) + "\n")
            raise
        return run.spec.run_id

    def checkpoint(self, *_args):
        """The job to queue again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _train(self, run: RunFolder) -> None:
        # One thread each: more of them fight over the cores that the other runs are on.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if self.processes == 1:
            import looped

            looped.train(run.spec, run.path, **asdict(self.options))
            return
        path = run.path / "asked.json"
        path.write_text(json.dumps(self.spec))
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
