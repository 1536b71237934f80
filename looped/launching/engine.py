"""Start the runs of a grid on an engine and see them through.

`submitit` starts them: as processes of this machine, or as an array of SLURM jobs. What is added
here: a run that is recorded or held by another process is not started, no more than `parallel`
run at a time, and one that dies without a word is seen as dead.
"""

import logging
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from looped.errors import ConfigError
from looped.extras import need
from looped.launching.folder import FAILURE, WORK, RunFolder, folders, grid_status
from looped.launching.job import Job, TrainOptions
from looped.spec import RunSpec

logger = logging.getLogger("looped")

CLUSTERS = ("local", "slurm")
JOBS = ".jobs"
POLL_SECONDS = 0.5
POLLS_A_LOOK = 4  # the status of a large grid takes a moment to read
LOG_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where and how runs are started."""

    cluster: str = "local"
    parallel: int = 2  # runs at a time
    gpus_per_run: int = 0
    cpus_per_run: int = 1
    hours: float = 24.0  # a run that takes longer is queued again and goes on
    partition: str | None = None

    def __post_init__(self):
        if self.cluster not in CLUSTERS:
            raise ConfigError(
                f"cluster: got {self.cluster!r}, expected one of {', '.join(CLUSTERS)}"
            )
        if self.parallel < 1 or self.gpus_per_run < 0 or self.cpus_per_run < 1:
            raise ConfigError(
                f"parallel, gpus_per_run, cpus_per_run: got {self.parallel}, {self.gpus_per_run}, "
                f"{self.cpus_per_run}, expected at least 1, 0, 1"
            )
        if not self.hours > 0:
            raise ConfigError(f"hours: got {self.hours}, expected more than 0")

    def executor(self, jobs: Path):
        """The submitit executor of this engine; its files go to `jobs`."""
        submitit = need("submitit", "grid")
        executor = submitit.AutoExecutor(folder=jobs, cluster=self.cluster)
        executor.update_parameters(
            name="looped",
            timeout_min=max(1, round(60 * self.hours)),
            gpus_per_node=self.gpus_per_run,
            cpus_per_task=self.cpus_per_run,
        )
        if self.cluster == "slurm":
            executor.update_parameters(slurm_array_parallelism=self.parallel)
            if self.partition:
                executor.update_parameters(slurm_partition=self.partition)
        return executor


def launch(
    specs: list[RunSpec],
    work: str | Path = WORK,
    *,
    records: str | Path | None = None,
    engine: Engine | None = None,
    options: TrainOptions | None = None,
    limit: int | None = None,
    watch: Callable[[pd.DataFrame], None] | None = None,
) -> pd.DataFrame:
    """Train what is not recorded of a grid, wait for the end, and return `grid_status`.

    Failed runs do not stop the others. Ctrl-C ends local runs after their step, with a checkpoint;
    SLURM jobs go on by themselves, and a later call waits for them.

    Args:
        specs: the grid.
        work: folder of the runs' folders; on a cluster one that its machines share.
        records: folder of collected records; what is recorded there is done.
        engine: where the runs are started.
        options: how they are trained.
        limit: start so many at most.
        watch: is given the status every few seconds.

    Raises:
        ConfigError: an engine that is not installed, or settings that cannot be.
    """
    work = Path(work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    engine, options = engine or Engine(), options or TrainOptions()
    runs = folders(specs, work, records)
    todo = [run for run in runs if run.state != "done"][:limit]
    if todo:
        launcher = (_Local if engine.cluster == "local" else _Slurm)(engine, options, work)
        launcher.run(todo, lambda: watch and watch(grid_status(specs, work, records)))
    return grid_status(specs, work, records)


class _Launcher:
    """Jobs of one launch: waiting ones in order, and those that the engine has."""

    def __init__(self, engine: Engine, options: TrainOptions, work: Path):
        self.engine, self.options = engine, options
        self.executor = engine.executor(work / JOBS / "%j")
        self.started: dict[str, tuple[RunFolder, object]] = {}
        self.polls = 0

    def job(self, run: RunFolder) -> Job:
        processes = max(1, self.engine.gpus_per_run)
        return Job(run.spec.to_dict(), str(run.path), self.options, processes)

    def wait(self, tell) -> None:
        """Until the next look at the jobs; now and then with a word on the grid."""
        self.polls += 1
        if self.polls % POLLS_A_LOOK == 0:
            tell()
        time.sleep(POLL_SECONDS)

    def settle(self) -> None:
        """Take the jobs that have ended off the list, and keep what is known of a failure."""
        for run_id, (run, job) in list(self.started.items()):
            if self.has_ended(job):
                del self.started[run_id]
                if run.state not in ("done", "running"):
                    _report(run, job)

    def has_ended(self, job) -> bool:
        raise NotImplementedError


class _Local(_Launcher):
    """Processes of this machine, `parallel` at a time."""

    def run(self, todo, tell) -> None:
        waiting = list(todo)
        try:
            while waiting or self.started:
                self._fill(waiting)
                self.settle()
                self.wait(tell)
        except KeyboardInterrupt:
            for _, job in self.started.values():
                job.cancel()
            raise

    def _fill(self, waiting) -> None:
        """Start what fits; a run that another process holds stays in line until it lets go."""
        for run in list(waiting):
            if len(self.started) == self.engine.parallel:
                return
            state = run.state
            if state == "running":
                continue
            waiting.remove(run)
            if state != "done":
                self.started[run.spec.run_id] = run, self.executor.submit(self.job(run))

    def has_ended(self, job) -> bool:
        return job.done()


class _Slurm(_Launcher):
    """One array of jobs. What has left the queue has ended, with or without accounting."""

    def run(self, todo, tell) -> None:
        held = [run for run in todo if run.state == "running"]
        todo = [run for run in todo if run not in held]
        jobs = self.executor.map_array(_call, [self.job(run) for run in todo]) if todo else []
        self.started = {run.spec.run_id: (run, job) for run, job in zip(todo, jobs, strict=True)}
        while self.started or any(run.state == "running" for run in held):
            self.queue = _queued()
            self.settle()
            self.wait(tell)

    def has_ended(self, job) -> bool:
        return self.queue is not None and job.job_id not in self.queue


def _call(job: Job) -> str:
    return job()


def _queued() -> set[str] | None:
    """Ids of all jobs in SLURM's queue, those of arrays one by one; None if it does not answer."""
    command = ["squeue", "--noheader", "--array", "--format=%i"]
    done = subprocess.run(command, capture_output=True, text=True)
    return set(done.stdout.split()) if done.returncode == 0 else None


def _report(run: RunFolder, job) -> None:
    """Say how a run failed; one that was killed has left no word but its log."""
    path = run.path / FAILURE
    if not path.is_file():
        log = Path(job.paths.stderr)
        told = (
            log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
            if log.is_file()
            else []
        )
        run.path.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "\n".join(["the process ended without a word; its log ends:", *told]) + "\n"
        )
    logger.warning("run %s failed:\n%s", run.spec.run_id, run.failure().rstrip())
