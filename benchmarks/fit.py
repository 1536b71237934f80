"""How fast the fits are: `looped bench fit [--json]`.

The solvers are compared within one run, on the same starts, so that the ratio does not depend on
the machine. The slow one is timed once, with the fast one before and after it. Linear algebra runs
on one thread: SciPy's L-BFGS-B is up to ten times slower when its tiny systems are given more,
which would flatter the ratio.
"""

import json
import time
from functools import partial
from statistics import median
from typing import Annotated

import pandas as pd
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import looped

STARTS = 500
RESAMPLES = 200
ROUNDS = 7  # of the fast solver on each side of the slow one
TARGETS = {"time_ratio": "at least 40", "interval_seconds": "below 60"}


def timed(call, clock=time.perf_counter):
    """What `call` returns, and the seconds of `clock` that it took."""
    begin = clock()
    result = call()
    return result, clock() - begin


def compare_solvers(runs: pd.DataFrame, starts: int = STARTS) -> dict[str, float]:
    """The joint fit by both solvers on the same starts: time ratio, objectives, starts arrived.

    Both run on one thread, so processor time tells them apart whatever else the machine does.
    """

    def fit(solver):
        return timed(partial(looped.fit, runs, starts=starts, solver=solver), time.process_time)

    fit("batched")  # the first call pays for what later ones find ready
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
    """The paper's interval of φ: every resample refitted from as many starts as the fit."""
    fitted = looped.fit(runs, starts=starts)
    interval, seconds = timed(partial(looped.bootstrap, runs, fitted, resamples=resamples))
    return {
        "interval_seconds": seconds,
        "refits_per_second": resamples * starts / seconds,
        "resamples_missed": interval.refits_worse,
    }


def fit_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    starts: Annotated[int, typer.Option(help="Starts of each fit.")] = STARTS,
    resamples: Annotated[int, typer.Option(help="Resamples of the interval.")] = RESAMPLES,
) -> None:
    """Measure the solvers and the bootstrap on the paper's runs."""
    runs = looped.load_runs("paper")
    measured = compare_solvers(runs, starts) | time_interval(runs, resamples, starts)
    if as_json:
        print(json.dumps(measured, indent=2))
        return
    table = Table("measure", "value", "target", box=SIMPLE_HEAD)
    table.title = f"{len(runs)} runs, {starts} starts, {resamples} resamples"
    for name, value in measured.items():
        table.add_row(name, f"{value:.4g}", TARGETS.get(name, ""))
    Console().print(table)
