"""Runs from spec to record: the same bits after a stop, the same losses on two processes."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from filelock import FileLock  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402
from tiny import STEPS, VOCAB, make_corpus, spec_of  # noqa: E402

import looped  # noqa: E402
from looped.data.sources.files import OwnText  # noqa: E402
from looped.registry.record import read_record  # noqa: E402
from looped.training import checkpoint, metrics, names, trainer  # noqa: E402
from looped.training.distributed import Ranks, choose_device  # noqa: E402
from looped.training.loop import open_corpus  # noqa: E402
from looped.training.signals import stop_signals  # noqa: E402
from looped.training.validate import validate  # noqa: E402

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A small prepared corpus."""
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def run(spec, folder, corpus, **options) -> looped.RunRecord:
    return looped.train(spec, folder, corpus=corpus, device="cpu", **options)


def weights(folder) -> dict[str, np.ndarray]:
    return load_file(checkpoint.list_checkpoints(folder)[-1] / "model.safetensors")


def losses(folder) -> list[float]:
    return [line["loss"] for line in looped.read_metrics(folder)]


def assert_same_run(one, other):
    assert losses(one) == losses(other)
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        np.testing.assert_array_equal(tensor, theirs[name], err_msg=name)


class Killed(Exception):
    """What stands for a process that dies between two steps."""


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run that nothing disturbed, and its record."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(spec_of(), folder, corpus)


class TestRecord:
    def test_says_what_was_trained_and_what_came_out(self, finished, corpus):
        _, record = finished
        spec, result = spec_of(), record.result
        assert record.run_spec == spec
        assert record.counts == looped.counts(spec.model)
        assert result.n_tokens == spec.train.n_tokens
        assert result.flops == pytest.approx(
            spec.train.n_tokens * looped.accounting.flops_per_token(spec.model)
        )
        assert 0 < result.val_loss < math.log(VOCAB)
        assert result.val_rows == len(corpus.validation)
        assert result.epochs == pytest.approx(4 * STEPS / len(corpus.train))
        assert record.provenance.corpus_sha256 == corpus.sha256
        assert record.provenance.stretches[0].versions["torch"] == torch.__version__

    def test_names_no_host_and_no_user(self, finished):
        import getpass
        import platform

        text = finished[1].model_dump_json()
        assert platform.node() not in text
        assert getpass.getuser() not in text.replace("hardware", "")

    def test_is_a_row_of_the_table_of_runs(self, finished):
        folder, record = finished
        only = folder / "records"
        only.mkdir(exist_ok=True)
        (only / f"{record.run_id}.json").write_text(record.model_dump_json())
        (row,) = looped.load_runs(only).itertuples()
        assert (row.n_recur, row.d_model, row.variant) == (2, 16, "linear")
        assert row.val_loss == record.result.val_loss
        assert row.n_params == looped.accounting.n_params(spec_of().model)
        assert row.source == "measured"

    def test_a_recorded_run_is_not_run_again(self, finished, corpus):
        folder, record = finished
        before = (folder / names.METRICS).stat().st_mtime_ns
        assert run(spec_of(), folder, corpus) == record
        assert (folder / names.METRICS).stat().st_mtime_ns == before

    def test_loss_falls_and_every_step_is_told(self, finished):
        folder, record = finished
        told = looped.read_metrics(folder)
        assert [line["step"] for line in told] == list(range(1, STEPS + 1))
        assert told[0]["loss"] == pytest.approx(math.log(VOCAB), abs=0.05)
        assert told[-1]["loss"] < told[0]["loss"]
        assert record.result.train_loss == told[-1]["loss"]  # a tenth of twelve steps
        assert told[0]["lr"] == 0.02

    def test_validation_is_the_mean_over_all_rows_with_its_error(self, finished, corpus):
        folder, record = finished
        model = looped.load_trained(folder)
        held_out = corpus.validation.rows(np.arange(len(corpus.validation)))
        rows = torch.from_numpy(held_out.astype(np.int64))
        with torch.no_grad():
            by_row = model.loss(rows, reduction="none").double().mean(dim=1).numpy()
        assert record.result.val_loss == pytest.approx(by_row.mean(), abs=1e-6)
        error = by_row.std(ddof=1) / math.sqrt(len(by_row))
        assert record.result.val_loss_se == pytest.approx(error, rel=1e-4)

    def test_parts_of_the_validation_add_up_to_the_whole(self, finished, corpus):
        folder, record = finished
        model = looped.load_trained(folder)
        parts = []

        class Part(Ranks):
            def sum(self, values):
                parts.append(values)
                return values

        for rank in range(3):
            validate(model, corpus.validation, Part(rank, 3, torch.device("cpu")))
        assert sum(parts).mean().item() == pytest.approx(record.result.val_loss, abs=1e-6)


