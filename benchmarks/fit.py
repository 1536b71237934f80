"""How fast the fits are: `looped bench fit [--json] [--out FILE]`.

Everything is measured in one run on one thread, in seconds of processor time, so that ratios hold
on any machine and other programs do not count. The slow solver is timed once, with the fast one
before and after it. SciPy's L-BFGS-B is up to ten times slower when its tiny systems get more
threads, which would flatter the ratio.
"""

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import looped
from looped.files import write_whole
from looped.fitting.bootstrap import RESAMPLE_STARTS

STARTS = 500
RESAMPLES = 200
ROUNDS = 3  # of the fast solver on each side of the slow one
GROWTH = {116: STARTS, 1_000: 200, 10_000: 40, 100_000: 8}  # runs -> starts of the timed fit
TARGETS = {"time_ratio": "at least 40", "bootstrap_2000_seconds": "at most 2"}


def timed(
    call: Callable[[], Any], clock: Callable[[], float] = time.process_time
) -> tuple[Any, float]:
    """What `call` returns, and the seconds of `clock` that it took."""
    begin = clock()
    result = call()
    return result, clock() - begin


def compare_solvers(runs: pd.DataFrame, starts: int = STARTS) -> dict[str, float]:
    """The joint fit by both solvers from the same starts: time ratio, objectives, arrived starts.

    Both solvers use the same analytic gradient.
    """

    def fit(solver):
        return timed(partial(looped.fit, runs, starts=starts, solver=solver))

    fit("batched")  # the first call pays for imports and caches
    before = [fit("batched") for _ in range(ROUNDS)]
    reference, slow = fit("lbfgsb")
    rounds = before + [fit("batched") for _ in range(ROUNDS)]
    fast = median(seconds for _, seconds in rounds)
    fitted = rounds[0][0]
    return {
        "batched_seconds": fast,
        "lbfgsb_seconds": slow,
        "time_ratio": slow / fast,
        "objective_excess": fitted.objective / reference.objective - 1,
        "batched_arrived": fitted.starts_at_optimum,
        "lbfgsb_arrived": reference.starts_at_optimum,
    }


def time_interval(
    runs: pd.DataFrame, resamples: int = RESAMPLES, starts: int = STARTS
) -> dict[str, float]:
    """The bootstrap of the joint fit in processor time on one thread."""
    fitted = looped.fit(runs, starts=starts)
    call = partial(looped.bootstrap, runs, fitted, resamples=resamples, jobs=1)
    interval, seconds = timed(call)
    return {
        "interval_seconds": seconds,
        "refits_per_second": resamples * RESAMPLE_STARTS / seconds,
        "resamples_missed": interval.refits_worse,
    }


def growth(runs: pd.DataFrame, sizes: dict[int, int]) -> list[dict[str, float]]:
    """Processor time and share of arrived starts of fits to tables of growing size.

    A larger table repeats the runs, with independent errors of 0.1 % in each loss.
    """
    rng = np.random.default_rng(0)
    rows: list[dict[str, float]] = []
    for n_runs, starts in sizes.items():
        table = runs.iloc[np.arange(n_runs) % len(runs)].reset_index(drop=True)
        if n_runs > len(runs):
            table["val_loss"] *= np.exp(1e-3 * rng.standard_normal(n_runs))
        fitted, seconds = timed(partial(looped.fit, table, starts=starts))
        rows.append(
            {
                "runs": n_runs,
                "starts": starts,
                "seconds": seconds,
                "seconds_per_500_starts": seconds * STARTS / starts,
                "arrived": fitted.starts_at_optimum,
            }
        )
    return rows


def peak_memory() -> float:
    """Largest resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def machine() -> dict[str, Any]:
    """Kind of machine, and the versions of what computes."""
    names = ("looped", "numpy", "scipy", "pandas")
    return {
        "processor": platform.processor() or platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    } | {name: version(name) for name in names}


def fit_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    starts: Annotated[int, typer.Option(help="Starts of each fit.")] = STARTS,
    resamples: Annotated[int, typer.Option(help="Resamples of the short bootstrap.")] = RESAMPLES,
    grow: Annotated[bool, typer.Option(help="Also fit larger tables and 2,000 resamples.")] = True,
    out: Annotated[Path | None, typer.Option(help="Also write the record to this file.")] = None,
) -> None:
    """Measure the solvers, the bootstrap and the growth of cost on the paper's runs."""
    runs = looped.load_runs("paper")
    measured: dict[str, Any] = compare_solvers(runs, starts)
    measured |= time_interval(runs, resamples, starts)
    if grow:
        longer = time_interval(runs, 10 * resamples, starts)
        measured[f"bootstrap_{10 * resamples}_seconds"] = longer["interval_seconds"]
        measured["growth"] = growth(runs, GROWTH)
        measured["peak_memory_bytes"] = peak_memory()
    record = json.dumps(measured | {"machine": machine()}, indent=2)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, record + "\n")
    if as_json:
        print(record)
    else:
        _print(measured, f"{len(runs)} runs, {starts} starts, {resamples} resamples")


def _print(measured: dict[str, Any], title: str) -> None:
    console = Console()
    table = Table("measure", "value", "target", box=SIMPLE_HEAD, title=title)
    for name, value in measured.items():
        if name != "growth":
            table.add_row(name, f"{value:.4g}", TARGETS.get(name, ""))
    console.print(table)
    if rows := measured.get("growth"):
        larger = Table(*rows[0], box=SIMPLE_HEAD, title="How cost grows (processor time)")
        for row in rows:
            larger.add_row(*(f"{value:.4g}" for value in row.values()))
        console.print(larger)
