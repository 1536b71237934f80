"""What only a card can show: `python -m benchmarks.gpu --out runs/bench/`, about ten minutes.

    correctness   every attention backend that runs on the card, in bf16, against SDPA in fp32:
                  logits and gradients of one batch, as relative errors ‖x - x_fp32‖ / ‖x_fp32‖
    speed         training steps in bf16 at the paper's widths 10, 12, 20, with and without
                  compilation: FLOP/s, MFU, peak memory

The kernels round differently, so a backend passes if its errors are at most those of `LIMITS` and
at most `SLACK` times those of SDPA in bf16. Writes one JSON, named by the card; the exit code is 1
if a backend fails. With `--device cpu` the same runs on a small model, which tests this script.
"""

import json
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.train import GPU_WIDTHS, PASSES, STEPS, Setting, bench_config, measure
from looped.config import ModelConfig
from looped.files import write_whole
from looped.model.attention import available_backends, choose_backend
from looped.model.looped_lm import LoopedLM
from looped.studies.paper import d_model_of_width
from looped.training.distributed import choose_device
from looped.training.hardware import code_version, hardware_name, versions

SLACK = 2.0
LIMITS = {"logits_error": 0.03, "gradient_error": 0.05}
"""Two to three times what SDPA shows in bf16, which rounds to 8 bits: by up to 0.004."""
CPU_WIDTHS = [0.5]
CHECK_ROWS = 2


def check_backends(config: ModelConfig, device: torch.device, rows: int = CHECK_ROWS) -> dict:
    """Errors of every backend against SDPA in fp32, or the reason why it does not run here.

    Returns:
        backend -> {"why_not": ..}, or {"failed": .., "passed": False} where the kernel raised an
        error, or {"logits_error": .., "gradient_error": .., "loss_error": .., "passed": ..}.
    """
    model = LoopedLM(config, "sdpa", seed=0).to(device)
    spread_logits(model)
    rng = torch.Generator().manual_seed(0)
    batch = torch.randint(config.n_vocab, (rows, config.seq_len + 1), generator=rng).to(device)
    exact = _outcome(model, batch, "sdpa", bf16=False)
    checked = {}
    for name, why_not in available_backends(device).items():
        if why_not:
            checked[name] = {"why_not": why_not}
            continue
        try:
            checked[name] = _errors(_outcome(model, batch, name, bf16=True), exact)
        except RuntimeError as error:  # from inside a kernel; the others are still worth knowing
            checked[name] = {"failed": str(error), "passed": False}
    allowed = {key: min(limit, SLACK * checked["sdpa"][key]) for key, limit in LIMITS.items()}
    for found in checked.values():
        if "logits_error" in found:
            found["passed"] = all(found[key] <= limit for key, limit in allowed.items())
    return checked


def spread_logits(model: LoopedLM) -> None:
    """Give the unembedding a spread at which logits differ, as they do in a trained model."""
    with torch.no_grad():
        model.unembed.weight *= model.config.d_model**-0.5 / model.unembed.weight.std()


def _outcome(model, batch, backend, bf16):
    """Logits, all gradients in one vector, and loss, in float64 on the CPU."""
    model.attention = choose_backend(
        backend, batch.device, torch.bfloat16 if bf16 else torch.float32, model.config.d_head
    )
    autocast = partial(torch.autocast, batch.device.type, torch.bfloat16, enabled=bf16)
    model.zero_grad()
    with torch.no_grad(), autocast():
        logits = model(batch[:, :-1])
    with autocast():
        loss = model.loss(batch)
    loss.backward()
    gradients = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()]
    )
    return [x.detach().double().cpu() for x in (logits, gradients, loss)]


def _errors(found, exact):
    names = ("logits_error", "gradient_error", "loss_error")
    pairs = zip(names, found, exact, strict=True)
    return {name: ((x - y).norm() / y.norm()).item() for name, x, y in pairs}


def speed_settings(device: torch.device, widths: list[float]) -> list[Setting]:
    """At every width the plain stack, eager and compiled, and r = 4."""
    kind = device.type
    return [
        Setting(
            config=bench_config(_d_model(width, kind), n_recur, kind),
            passes=PASSES[kind],
            device=str(device),
            compile=compiled,
        )
        for width in widths
        for n_recur, compiled in [(1, False), (1, True), (4, True)]
    ]


def _d_model(width, kind):
    return int(64 * width) if kind == "cpu" else d_model_of_width(width)


def main(
    out: Annotated[Path, typer.Option(help="Folder of the JSON.")] = Path("runs/bench"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    steps: Annotated[int, typer.Option(help="Steps that count.")] = STEPS,
) -> None:
    """Check the attention kernels and measure training on this machine's card."""
    chosen = choose_device(device)
    on_card = chosen.type == "cuda"
    widths = GPU_WIDTHS if on_card else CPU_WIDTHS
    config = bench_config(_d_model(widths[0], chosen.type), 4, chosen.type)
    report = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware_name(chosen),
        "code": code_version(),
        "versions": versions(),
        "checked": config.to_dict(),
        "backends": check_backends(config, chosen),
        "speeds": [],
    }
    path = out / f"{re.sub('[^a-z0-9]+', '-', report['hardware'].lower()).strip('-')}.json"
    write(path, report)
    for setting in speed_settings(chosen, widths):
        report["speeds"].append(measure(setting, steps))
        write(path, report)  # what was measured is kept if a later setting fails
    print(json.dumps(report, indent=2))
    failed = [name for name, found in report["backends"].items() if found.get("passed") is False]
    if failed:
        typer.echo(f"attention differs from SDPA: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def write(path: Path, report: dict) -> None:
    """Write the report as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
