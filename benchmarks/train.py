"""How fast training is: `looped bench train [--json]`, on random tokens, 20 executed layers.

    pass                forward and backward over `rows` rows; a step is one or several of them
    optimizer_share     of the step's time: the update of all parameters
    tokens_per_second   training tokens per second of the clock on the wall
    tokens_per_cpu_second  per second of this process, which other processes do not change;
                        None on a card, where the processor only waits
    flops_per_second    closed-form FLOPs of a token times tokens per second (on a card) or per
                        processor second
    mfu                 flops_per_second / the card's bf16 peak; None where the peak is not known

Times are medians over steps; the first steps, which compile and allocate, do not count.
"""

import json
import time
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from looped import accounting
from looped.config import ModelConfig
from looped.errors import ConfigError
from looped.studies.base import run_at
from looped.studies.paper import d_model_of_width, paper_config

STEPS = 5
CPU_D_MODELS = [64, 128]
GPU_WIDTHS = [10, 12, 20]  # s of the paper
ROWS = 8  # of one pass
PASSES = {"cpu": 1, "cuda": 16}  # the batches of the laptop recipe and of the paper, on one card
WARM_UP = {"cpu": 1, "cuda": 3}
CPU_TARGETS = {64: 4600, 128: 2000}
"""Tokens per processor second that the plain stack, not compiled, should reach."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is measured: a model, its batch of `passes` times `rows` rows, and how it is run."""

    config: ModelConfig
    rows: int = ROWS
    passes: int = 1
    device: str = "cpu"
    attention: str = "auto"
    compile: bool = False


def bench_config(d_model: int, n_recur: int, device: str) -> ModelConfig:
    """A 20-layer stack: on a card the paper's, on a CPU with short rows and few tokens."""
    paper = paper_config(128 if device == "cpu" else d_model, n_recur)
    if device != "cpu":
        return paper
    small = {"d_model": d_model, "d_head": min(32, d_model), "seq_len": 256}
    vocab = {"vocab_size": 4096, "vocab_used": None}
    return ModelConfig.from_dict(paper.to_dict() | small | vocab)


def measure(setting: Setting, steps: int = STEPS) -> dict:
    """Speed of training steps by the names of the module's docstring, with the setting."""
    import torch

    from looped.training.hardware import hardware_name, peak_flops

    device = torch.device(setting.device)
    on_card = device.type == "cuda"
    if on_card:
        torch.cuda.reset_peak_memory_stats(device)
    backend, walls, cpus = _time_steps(setting, WARM_UP[device.type] + steps)
    wall, cpu = (_medians(t[WARM_UP[device.type] :]) for t in (walls, cpus))
    tokens = setting.passes * setting.rows * setting.config.seq_len
    used = wall if on_card else cpu
    flops = accounting.flops_per_token(setting.config) * tokens / sum(used)
    peak = peak_flops(device)
    return {
        "d_model": setting.config.d_model,
        "n_recur": setting.config.n_recur,
        "hardware": hardware_name(device),
        "precision": "bfloat16" if on_card else "float32",
        "attention": backend,
        "compiled": setting.compile,
        "tokens_per_step": tokens,
        "tokens_per_second": tokens / sum(wall),
        "tokens_per_cpu_second": None if on_card else tokens / sum(cpu),
        "flops_per_second": flops,
        "mfu": flops / peak if peak else None,
        "optimizer_share": used[1] / sum(used),
        "first_step_seconds": sum(walls[0]),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if on_card else None,
    }


