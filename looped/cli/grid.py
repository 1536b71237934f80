"""`looped grid list | show | launch | status | collect`: studies of many runs."""

import logging
import time
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.live import Live

from looped.cli import group, show
from looped.cli import options as opt
from looped.cli.train import ensure_corpus
from looped.launching.collect import collect
from looped.launching.engine import CLUSTERS, Engine, launch
from looped.launching.folder import WORK, grid_status, grid_summary
from looped.launching.job import TrainOptions
from looped.paths import own_runs_dir
from looped.studies import cost_table, get_grid

WATCH_SECONDS = 2.0
SHOWN = ["run_id", "case", "n_recur", "d_model", "budget", "state", "progress"]
SHOWN += ["tokens_per_second", "eta_seconds", "val_loss"]

app = group.new_group("Launch the runs of a study, watch and collect them.")

Name = Annotated[str, typer.Argument(help="Of the grid: see `looped grid list`.")]
Work = Annotated[Path, typer.Option(help="Folder of the runs' folders.")]


@app.command("list")
@opt.flattened
def list_command(output: opt.Output) -> None:
    """Print the grids with their runs, tokens and FLOPs."""
    output.rows(cost_table(), "Grids")


@app.command("show")
@opt.flattened
def show_command(
    name: Name,
    output: opt.Output,
    flops_per_second: Annotated[
        float, typer.Option(help="Of the machine, as 4e14 for a card at 40 % of its peak.")
    ] = 4e14,
) -> None:
    """Print the runs of a grid by budget: tokens, FLOPs and hours at a speed."""
    if not flops_per_second > 0:
        raise ValueError(f"--flops-per-second: got {flops_per_second:g}, expected more than 0")
    specs = get_grid(name)
    columns = ["case", "budget", "n_recur", "d_model", "n_tokens"]
    runs = pd.DataFrame([spec.row() for spec in specs])[columns]
    runs["flops"] = [spec.flops for spec in specs]
    if output.as_csv or output.as_json:
        output.rows(runs, name)
        return
    cost = (
        runs.groupby(["case", "budget"])
        .agg(
            runs=("flops", "size"),
            widths=("d_model", lambda d: " ".join(map(str, sorted(set(d))))),
            recurrences=("n_recur", lambda r: " ".join(map(str, sorted(set(r))))),
            n_tokens=("n_tokens", "sum"),
            flops=("flops", "sum"),
        )
        .reset_index()
    )
    cost["hours"] = cost["flops"] / flops_per_second / 3600
    total, hours = cost["flops"].sum(), cost["hours"].sum()
    title = (
        f"{name}: {len(specs)} runs, {total:.3g} FLOPs, {hours:.3g} hours at "
        f"{flops_per_second:.3g} FLOP/s"
    )
    show.print_table(cost, title)


@app.command("launch")
def launch_command(
    name: Name,
    cluster: Annotated[str, typer.Option(help=f"One of {', '.join(CLUSTERS)}.")] = "local",
    parallel: Annotated[int, typer.Option(help="Runs at a time.")] = 2,
    gpus_per_run: Annotated[int, typer.Option(help="Cards, and processes, of a run.")] = 0,
    hours: Annotated[float, typer.Option(help="Time limit of a job; then queued again.")] = 24,
    partition: Annotated[str | None, typer.Option(help="Of SLURM.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Start at most this many runs.")] = None,
    work: Work = WORK,
    corpus: Annotated[Path | None, typer.Option(help="Folder of a prepared corpus.")] = None,
    compile: Annotated[bool, typer.Option("--compile", help="Compile each block.")] = False,
    micro_rows: Annotated[int | None, typer.Option(help="Rows of one pass.")] = None,
) -> None:
    """Train the runs of a grid that have no record; launched again, it resumes."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("submitit").setLevel(logging.WARNING)
    engine = Engine(
        cluster=cluster,
        parallel=parallel,
        gpus_per_run=gpus_per_run,
        hours=hours,
        partition=partition,
    )
    folder = None if corpus is None else str(corpus.resolve())
    options = TrainOptions(corpus=folder, compile=compile, micro_rows=micro_rows)
    specs = get_grid(name)
    if corpus is None:
        ensure_corpus(specs[0])
    console = Console(stderr=True)
    try:
        with Live(console=console, auto_refresh=False) as live:

            def watch(done: int, total: int) -> None:
                status = grid_status(specs, work / name, own_runs_dir() / name)
                live.update(
                    show.as_table(_active(status), grid_summary(name, status)), refresh=True
                )

            status = launch(
                specs,
                work / name,
                records=own_runs_dir() / name,
                engine=engine,
                options=options,
                limit=limit,
                progress=watch if console.is_terminal else None,
            )
    except KeyboardInterrupt:
        group.fail(
            "stopped; runs keep their checkpoints; launch again to resume", group.INTERRUPTED
        )
    Console().print(grid_summary(name, status), highlight=False)
    if (status["state"] == "failed").any():
        raise typer.Exit(group.FAILED)


@app.command("status")
@opt.flattened
def status_command(
    name: Name,
    output: opt.Output,
    work: Work = WORK,
    watch: Annotated[bool, typer.Option("--watch", help="Print again every few seconds.")] = False,
) -> None:
    """Print the state and progress of each run of a grid."""
    if watch and (output.as_json or output.as_csv):
        raise ValueError("--watch prints tables; leave out --json and --csv")
    specs = get_grid(name)
    while True:
        status = grid_status(specs, work / name, own_runs_dir() / name)
        if watch:
            Console().clear()
        output.rows(status, grid_summary(name, status), SHOWN)
        if not watch or (status["state"] == "done").all():
            return
        time.sleep(WATCH_SECONDS)


@app.command("collect")
def collect_command(
    name: Name,
    work: Work = WORK,
    out: Annotated[Path | None, typer.Option(help="Default: runs/NAME.")] = None,
) -> None:
    """Copy the records of a grid to runs/NAME, one file a run, and write their table."""
    out = out or own_runs_dir() / name
    found = collect(get_grid(name), work / name, out)
    print(f"{out}: {', '.join(f'{number} {what}' for what, number in found.items())}")


def _active(status: pd.DataFrame) -> pd.DataFrame:
    return status[status["state"] != "done"].sort_values("state").head(12)[SHOWN]