class TestResume:
    @pytest.mark.parametrize("died_at", [1, 5, 6, STEPS])
    def test_a_run_that_died_goes_on_with_the_same_bits(
        self, died_at, finished, corpus, tmp_path, monkeypatch
    ):
        write = metrics.Metrics.write

        def dies(self, values):
            write(self, values)
            if values["step"] == died_at:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(metrics.Metrics, "write", dies)
            with pytest.raises(Killed):
                run(spec_of(), tmp_path, corpus, checkpoint_every=3)
        record = run(spec_of(), tmp_path, corpus, checkpoint_every=3)
        assert_same_run(tmp_path, finished[0])
        assert record.result.val_loss == finished[1].result.val_loss
        assert record.provenance.resumed == (died_at > 3)

    def test_a_run_that_is_resumed_elsewhere_tells_both_ways(self, corpus, tmp_path, monkeypatch):
        write = metrics.Metrics.write

        def dies(self, values):
            write(self, values)
            if values["step"] == 8:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(metrics.Metrics, "write", dies)
            with pytest.raises(Killed):
                run(spec_of(), tmp_path, corpus, checkpoint_every=3)
        monkeypatch.setattr(trainer.hardware, "hardware_name", lambda device: "another kind")
        record = run(spec_of(), tmp_path, corpus)
        first, second = record.provenance.stretches
        assert (first.first_step, second.first_step) == (0, 6)
        assert first.hardware != second.hardware == "another kind"

    def test_a_second_signal_does_not_wait_for_the_step(self):
        with stop_signals() as stopped:
            signal.raise_signal(signal.SIGINT)
            assert stopped.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_the_step_and_leaves_a_checkpoint(
        self, number, finished, corpus, tmp_path, monkeypatch
    ):
        write = metrics.Metrics.write

        def interrupts(self, values):
            write(self, values)
            if values["step"] == 4:
                os.kill(os.getpid(), number)

        before = signal.getsignal(number)
        with monkeypatch.context() as patch:
            patch.setattr(metrics.Metrics, "write", interrupts)
            with pytest.raises(KeyboardInterrupt, match="step 5 of 12"):
                run(spec_of(), tmp_path, corpus)
        assert signal.getsignal(number) == before
        assert [path.name for path in checkpoint.list_checkpoints(tmp_path)] == ["step-00000005"]
        run(spec_of(), tmp_path, corpus)
        assert_same_run(tmp_path, finished[0])

    def test_the_newest_checkpoints_stay_and_half_written_ones_are_not_read(
        self, finished, corpus, tmp_path, monkeypatch
    ):
        rename = type(tmp_path).rename

        def dies(self, target):
            if self.name == ".step-00000009.partial":
                raise Killed
            return rename(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(type(tmp_path), "rename", dies)
            with pytest.raises(Killed):
                run(spec_of(), tmp_path, corpus, checkpoint_every=3, keep=1)
        assert [path.name for path in checkpoint.list_checkpoints(tmp_path)] == ["step-00000006"]
        run(spec_of(), tmp_path, corpus, checkpoint_every=3, keep=2)
        kept = [path.name for path in checkpoint.list_checkpoints(tmp_path)]
        assert kept == ["step-00000009", "step-00000012"]
        assert_same_run(tmp_path, finished[0])

    def test_a_line_cut_short_by_a_kill_is_dropped(self, finished, corpus, tmp_path):
        run(spec_of(), tmp_path, corpus)
        path = tmp_path / names.METRICS
        path.write_text(path.read_text() + '{"step": 13, "lo')
        assert losses(tmp_path) == losses(finished[0])


class TestSameResult:
    @pytest.mark.parametrize("micro_rows", [1, 2])
    def test_in_several_passes(self, micro_rows, finished, corpus, tmp_path):
        record = run(spec_of(), tmp_path, corpus, micro_rows=micro_rows)
        np.testing.assert_allclose(losses(tmp_path), losses(finished[0]), rtol=2e-5)
        assert record.result.val_loss == pytest.approx(finished[1].result.val_loss, rel=1e-4)

    def test_another_seed_is_another_run(self, finished, corpus, tmp_path):
        run(spec_of(seed=1), tmp_path, corpus)
        assert losses(tmp_path) != losses(finished[0])


@pytest.mark.parametrize(
    "model",
    [
        {"variant": "none", "n_recur": 1, "n_loop": 2},
        {"variant": "linear", "n_recur": 4, "bptt": 2},
        {"variant": "additive", "bptt": 1},
        {"variant": "passthrough"},
        {"variant": "hyperconnect", "n_recur": 3},
    ],
)
def test_every_variant_trains(model, corpus, tmp_path):
    record = run(spec_of(model=model), tmp_path, corpus)
    told = losses(tmp_path)
    assert told[-1] < told[0] - 0.3
    assert record.result.val_loss < told[0]


class TestStops:
    def test_on_a_loss_that_is_no_number(self, corpus, tmp_path):
        spec = spec_of(lr_norm=3e38)
        with pytest.raises(looped.TrainingError, match=r"step \d+: .*gradient of .* is not finite"):
            run(spec, tmp_path, corpus, checkpoint_every=1)
        assert checkpoint.list_checkpoints(tmp_path)
        assert not list(tmp_path.glob(f"{spec.run_id}.json"))

    def test_in_the_folder_of_another_run(self, finished, corpus):
        with pytest.raises(looped.ConfigError, match="has results of another run"):
            run(spec_of(seed=7), finished[0], corpus)

    def test_on_another_corpus_than_it_was_begun_on(self, corpus, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(trainer.Trainer, "validate", lambda self: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(spec_of(), tmp_path, corpus)
        other = replace(corpus, manifest=corpus.manifest | {"sha256": "0" * 64})
        with pytest.raises(looped.ConfigError, match=r"corpus: got 000.* was started"):
            run(spec_of(), tmp_path, other)

    def test_a_folder_where_nothing_was_trained_is_free(self, corpus, tmp_path):
        with pytest.raises(looped.ConfigError, match="flash2"):
            run(spec_of(seed=5), tmp_path, corpus, attention="flash2")
        assert run(spec_of(seed=6), tmp_path, corpus).run_spec.train.seed == 6

    @pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "state.json"])
    def test_on_a_damaged_checkpoint(self, name, finished, corpus, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(trainer.Trainer, "validate", lambda self: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(spec_of(), tmp_path, corpus, checkpoint_every=4)
        newest = checkpoint.list_checkpoints(tmp_path)[-1]
        (newest / name).write_bytes(b"{")
        with pytest.raises(looped.ConfigError, match=r"step-00000012 is damaged .* delete"):
            run(spec_of(), tmp_path, corpus)
        shutil.rmtree(newest)
        run(spec_of(), tmp_path, corpus)  # as the message says
        assert_same_run(tmp_path, finished[0])

    @pytest.mark.parametrize("text", ["", '{"step": 1}\nstep two\n'])
    def test_on_lost_metrics(self, text, corpus, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(trainer.Trainer, "validate", lambda self: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(spec_of(), tmp_path, corpus)
        (tmp_path / names.METRICS).write_text(text)
        with pytest.raises(looped.ConfigError, match=names.METRICS):
            run(spec_of(), tmp_path, corpus)

    def test_when_the_disk_is_full(self, finished, corpus, tmp_path, monkeypatch):
        save = checkpoint.save_model

        def full(model, path):
            if "step-00000006" in path:
                raise OSError(28, "No space left on device")
            save(model, path)

        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "save_model", full)
            with pytest.raises(looped.TrainingError, match=r"step 6: .*No space left"):
                run(spec_of(), tmp_path, corpus, checkpoint_every=3)
        kept = sorted(path.name for path in (tmp_path / names.CHECKPOINTS).iterdir())
        assert kept == ["step-00000003"]
        run(spec_of(), tmp_path, corpus)
        assert_same_run(tmp_path, finished[0])

    def test_while_another_process_trains_there(self, corpus, tmp_path):
        with FileLock(tmp_path / ".lock"):
            with pytest.raises(looped.ConfigError, match="another process"):
                run(spec_of(), tmp_path, corpus)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"device": "abacus"}, "device: got 'abacus'"),
            ({"attention": "flash2"}, "flash2"),
            ({"micro_rows": 3}, "divisor of the 4 rows"),
            ({"keep": 0}, "keep: got 0"),
            ({"checkpoint_every": -1}, "checkpoint_every: got -1"),
            ({"trackers": ["diary"]}, "tracker: got 'diary'"),
        ],
    )
    def test_on_settings_that_cannot_be(self, options, message, corpus, tmp_path):
        with pytest.raises(looped.ConfigError, match=message):
            looped.train(spec_of(), tmp_path, corpus=corpus, **{"device": "cpu"} | options)

    @pytest.mark.parametrize(
        ("model", "message"),
        [({"seq_len": 16}, "rows of 32 tokens"), ({"vocab_size": 64}, "vocabulary of")],
    )
    def test_on_a_corpus_that_does_not_fit(self, model, message, corpus, tmp_path):
        with pytest.raises(looped.ConfigError, match=message):
            run(spec_of(model=model), tmp_path, corpus)

    @pytest.mark.parametrize("name", ["text", "text-packed", "text-packed@{digest}"])
    def test_but_rows_that_came_packed_are_of_the_text_too(self, name, corpus):
        packed = replace(corpus, manifest=corpus.manifest | {"source": "text-packed"})
        spec = replace(spec_of(), corpus=name.format(digest=corpus.sha256[:12]))
        assert open_corpus(spec, packed) is packed

    @pytest.mark.parametrize("name", ["laptop", "text@0000"])
    def test_on_another_corpus_than_the_spec_names(self, name, corpus, tmp_path):
        with pytest.raises(looped.ConfigError, match="of the spec; give the folder"):
            run(replace(spec_of(), corpus=name), tmp_path, corpus)

    def test_on_a_card_that_is_not_there(self):
        if torch.cuda.is_available():
            pytest.skip("there is a card")
        with pytest.raises(looped.ConfigError, match="torch sees no card"):
            choose_device("cuda")


