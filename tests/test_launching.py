"""Grids on a fake engine, on local processes and on a real SLURM; failed, killed, repeated runs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("submitit")

import filelock  # noqa: E402
import slurm  # noqa: E402
from tiny import make_corpus, spec_of  # noqa: E402

import looped  # noqa: E402
from looped.launching import engine as engines  # noqa: E402
from looped.launching.collect import collect  # noqa: E402
from looped.launching.engine import Engine, launch  # noqa: E402
from looped.launching.folder import RunFolder, grid_status  # noqa: E402
from looped.launching.job import Job, TrainOptions  # noqa: E402
from looped.registry.record import read_record  # noqa: E402
from looped.training import names  # noqa: E402
from looped.training.checkpoint import list_checkpoints  # noqa: E402

pytestmark = pytest.mark.train

needs_slurm = pytest.mark.skipif(slurm.why_not() is not None, reason=str(slurm.why_not()))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def options(corpus):
    return TrainOptions(corpus=str(corpus.folder), device="cpu", checkpoint_every=4)


@pytest.fixture(scope="module", params=["local", pytest.param("slurm", marks=needs_slurm)])
def engine(request, tmp_path_factory):
    """Both engines; SLURM runs during the tests that use it."""
    made = Engine(cluster=request.param, parallel=2, hours=0.2)
    if request.param == "local":
        yield made
        return
    with slurm.single_node(tmp_path_factory.mktemp("slurm")):
        yield made


def specs(n=3):
    return [spec_of(seed=seed) for seed in range(n)]


def long_spec(steps=4000):
    """A run that is still running when it is killed."""
    return spec_of(steps=steps, seed=99)


def wait_for(ready, seconds=300.0):
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"not ready after {seconds} s"
        time.sleep(0.02)


def kill_trainer_of(run: RunFolder) -> None:
    """SIGKILL for the process that trains in a folder, once it has a checkpoint."""
    wait_for(lambda: list_checkpoints(run.path))
    assert kill_holders(run.path / names.METRICS)


def kill_holders(file: Path, number=signal.SIGKILL) -> list[int]:
    """Send a signal to all processes that have a file open; their process ids."""
    holders = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _holds(path, file)]
    for pid in holders:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return holders


def _holds(process: Path, file: Path) -> bool:
    try:
        return any(link.resolve() == file for link in (process / "fd").iterdir())
    except OSError:
        return False


@dataclass
class InProcess:
    """An executor that runs each job at once in this process; "killed" jobs only leave a log."""

    folder: Path
    killed: tuple[str, ...] = ()
    submitted: list = field(default_factory=list)

    def submit(self, job: Job):
        run_id = Path(job.folder).name
        self.submitted.append(run_id)
        stderr = self.folder / f"{run_id}.log"
        if run_id in self.killed:
            stderr.write_text("\n".join(f"line {number}" for number in range(20)))
        else:
            with suppress(Exception):  # the job has written its failure
                job()
        return SimpleNamespace(done=lambda: True, paths=SimpleNamespace(stderr=stderr))


class TestInProcess:
    @pytest.fixture
    def executor(self, tmp_path, monkeypatch):
        monkeypatch.setattr(engines, "POLL_SECONDS", 0.0)
        monkeypatch.setattr(engines, "POLLS_PER_REPORT", 1)
        made = InProcess(tmp_path)
        monkeypatch.setattr(Engine, "executor", lambda self, jobs: made)
        return made

    def test_failed_and_killed_runs_do_not_stop_the_others(self, executor, options, tmp_path):
        """Launched again, only runs without a record are started."""
        bad, killed = spec_of(lr_norm=3e38), spec_of(seed=9)
        executor.killed = (killed.run_id,)
        status = launch([bad, killed, *specs(2), bad], tmp_path, options=options)
        assert status["state"].to_list() == ["failed", "failed", "done", "done"]
        assert "is not finite" in status["failure"][0]
        assert status["failure"][1].startswith("the process ended without an error message")
        assert status["failure"][1].splitlines()[1:] == [f"line {n}" for n in range(8, 20)]
        executor.submitted.clear()
        executor.killed = ()
        assert launch([killed, *specs(2)], tmp_path, options=options)["state"].eq("done").all()
        assert executor.submitted == [killed.run_id]

    def test_progress_counts_the_runs_that_are_done(self, executor, options, tmp_path):
        seen = []
        status = launch(
            specs(3),
            tmp_path,
            options=options,
            limit=2,
            progress=lambda done, total: seen.append((done, total)),
        )
        assert status["state"].to_list() == ["done", "done", "waiting"]
        assert seen[-1] == (2, 3)
        assert seen == sorted(seen)

    def test_a_run_that_another_process_trains_is_not_started(
        self, executor, options, tmp_path, monkeypatch
    ):
        free, held = specs(2)
        states = iter(["running", "running", "done"])
        real = RunFolder.state.fget

        def state(run):
            return next(states, "done") if run.spec == held else real(run)

        todo = [RunFolder(spec, tmp_path / spec.run_id) for spec in (free, held)]
        monkeypatch.setattr(RunFolder, "state", property(state))
        engines._Local(Engine(), options, tmp_path).run(todo, lambda: None)
        assert executor.submitted == [free.run_id]

    def test_a_collected_record_is_done(self, executor, options, tmp_path):
        launch(specs(2), tmp_path / "work", options=options)
        collect(specs(2), tmp_path / "work", tmp_path / "runs")
        executor.submitted.clear()
        launch(specs(2), tmp_path / "other", records=tmp_path / "runs", options=options)
        assert executor.submitted == []


@pytest.mark.slow
class TestEngines:
    def test_a_grid_with_one_run_that_raises_and_one_that_is_killed(
        self, engine, options, tmp_path
    ):
        """The others finish; launched again, only those that have no record are run."""
        bad = spec_of(lr_norm=3e38)
        killed = long_spec()
        grid = [*specs(), bad, killed, specs()[0]]  # one of them twice
        run = RunFolder(killed, tmp_path / killed.run_id)
        killer = threading.Thread(target=kill_trainer_of, args=[run])
        killer.start()
        status = launch(grid, tmp_path, engine=engine, options=options).set_index("run_id")
        killer.join()
        assert len(status) == 5
        assert (status.loc[[s.run_id for s in specs()], "state"] == "done").all()
        assert status.loc[bad.run_id, "state"] == "failed"
        assert "is not finite" in status.loc[bad.run_id, "failure"]
        assert status.loc[killed.run_id, "state"] == "failed"
        assert "without an error message" in status.loc[killed.run_id, "failure"]

        written = {
            path: path.stat().st_mtime_ns for path in tmp_path.glob("*/????????????????.json")
        }
        again = launch(specs(4), tmp_path, engine=engine, options=options)
        assert (again["state"] == "done").all()
        assert all(path.stat().st_mtime_ns == when for path, when in written.items())

    def test_a_killed_run_resumes_from_its_checkpoint(self, engine, options, tmp_path):
        spec = spec_of(steps=400)
        run = RunFolder(spec, tmp_path / spec.run_id)
        killer = threading.Thread(target=kill_trainer_of, args=[run])
        killer.start()
        first = launch([spec], tmp_path, engine=engine, options=options)
        killer.join()
        assert first["state"].to_list() == ["failed"]
        assert 0 < first["progress"][0] < 1
        second = launch([spec], tmp_path, engine=engine, options=options)
        assert second["state"].to_list() == ["done"]
        assert read_record(run.record).provenance.resumed == 1
        assert len(looped.read_metrics(run.path)) == 400

    def test_a_limit_on_the_runs_that_are_started(self, engine, options, tmp_path):
        status = launch(specs(), tmp_path, engine=engine, options=options, limit=1)
        assert status["state"].to_list() == ["done", "waiting", "waiting"]


def test_the_options_of_a_run_of_two_processes_reach_torchrun(monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    options = TrainOptions(corpus="c", device="cpu", compile=True, micro_rows=4)
    job = Job(spec_of().to_dict(), str(tmp_path), options, processes=2)
    assert job() == spec_of().run_id
    (command,) = commands
    processes = command.index("--nproc-per-node")
    assert command[processes : processes + 5] == ["--nproc-per-node", "2", "-m", "looped", "train"]
    values = dict(zip(command[processes + 5 :: 2], command[processes + 6 :: 2], strict=False))
    assert values["--out"] == str(tmp_path)
    assert looped.RunSpec.from_dict(json.loads(Path(values["--spec"]).read_text())) == spec_of()
    given = ["--corpus", "c", "--device", "cpu", "--attention", "auto", "--compile"]
    assert command[command.index("--corpus") :] == [*given, "--micro-rows", "4"]


@pytest.mark.slow
def test_a_run_of_two_processes_is_started_by_torchrun(options, tmp_path):
    spec = spec_of()
    job = Job(spec.to_dict(), str(tmp_path), options, processes=2)
    try:
        job()
    except subprocess.CalledProcessError:
        pass  # gloo may abort at exit after the run is done: the record decides
    record = read_record(tmp_path / f"{spec.run_id}.json")
    assert record.provenance.stretches[-1].n_processes == 2
    assert record.run_spec == spec


@pytest.mark.slow
def test_a_preempted_run_is_queued_again_and_resumes(options, tmp_path):
    """A local job gets the signal that SLURM sends before a time-out or a preemption."""
    spec = spec_of(steps=600)
    run = RunFolder(spec, tmp_path / spec.run_id)
    job = Engine().executor(tmp_path / ".jobs").submit(Job(spec.to_dict(), str(run.path), options))
    wait_for(lambda: list_checkpoints(run.path))
    kill_holders(run.path / names.METRICS, signal.SIGUSR2)
    wait_for(job.done)
    assert read_record(run.record).provenance.resumed == 1
    assert len(looped.read_metrics(run.path)) == 600
    assert run.state == "done"


@pytest.mark.slow
def test_two_launchers_never_run_a_spec_twice(options, tmp_path):
    grid = specs(4)
    engine = Engine(parallel=1)
    results = {}

    def one(number):
        results[number] = launch(grid, tmp_path, engine=engine, options=options)

    threads = [threading.Thread(target=one, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for status in results.values():
        assert (status["state"] == "done").all()
    for spec in grid:
        record = read_record(RunFolder(spec, tmp_path / spec.run_id).record)
        assert record.provenance.resumed == 0
        steps_seen = [line["step"] for line in looped.read_metrics(tmp_path / spec.run_id)]
        assert steps_seen == list(range(1, spec.n_steps + 1))


LAUNCHER = """
import sys
sys.path.insert(0, {tests!r})
from tiny import spec_of
from looped.launching.engine import Engine, launch
from looped.launching.job import TrainOptions
options = TrainOptions(corpus={corpus!r}, device="cpu", checkpoint_every=4)
launch([spec_of(seed=s, steps=600) for s in range(4)], {work!r}, engine=Engine(), options=options)
"""


@pytest.mark.slow
def test_killing_launchers_and_runs_loses_no_record_and_repeats_none(corpus, tmp_path):
    """SIGKILL at twenty random times, to the launcher or to a run, each followed by a launch."""
    code = LAUNCHER.format(
        tests=str(Path(__file__).parent), corpus=str(corpus.folder), work=str(tmp_path)
    )
    grid = [spec_of(seed=seed, steps=600) for seed in range(4)]
    runs = [RunFolder(spec, tmp_path / spec.run_id) for spec in grid]
    rng = np.random.default_rng(0)
    seen: dict[str, bytes] = {}
    for kill in range(20):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([sys.executable, "-c", code], **quiet)
        end = time.monotonic() + rng.uniform(0.5, 5)
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.02)
        held = [run for run in runs if run.is_held() and list_checkpoints(run.path)]
        if held and kill % 2:
            kill_holders(held[0].path / names.METRICS)
        process.kill()
        process.wait()
        for run in runs:
            if run.record.is_file():
                text = run.record.read_bytes()
                assert seen.setdefault(run.spec.run_id, text) == text
    options = TrainOptions(corpus=str(corpus.folder), device="cpu", checkpoint_every=4)
    status = launch(grid, tmp_path, engine=Engine(), options=options)
    assert (status["state"] == "done").all()
    for run in runs:
        if run.spec.run_id in seen:
            assert run.record.read_bytes() == seen[run.spec.run_id]
        steps_seen = [line["step"] for line in looped.read_metrics(run.path)]
        assert steps_seen == list(range(1, 601))


class TestStatus:
    def test_of_a_grid_that_was_not_started(self, tmp_path):
        status = grid_status(specs(), tmp_path / "nowhere")
        assert status["state"].to_list() == ["waiting"] * 3
        assert status["progress"].sum() == 0
        assert status["val_loss"].isna().all()

    def test_of_a_run_whose_folder_is_locked(self, tmp_path):
        spec = spec_of(steps=100)
        folder = tmp_path / spec.run_id
        folder.mkdir()
        line = {"step": 25, "tokens": spec.train.n_tokens // 4, "tokens_per_second": 50.0}
        (folder / names.METRICS).write_text("{}\n" * 2000 + json.dumps(line) + '\n{"step": 2')
        with filelock.FileLock(folder / names.LOCK):
            (row,) = grid_status([spec], tmp_path).itertuples()
        assert (row.state, row.progress, row.tokens_per_second) == ("running", 0.25, 50.0)
        assert row.eta_seconds == spec.train.n_tokens * 0.75 / 50
        (row,) = grid_status([spec], tmp_path).itertuples()
        assert (row.state, row.progress, row.eta_seconds) == ("stopped", 0.25, None)

    @pytest.mark.slow
    def test_of_a_run_in_progress(self, options, tmp_path):
        spec = long_spec(steps=20_000)
        run = RunFolder(spec, tmp_path / spec.run_id)
        thread = threading.Thread(
            target=launch, args=[[spec], tmp_path], kwargs={"options": options, "engine": Engine()}
        )
        thread.start()
        wait_for(run.last_step)
        (row,) = grid_status([spec], tmp_path).itertuples()
        assert row.state == "running"
        assert 0 < row.progress < 1
        assert row.eta_seconds == pytest.approx(
            spec.train.n_tokens * (1 - row.progress) / row.tokens_per_second
        )
        kill_trainer_of(run)
        thread.join()


class TestCollect:
    @pytest.fixture(scope="class")
    @classmethod
    def work(cls, corpus, tmp_path_factory):
        folder = tmp_path_factory.mktemp("work")
        for spec in specs(2):
            looped.train(spec, folder / spec.run_id, corpus=corpus, device="cpu")
        return folder

    def test_records_and_their_table(self, work, tmp_path):
        out = tmp_path / "runs"
        seen = []

        def progress(done, total):
            seen.append((done, total))

        counts = collect(specs(3), work, out, progress=progress)
        assert counts == {"new": 2, "known": 0, "missing": 1}
        assert seen == [(1, 3), (2, 3), (3, 3)]
        assert collect(specs(3), work, out) == {"new": 0, "known": 2, "missing": 1}
        table = looped.load_runs(out)
        assert sorted(table["seed"]) == [0, 1]
        kept = pd.read_csv(out / "table.csv")
        assert kept["val_loss"].to_list() == table["val_loss"].to_list()

    def test_a_record_that_contradicts_itself_is_refused(self, work, tmp_path):
        spec = specs(1)[0]
        broken = tmp_path / "work" / spec.run_id / f"{spec.run_id}.json"
        broken.parent.mkdir(parents=True)
        record = json.loads((work / spec.run_id / broken.name).read_text())
        record["spec"]["train"]["seed"] = 5
        broken.write_text(json.dumps(record))
        with pytest.raises(looped.RecordError, match="not that of its spec"):
            collect([spec], tmp_path / "work", tmp_path / "runs")
        assert not (tmp_path / "runs" / broken.name).exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cluster": "cloud"}, "cluster: got 'cloud'"),
        ({"parallel": 0}, "parallel"),
        ({"hours": 0}, "hours: got 0"),
    ],
)
def test_impossible_engines_are_refused(settings, message):
    with pytest.raises(looped.ConfigError, match=message):
        Engine(**settings)


def test_an_engine_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(looped.ConfigError, match=r"looped\[grid\]"):
        launch(specs(1), tmp_path, engine=replace(Engine(), parallel=1))
