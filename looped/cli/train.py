"""`looped train`: one run, from a recipe or as a run of the paper's grid."""

import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import looped
from looped.cli import group, show
from looped.cli import options as opt
from looped.errors import pick
from looped.launching.folder import RunFolder
from looped.quantities import QUANTITIES
from looped.registry.record import RunRecord
from looped.spec import RunSpec
from looped.studies import RECIPES

STOPPED = "stopped; the same command resumes from the last checkpoint"

Preset = Annotated[str, typer.Option(help=f"Recipe: one of {', '.join(RECIPES)}.")]


def train_command(
    spec_file: Annotated[
        Path | None, typer.Option("--spec", help="A spec as JSON, in place of a preset's options.")
    ] = None,
    preset: Preset = "paper",
    width: Annotated[int | None, typer.Option(help="The paper's width s (preset paper).")] = None,
    d_model: Annotated[int | None, typer.Option(help="Model size (preset laptop).")] = None,
    n_recur: Annotated[int | None, typer.Option(help="Times r that the loop block runs.")] = None,
    variant: opt.Variant = None,
    bptt: opt.Bptt = None,
    budget: Annotated[float | None, typer.Option(help="Training FLOPs; or --tokens.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Training tokens; or --budget.")] = None,
    lr: Annotated[float | None, typer.Option(help="MuonH rate at the reference.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights and the order of rows.")] = 0,
    case: Annotated[str, typer.Option(help="Name of the study.")] = "baseline",
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: work/ID.")] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder of a prepared corpus.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    attention: Annotated[str, typer.Option(help="auto, sdpa, flash2, flash3, flash4.")] = "auto",
    compile: Annotated[bool, typer.Option("--compile", help="Compile each block.")] = False,
    micro_rows: Annotated[int | None, typer.Option(help="Rows of one pass; default: fits.")] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps between checkpoints; default: five minutes.")
    ] = None,
    tracker: Annotated[
        list[str] | None, typer.Option(help="tensorboard, wandb (repeatable).")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Train a model, or resume a stopped run.

    With several processes: torchrun --standalone --nproc-per-node 8 -m looped train ...
    """
    first = os.environ.get("RANK", "0") == "0"
    logging.basicConfig(level=logging.INFO if first else logging.WARNING, format="%(message)s")
    spec = (
        _read_spec(spec_file)
        if spec_file
        else make_spec(
            preset,
            width=width,
            d_model=d_model,
            n_recur=n_recur,
            variant=variant,
            bptt=bptt,
            budget=budget,
            n_tokens=opt.whole("--tokens", tokens),
            lr=lr,
            seed=seed,
            case=case,
        )
    )
    if corpus is not None and spec_file is None:
        opened = looped.Corpus.open(corpus)
        spec = replace(spec, corpus=f"{opened.source}@{opened.sha256[:12]}")
    elif corpus is None:
        ensure_corpus(spec)
    run = out or Path("work") / spec.run_id
    if first:
        logging.info("run %s in %s: %s steps", spec.run_id, run, f"{spec.n_steps:,}")
    try:
        with _bar(spec, run, first and sys.stderr.isatty()) as progress:
            record = looped.train(
                spec,
                run,
                corpus=corpus,
                device=device,
                attention=attention,
                compile=compile,
                micro_rows=micro_rows,
                checkpoint_every=checkpoint_every,
                progress=progress,
                trackers=tracker or (),
            )
    except KeyboardInterrupt as stopped:
        group.fail(str(stopped) or STOPPED, group.INTERRUPTED)
    if first:
        _print(record, run, as_json)


@contextmanager
def _bar(spec: RunSpec, run: Path, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Progress bar with the loss and speed of the newest step; None if it is not shown."""
    if not shown:
        yield None
        return
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=spec.n_steps)

        def show_step(done: int, total: int) -> None:
            last = RunFolder(spec, run).last_step()
            text = f"loss {last['loss']:.4f}  {last['tokens_per_second']:,.0f} tok/s"
            bar.update(task, completed=done, description=text)

        yield show_step


def make_spec(preset: str, **settings: Any) -> RunSpec:
    """Spec of a recipe with these settings (None: the recipe's default).

    Raises:
        ValueError: an unknown recipe, a setting that it does not have, or one that it lacks.
    """
    recipe = pick("--preset", preset, RECIPES)
    given = {name: value for name, value in settings.items() if value is not None}
    parameters = inspect.signature(recipe).parameters
    sizes = {"width", "d_model"}
    if wrong := sorted(sizes & set(given) - set(parameters)):
        other = ", ".join(f"--{_option(name)}" for name in sorted(sizes & set(parameters)))
        raise ValueError(f"--{_option(wrong[0])}: preset {preset!r} takes {other} instead")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and parameter.kind != parameter.VAR_KEYWORD:
            if name not in given:
                raise ValueError(f"preset {preset!r} needs --{_option(name)}")
    spec: RunSpec = recipe(**given)
    return spec


def _option(name: str) -> str:
    return name.replace("_", "-")


def _read_spec(path: Path) -> RunSpec:
    try:
        return RunSpec.from_dict(json.loads(path.read_text()))
    except json.JSONDecodeError as error:
        raise ValueError(f"--spec: {path} is not JSON ({error})") from None


def ensure_corpus(spec: RunSpec) -> None:
    """Prepare the laptop corpus if it is missing; other corpora are prepared by `looped data`."""
    if spec.corpus == "laptop":
        logging.info("opening the laptop corpus, or preparing it (half a minute, once)")
        looped.prepare_corpus("laptop", vocab_size=spec.model.n_vocab, seq_len=spec.model.seq_len)


def _print(record: RunRecord, run: Path, as_json: bool) -> None:
    if as_json:
        show.print_json(record.model_dump())
        return
    result = record.result.model_dump()
    frame = pd.DataFrame({"result": result.keys(), "value": result.values()})
    show.print_table(frame.assign(unit=frame["result"].map(_unit)), f"Run {record.run_id} in {run}")


def _unit(name: str) -> str:
    return QUANTITIES[name].unit if name in QUANTITIES else ""