class TestTrackers:
    def test_tensorboard_gets_every_step(self, corpus, tmp_path):
        pytest.importorskip("tensorboard")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        run(spec_of(), tmp_path, corpus, trackers=["tensorboard"])
        events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
        assert [event.step for event in events.Scalars("loss")] == list(range(1, STEPS + 1))
        np.testing.assert_allclose(
            [event.value for event in events.Scalars("loss")], losses(tmp_path), rtol=1e-6
        )

    def test_wandb_goes_on_with_the_same_run(self, corpus, tmp_path, monkeypatch):
        from types import SimpleNamespace

        told = []
        tracked = SimpleNamespace(
            log=lambda values, step: told.append((step, values["loss"])), finish=lambda: None
        )
        begun = []
        fake = SimpleNamespace(init=lambda **options: begun.append(options) or tracked)
        monkeypatch.setitem(sys.modules, "wandb", fake)
        run(spec_of(), tmp_path, corpus, trackers=["wandb"])
        assert [loss for _, loss in told] == losses(tmp_path)
        assert begun[0]["id"] == spec_of().run_id
        assert begun[0]["resume"] == "allow"

    def test_one_that_is_not_installed_names_its_extra(self, corpus, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "wandb", None)
        with pytest.raises(looped.ConfigError, match=r"looped\[wandb\]"):
            run(spec_of(), tmp_path, corpus, trackers=["wandb"])


