"""Start the runs of a grid on an engine and wait until they end.

`submitit` starts them, as local processes or as an array of SLURM jobs. This module adds: a run
that is recorded or that another process trains is not started, at most `parallel` runs are active
at a time, and jobs that are killed are detected.
"""

import logging
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from looped.errors import ConfigError, pick
from looped.extras import need
from looped.files import write_whole
from looped.launching.folder import FAILURE, WORK, RunFolder, folders, grid_status
from looped.launching.job import Job, TrainOptions
from looped.spec import RunSpec

if TYPE_CHECKING:
    import submitit

logger = logging.getLogger("looped")

CLUSTERS = ("local", "slurm")
JOBS = ".jobs"
POLL_SECONDS = 0.5
POLLS_PER_REPORT = 4  # the state of a large grid takes a moment to read
LOG_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where and how runs are started.

    Raises:
        ConfigError: an unknown cluster, or a number out of range.
    """

    cluster: str = "local"  # or "slurm"
    parallel: int = 2  # active runs at a time
    gpus_per_run: int = 0  # also the number of processes of a run
    cpus_per_run: int = 1
    hours: float = 24.0  # time limit of a job; a longer run is queued again and resumes
    partition: str | None = None  # of SLURM

    def __post_init__(self):
        pick("cluster", self.cluster, CLUSTERS)
        if self.parallel < 1 or self.gpus_per_run < 0 or self.cpus_per_run < 1:
            raise ConfigError(
                f"parallel, gpus_per_run, cpus_per_run: got {self.parallel}, {self.gpus_per_run}, "
                f"{self.cpus_per_run}, expected at least 1, 0, 1"
            )
        if not self.hours > 0:
            raise ConfigError(f"hours: got {self.hours}, expected more than 0")

    def executor(self, jobs: Path) -> "submitit.AutoExecutor":
        """The submitit executor of this engine, which writes its files to `jobs`.

        Raises:
            ConfigError: submitit is not installed.
        """
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
    specs: Sequence[RunSpec],
    work: str | Path = WORK,
    *,
    records: str | Path | None = None,
    engine: Engine | None = None,
    options: TrainOptions | None = None,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Train all runs of a grid without a record, wait until they end, and return `grid_status`.

    A failed run does not stop the others. Ctrl-C stops local runs after their current step, with a
    checkpoint; SLURM jobs continue, and a later call waits for them.

    Args:
        specs: the grid.
        work: parent of the runs' work folders; on a cluster a folder that its machines share.
        records: folder of collected records; a run with a record there is done.
        engine: where the runs are started; None: `Engine()`, local processes.
        options: how the runs are trained; None: `TrainOptions()`.
        limit: most runs to start; None: all.
        progress: called every few seconds with (done, total), in runs of the grid.

    Raises:
        ConfigError: an engine that is not installed.
    """
    work = Path(work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    engine, options = engine or Engine(), options or TrainOptions()
    runs = folders(specs, work, records)
    todo = [run for run in runs if run.state != "done"][:limit]

    def report() -> None:
        if progress:
            progress(sum(run.record.is_file() for run in runs), len(runs))

    if todo:
        launcher = (_Local if engine.cluster == "local" else _Slurm)(engine, options, work)
        launcher.run(todo, report)
    report()
    return grid_status(specs, work, records)


class _Launcher:
    """Starts the jobs of one launch; `started` holds those that have not ended."""

    def __init__(self, engine: Engine, options: TrainOptions, work: Path):
        self.engine, self.options = engine, options
        self.executor = engine.executor(work / JOBS / "%j")
        self.started: dict[str, tuple[RunFolder, submitit.Job[str]]] = {}
        self.polls = 0

    def job(self, run: RunFolder) -> Job:
        processes = max(1, self.engine.gpus_per_run)
        return Job(run.spec.to_dict(), str(run.path), self.options, processes)

    def wait(self, report: Callable[[], None]) -> None:
        """Sleep until the next look at the jobs; report progress every few looks."""
        self.polls += 1
        if self.polls % POLLS_PER_REPORT == 0:
            report()
        time.sleep(POLL_SECONDS)

    def settle(self) -> None:
        """Remove the jobs that have ended, and report those that failed."""
        for run_id, (run, job) in list(self.started.items()):
            if self.has_ended(job):
                del self.started[run_id]
                if run.state not in ("done", "running"):
                    _report(run, job)

    def has_ended(self, job: "submitit.Job[str]") -> bool:
        raise NotImplementedError

    def run(self, todo: list[RunFolder], report: Callable[[], None]) -> None:
        raise NotImplementedError


class _Local(_Launcher):
    """Processes of this machine, `parallel` at a time."""

    def run(self, todo: list[RunFolder], report: Callable[[], None]) -> None:
        waiting = list(todo)
        try:
            while waiting or self.started:
                self._fill(waiting)
                self.settle()
                self.wait(report)
        except KeyboardInterrupt:
            for _, job in self.started.values():
                job.cancel()
            raise

    def _fill(self, waiting: list[RunFolder]) -> None:
        """Start runs up to the limit; a run that another process trains stays in the queue."""
        for run in list(waiting):
            if len(self.started) == self.engine.parallel:
                return
            state = run.state
            if state == "running":
                continue
            waiting.remove(run)
            if state != "done":
                self.started[run.spec.run_id] = run, self.executor.submit(self.job(run))

    def has_ended(self, job: "submitit.Job[str]") -> bool:
        return job.done()


class _Slurm(_Launcher):
    """One array of jobs. A job that has left the queue has ended, with or without accounting."""

    queue: set[str] | None

    def run(self, todo: list[RunFolder], report: Callable[[], None]) -> None:
        held = [run for run in todo if run.state == "running"]
        todo = [run for run in todo if run not in held]
        jobs = self.executor.map_array(_call, [self.job(run) for run in todo]) if todo else []
        self.started = {run.spec.run_id: (run, job) for run, job in zip(todo, jobs, strict=True)}
        while self.started or any(run.state == "running" for run in held):
            self.queue = _queued()
            self.settle()
            self.wait(report)

    def has_ended(self, job: "submitit.Job[str]") -> bool:
        return self.queue is not None and job.job_id not in self.queue


def _call(job: Job) -> str:
    return job()


def _queued() -> set[str] | None:
    """Ids of all jobs in SLURM's queue, array jobs one by one; None if SLURM does not answer."""
    command = ["squeue", "--noheader", "--array", "--format=%i"]
    done = subprocess.run(command, capture_output=True, text=True)
    return set(done.stdout.split()) if done.returncode == 0 else None


def _report(run: RunFolder, job: "submitit.Job[str]") -> None:
    """Log the failure of a run; for a killed run, which wrote none, the end of its log."""
    path = run.path / FAILURE
    if not path.is_file():
        stderr = Path(job.paths.stderr)
        log = stderr.read_text(errors="replace") if stderr.is_file() else ""
        lines = ["the process ended without an error message; its log ends:"]
        lines += log.strip().splitlines()[-LOG_LINES:]
        run.path.mkdir(parents=True, exist_ok=True)
        write_whole(path, "\n".join(lines) + "\n")
    logger.warning("run %s failed:\n%s", run.spec.run_id, run.failure().rstrip())
