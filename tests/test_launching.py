"""Grids on real engines: local processes and a real SLURM; what fails, dies or comes twice."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("submitit")

import slurm  # noqa: E402
from tiny import make_corpus, spec_of  # noqa: E402

import looped  # noqa: E402
from looped.launching.collect import collect  # noqa: E402
from looped.launching.engine import Engine, launch  # noqa: E402
from looped.launching.folder import RunFolder, grid_status  # noqa: E402
from looped.launching.job import Job, TrainOptions  # noqa: E402
from looped.training import names  # noqa: E402
from looped.training.checkpoint import list_checkpoints  # noqa: E402

needs_slurm = pytest.mark.skipif(slurm.why_not() is not None, reason=str(slurm.why_not()))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def options(corpus):
    return TrainOptions(corpus=str(corpus.folder), device="cpu", checkpoint_every=4)


@pytest.fixture(scope="module", params=["local", pytest.param("slurm", marks=needs_slurm)])
def engine(request, tmp_path_factory):
    """Both engines; SLURM is started for the tests that ask for it."""
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
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def kill_trainer_of(run: RunFolder) -> None:
    """SIGKILL for the process that trains in a folder, once it has a checkpoint."""
    wait_for(lambda: list_checkpoints(run.path))
    assert kill_holders(run.path / names.METRICS)


def kill_holders(file: Path, number=signal.SIGKILL) -> list[int]:
    """A signal for the processes that have a file open, if there are any left; their numbers."""
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
        assert "without a word" in status.loc[killed.run_id, "failure"]

        written = {
            path: path.stat().st_mtime_ns for path in tmp_path.glob("*/????????????????.json")
        }
        again = launch(specs(4), tmp_path, engine=engine, options=options)
        assert (again["state"] == "done").all()
        assert all(path.stat().st_mtime_ns == when for path, when in written.items())

    def test_a_killed_run_goes_on_from_its_checkpoint(self, engine, options, tmp_path):
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
        assert looped.read_record(run.record).provenance.resumed == 1
        assert len(looped.read_metrics(run.path)) == 400

    def test_a_limit(self, engine, options, tmp_path):
        status = launch(specs(), tmp_path, engine=engine, options=options, limit=1)
        assert status["state"].to_list() == ["done", "waiting", "waiting"]


def test_a_run_of_two_processes_goes_through_torchrun(options, tmp_path):
    spec = spec_of()
    job = Job(spec.to_dict(), str(tmp_path), options, processes=2)
    try:
        job()
    except subprocess.CalledProcessError:
        pass  # gloo may abort at exit after all is done: the record judges
    record = looped.read_record(tmp_path / f"{spec.run_id}.json")
    assert record.provenance.stretches[-1].n_processes == 2
    assert record.run_spec == spec


def test_a_preempted_run_is_queued_again_and_goes_on(options, tmp_path):
    """The signal that SLURM sends before a time-out or preemption, to a local job."""
    spec = spec_of(steps=600)
    run = RunFolder(spec, tmp_path / spec.run_id)
    job = Engine().executor(tmp_path / ".jobs").submit(Job(spec.to_dict(), str(run.path), options))
    wait_for(lambda: list_checkpoints(run.path))
    kill_holders(run.path / names.METRICS, signal.SIGUSR2)
    wait_for(job.done)
    assert looped.read_record(run.record).provenance.resumed == 1
    assert len(looped.read_metrics(run.path)) == 600
    assert run.state == "done"


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
        record = looped.read_record(RunFolder(spec, tmp_path / spec.run_id).record)
        assert record.provenance.resumed == 0
        told = [line["step"] for line in looped.read_metrics(tmp_path / spec.run_id)]
        assert told == list(range(1, spec.n_steps + 1))


LAUNCHER = """
import sys
sys.path.insert(0, {tests!r})
from tiny import spec_of
from looped.launching.engine import Engine, launch
from looped.launching.job import TrainOptions
options = TrainOptions(corpus={corpus!r}, device="cpu", checkpoint_every=4)
launch([spec_of(seed=s, steps=600) for s in range(4)], {work!r}, engine=Engine(), options=options)
"""


def test_killing_launchers_and_runs_loses_no_record_and_repeats_none(corpus, tmp_path):
    """SIGKILL at twenty random moments, to the launcher or to a run, launching again each time."""
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
        told = [line["step"] for line in looped.read_metrics(run.path)]
        assert told == list(range(1, 601))


class TestStatus:
    def test_of_a_grid_that_nobody_started(self, tmp_path):
        status = grid_status(specs(), tmp_path / "nowhere")
        assert status["state"].to_list() == ["waiting"] * 3
        assert status["progress"].sum() == 0
        assert status["val_loss"].isna().all()

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
        assert collect(specs(3), work, out) == {"new": 2, "known": 0, "missing": 1}
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
def test_engines_that_cannot_be(settings, message):
    with pytest.raises(looped.ConfigError, match=message):
        Engine(**settings)


def test_an_engine_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(looped.ConfigError, match=r"looped\[grid\]"):
        launch(specs(1), tmp_path, engine=replace(Engine(), parallel=1))