def step_lines(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("step ")]


def test_progress_is_a_few_log_lines_by_default(corpus, tmp_path, caplog):
    caplog.set_level("INFO", logger="looped")
    run(spec_of(steps=60), tmp_path, corpus)
    lines = step_lines(caplog)
    assert len(lines) == trainer.LOG_LINES
    assert "tok/s" in lines[-1]


def test_a_progress_function_gets_every_step_in_place_of_log_lines(corpus, tmp_path, caplog):
    caplog.set_level("INFO", logger="looped")
    calls = []
    run(spec_of(steps=6), tmp_path, corpus, progress=lambda *call: calls.append(call))
    assert calls == [(step, 6) for step in range(1, 7)]
    assert not step_lines(caplog)


def test_the_version_of_the_code_is_read_without_torch():
    code = "import sys; from looped.training.hardware import code_version; code_version()"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)


def test_rows_of_a_pass_divide_those_of_a_process():
    alone = Ranks(0, 1, torch.device("cpu"))
    spec = looped.laptop_run()  # 8 rows of 256 tokens
    assert trainer._micro_rows(spec, alone, None) == 8
    assert trainer._micro_rows(spec, Ranks(1, 2, torch.device("cpu")), None) == 4
    with pytest.raises(looped.ConfigError, match="3 processes"):
        trainer._micro_rows(spec, Ranks(0, 3, torch.device("cpu")), None)