def _time_steps(setting, n_steps):
    """Attention backend, and seconds [(passes, optimizer), ...] on the wall and of the process."""
    import torch

    from looped.model.attention import choose_backend
    from looped.model.looped_lm import LoopedLM
    from looped.training.optimizers import build_optimizers

    config, device = setting.config, torch.device(setting.device)
    on_card = device.type == "cuda"
    dtype = torch.bfloat16 if on_card else torch.float32
    backend = choose_backend(setting.attention, device, dtype, config.d_head)
    model = LoopedLM(config, backend).to(device)
    if setting.compile:
        torch.compiler.reset()  # or other shapes measured before count towards a limit
        model.compile_blocks()
    batch_rows = setting.passes * setting.rows
    n_tokens = n_steps * batch_rows * config.seq_len
    spec = run_at(config, None, n_tokens, {"batch_rows": batch_rows}, "random", "bench")
    optimizers = build_optimizers(model, spec)
    rng = torch.Generator().manual_seed(0)
    shape = (setting.rows, config.seq_len + 1)
    rows = torch.randint(config.n_vocab, shape, generator=rng).to(device)

    def now():
        if on_card:
            torch.cuda.synchronize(device)
        return time.perf_counter(), time.process_time()

    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(n_steps):
        begin = now()
        for _ in range(setting.passes):
            with torch.autocast(device.type, torch.bfloat16, enabled=on_card):
                loss = model.loss(rows) / setting.passes
            loss.backward()
        middle = now()
        optimizers.step()
        optimizers.zero_grad()
        end = now()
        for clock, times in enumerate((walls, cpus)):
            times.append((middle[clock] - begin[clock], end[clock] - middle[clock]))
    return backend, walls, cpus


def _medians(times):
    return [median(phase) for phase in zip(*times, strict=True)]


def train_command(
    d_model: Annotated[
        list[int] | None,
        typer.Option(help="Model size (repeatable); default: 64 and 128, on a card s 10, 12, 20."),
    ] = None,
    n_recur: Annotated[
        list[int] | None, typer.Option(help="Recurrences r (repeatable); default: 1.")
    ] = None,
    compile: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Compile each block; default: measure both."),
    ] = None,
    attention: Annotated[
        list[str] | None,
        typer.Option(help="sdpa, flash2, flash3, flash4 (repeatable); default: auto."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    rows: Annotated[int, typer.Option(help="Rows of one pass.")] = ROWS,
    steps: Annotated[int, typer.Option(help="Steps that count.")] = STEPS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Measure training steps on random tokens."""
    if find_spec("torch") is None:
        raise ConfigError("training needs torch: pip install 'looped[train]'")
    from looped.training.distributed import choose_device

    chosen = choose_device(device)
    sizes = d_model or _default_d_models(chosen.type)
    settings = [
        Setting(
            config=bench_config(d, r, chosen.type),
            rows=rows,
            passes=PASSES[chosen.type],
            device=str(chosen),
            attention=backend,
            compile=compiled,
        )
        for d in sizes
        for r in n_recur or [1]
        for backend in attention or ["auto"]
        for compiled in ([False, True] if compile is None else [compile])
    ]
    shown = track(settings, "Training", console=Console(stderr=True), transient=True)
    measured = [measure(setting, steps) for setting in shown]
    print(json.dumps(measured, indent=2)) if as_json else _print(measured)


def _default_d_models(kind):
    return CPU_D_MODELS if kind == "cpu" else [d_model_of_width(s) for s in GPU_WIDTHS]


def _print(measured):
    first, shown = measured[0], [_shown(row) for row in measured]
    heads = [head for head in shown[0] if any(row[head] for row in shown)]
    table = Table(*heads, box=SIMPLE_HEAD)
    table.title = f"{first['hardware']}, {first['precision']}, 20 layers"
    for row in shown:
        table.add_row(*(row[head] for head in heads))
    Console().print(table)


def _shown(row):
    plain = row["tokens_per_cpu_second"] and row["n_recur"] == 1 and not row["compiled"]
    return {
        "d_model": str(row["d_model"]),
        "r": str(row["n_recur"]),
        "kernel": row["attention"],
        "compiled": "yes" if row["compiled"] else "no",
        "tok/s": _optional(row["tokens_per_second"], ",.0f"),
        "tok/CPU-s": _optional(row["tokens_per_cpu_second"], ",.0f"),
        "target": _optional(CPU_TARGETS.get(row["d_model"]) if plain else None, ",.0f"),
        "GFLOP/s": _optional(row["flops_per_second"] / 1e9, ",.0f"),
        "MFU": _optional(row["mfu"], ".1%"),
        "update": _optional(row["optimizer_share"], ".1%"),
    }


def _optional(value, form):
    return "" if value is None else format(value, form)
