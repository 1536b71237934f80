"""The benchmark: what it reports follows from what it measures, and a wrong kernel fails."""

# ruff: noqa: E402 (what needs torch is imported once it is known to be there)

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import benchmarks
from benchmarks import train as bench_train
from looped import ConfigError, accounting, paper_config
from looped.fitting.bootstrap import RESAMPLE_STARTS

pytestmark = pytest.mark.train

RUNNER = CliRunner()
SMALL = ["train", "--d-model", "16", "--rows", "1", "--steps", "2", "--no-compile", "--json"]


def run_module(*arguments):
    """Output of `python -m benchmarks` where the number of threads is not set."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def test_fit_compares_the_solvers_on_the_same_starts():
    measured = run_module("fit", "--json", "--starts", "4", "--resamples", "2", "--no-grow")
    assert measured["objective_excess"] < 1e-9
    assert measured["time_ratio"] == measured["lbfgsb_seconds"] / measured["batched_seconds"]
    assert measured["refits_per_second"] == 2 * RESAMPLE_STARTS / measured["interval_seconds"]


@pytest.mark.parametrize("threads", [None, "2"])
def test_python_starts_again_with_one_thread_unless_a_number_is_chosen(monkeypatch, threads):
    started = []
    monkeypatch.delenv("OMP_NUM_THREADS")
    if threads:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(os, "execve", lambda *call: started.append(call))
    benchmarks.one_thread()
    if threads:
        assert not started
        return
    ((program, arguments, environment),) = started
    assert (program, arguments) == (sys.executable, [sys.executable, *sys.orig_argv[1:]])
    assert environment["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("n_recur", [1, 4])
def test_cards_are_measured_on_the_papers_stack_and_processors_on_a_short_one(n_recur):
    assert bench_train.bench_config(640, n_recur, "cuda") == paper_config(640, n_recur)
    config = bench_train.bench_config(64, n_recur, "cpu")
    assert (config.n_layers, config.seq_len, config.n_vocab, config.d_head) == (20, 256, 4096, 32)
    assert config.d_model == 64


def test_training_without_torch_says_what_to_install(monkeypatch):
    monkeypatch.setattr(bench_train, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'looped\[train\]'"):
        RUNNER.invoke(benchmarks.app, SMALL, catch_exceptions=False)


torch = pytest.importorskip("torch")

from benchmarks import gpu
from looped.model import attention
from looped.model.looped_lm import LoopedLM

CPU = torch.device("cpu")
TINY = bench_train.ModelConfig(
    d_model=32,
    d_head=8,
    n_recur=2,
    n_prelude=1,
    n_loop=1,
    n_coda=1,
    variant="linear",
    vocab_size=64,
    seq_len=32,
)


@pytest.mark.parametrize("passes", [1, 3])
def test_rates_follow_from_the_steps_that_count(monkeypatch, passes):
    steps = [(9.0, 9.0), (2.0, 0.5), (1.0, 0.25), (3.0, 0.75)]  # the first one does not count
    halves = [(a / 2, b / 2) for a, b in steps]
    monkeypatch.setattr(bench_train, "_time_steps", lambda *_: ("sdpa", steps, halves))
    measured = bench_train.measure(bench_train.Setting(config=TINY, rows=5, passes=passes))
    tokens = passes * 5 * 32
    assert measured["tokens_per_step"] == tokens
    assert measured["tokens_per_second"] == tokens / 2.5
    assert measured["tokens_per_cpu_second"] == tokens / 1.25
    assert measured["flops_per_second"] == accounting.flops_per_token(TINY) * tokens / 1.25
    assert measured["optimizer_share"] == pytest.approx(0.2)
    assert measured["first_step_seconds"] == 18
    assert measured["mfu"] is None


def test_share_of_the_peak_is_given_where_the_peak_is_known(monkeypatch):
    monkeypatch.setattr("looped.training.hardware.peak_flops", lambda device: 1e15)
    measured = bench_train.measure(bench_train.Setting(config=TINY), steps=1)
    assert measured["mfu"] == measured["flops_per_second"] / 1e15


@pytest.mark.parametrize("compile", [False, True])
def test_every_step_trains_and_compiles_where_asked(monkeypatch, compile):
    compiled, losses = [], []
    loss = LoopedLM.loss

    def noted(model, rows):
        losses.append(loss(model, rows))
        return losses[-1]

    monkeypatch.setattr(LoopedLM, "compile_blocks", lambda model: compiled.append(model))
    monkeypatch.setattr(LoopedLM, "loss", noted)
    setting = bench_train.Setting(config=TINY, rows=2, passes=2, compile=compile)
    backend, walls, cpus = bench_train._time_steps(setting, 5)
    assert (backend, len(compiled), len(losses)) == ("sdpa", compile, 10)
    assert losses[-1] < losses[0]  # the same rows each time
    assert all(0 < seconds < 10 for times in (walls, cpus) for step in times for seconds in step)


def test_train_prints_one_json_object_a_setting():
    done = RUNNER.invoke(benchmarks.app, [*SMALL, "--n-recur", "1", "--n-recur", "4"])
    rows = json.loads(done.stdout)
    assert [row["n_recur"] for row in rows] == [1, 4]
    assert all(row["tokens_per_cpu_second"] > 0 for row in rows)
    assert all(0 < row["optimizer_share"] < 1 for row in rows)


def test_table_has_targets_for_the_plain_stack_only():
    row = dict.fromkeys(["tokens_per_second", "flops_per_second", "optimizer_share"], 1.0)
    row |= {"d_model": 64, "n_recur": 1, "attention": "sdpa", "compiled": False, "mfu": None}
    cpu = row | {"tokens_per_cpu_second": 5000.0}
    assert bench_train._shown(cpu)["target"] == "4,600"
    others = [cpu | {"compiled": True}, cpu | {"n_recur": 2}, row | {"tokens_per_cpu_second": None}]
    assert [bench_train._shown(other)["target"] for other in others] == ["", "", ""]


def test_table_is_printed():
    done = RUNNER.invoke(benchmarks.app, SMALL[:-1])
    assert done.exit_code == 0
    assert "20 layers" in done.stdout
    assert "MFU" not in done.stdout


def test_sdpa_in_bf16_passes_and_other_kernels_say_why_they_do_not_run():
    checked = gpu.check_backends(TINY, CPU)
    assert checked["sdpa"]["passed"]
    assert 1e-4 < checked["sdpa"]["logits_error"] < 0.03
    assert {name for name, found in checked.items() if "why_not" in found} == {
        "flash2",
        "flash3",
        "flash4",
    }


def not_causal(q_BTHK, k_BTHK, v_BTHK):
    q, k, v = (x.transpose(1, 2) for x in (q_BTHK, k_BTHK, v_BTHK))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def broken(q_BTHK, k_BTHK, v_BTHK):
    raise RuntimeError("illegal memory access")


def without_key_gradient(q_BTHK, k_BTHK, v_BTHK):
    return attention.attend(q_BTHK, k_BTHK.detach(), v_BTHK)


@pytest.mark.parametrize("function", [not_causal, without_key_gradient, broken])
def test_kernel_with_wrong_values_or_gradients_or_errors_fails(monkeypatch, function):
    wrong = replace(attention.BACKENDS["sdpa"], function=function)
    monkeypatch.setitem(attention.BACKENDS, "wrong", wrong)
    checked = gpu.check_backends(TINY, CPU)
    assert checked["sdpa"]["passed"]
    assert not checked["wrong"]["passed"]


def test_script_writes_one_file_named_by_the_hardware(monkeypatch, tmp_path):
    settings = [bench_train.Setting(config=TINY), bench_train.Setting(config=TINY, rows=2)]
    monkeypatch.setattr(gpu, "speed_settings", lambda *_: settings)
    monkeypatch.setattr(gpu, "bench_config", lambda *_: TINY)
    monkeypatch.setattr(gpu, "hardware_name", lambda device: "NVIDIA H200 (test)")
    gpu.main(out=tmp_path / "bench", device="cpu", steps=1)
    (path,) = (tmp_path / "bench").iterdir()
    assert path.name == "nvidia-h200-test.json"
    report = json.loads(path.read_text())
    assert [row["tokens_per_step"] for row in report["speeds"]] == [8 * 32, 2 * 32]
    assert bench_train.ModelConfig.from_dict(report["checked"]) == TINY
    assert report["versions"]["torch"] == torch.__version__


def test_script_fails_with_the_kernel_and_keeps_the_report(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "speed_settings", lambda *_: [])
    monkeypatch.setattr(gpu, "bench_config", lambda *_: TINY)
    wrong = replace(attention.BACKENDS["sdpa"], function=not_causal)
    monkeypatch.setitem(attention.BACKENDS, "wrong", wrong)
    with pytest.raises(gpu.typer.Exit) as exit:
        gpu.main(out=tmp_path, device="cpu", steps=1)
    assert exit.value.exit_code == 1
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["backends"]["wrong"]["passed"] is False


def test_cards_are_measured_at_the_papers_widths_with_its_batch():
    settings = gpu.speed_settings(torch.device("cuda"), bench_train.GPU_WIDTHS)
    assert {s.config.d_model for s in settings} == {640, 768, 1280}
    assert {s.passes * s.rows * s.config.seq_len for s in settings} == {262_144}
    assert {(s.config.n_recur, s.compile) for s in settings} == {(1, False), (1, True), (4, True)}