def command(corpus, folder, launcher=(sys.executable, "-m")) -> list[str]:
    """A run of the laptop recipe through the command line, as it is used."""
    return [
        *launcher, "looped", "train", "--preset", "laptop", "--d-model", "16", "--n-recur", "2",
        "--tokens", str(2048 * 20), "--corpus", str(corpus), "--out", str(folder),
        "--device", "cpu", "--checkpoint-every", "4", "--json",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def laptop_like(tmp_path_factory):
    """Folder of a corpus of the laptop recipe's sizes."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(1)
    for number in range(80):
        words = rng.integers(0, 5000, 400)
        (folder / f"{number:02d}.txt").write_text(" ".join(f"w{word}" for word in words))
    out = folder / "prepared"
    source = OwnText(folder, share=0.2)
    return looped.prepare_corpus(source, vocab_size=2048, seq_len=256, out=out).folder


@pytest.fixture(scope="module")
def undisturbed(laptop_like, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(command(laptop_like, folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


class TestProcesses:
    def test_killed_with_no_warning_and_started_again(self, laptop_like, undisturbed, tmp_path):
        process = subprocess.Popen(
            command(laptop_like, tmp_path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while len(looped.read_metrics(tmp_path)) < 9:
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline, "the run did not start"
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert not list(tmp_path.glob("????????????????.json"))
        done = subprocess.run(
            command(laptop_like, tmp_path), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)
        assert record["provenance"]["resumed"] == 1
        assert record["result"]["val_loss"] == undisturbed[1]["result"]["val_loss"]
        assert_same_run(tmp_path, undisturbed[0])

    def test_two_processes_train_what_one_does(self, laptop_like, undisturbed, tmp_path):
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
        torchrun += ("--nproc-per-node", "2", "-m")
        done = subprocess.run(
            command(laptop_like, tmp_path, launcher=torchrun), capture_output=True, text=True
        )
        # gloo may abort at exit after all is done: the record judges, not the exit code
        records = [path for path in tmp_path.glob("*.json") if path.name != names.SPEC]
        assert records, done.stderr
        record = read_record(records[0])
        assert record.provenance.stretches[-1].n_processes == 2
        np.testing.assert_allclose(losses(tmp_path), losses(undisturbed[0]), rtol=1e-4)
        expected = undisturbed[1]["result"]["val_loss"]
        assert record.result.val_loss == pytest.approx(expected, rel=1e-4)
