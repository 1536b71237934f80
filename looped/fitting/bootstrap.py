"""Bootstrap of a fit (paper appendix F.2): resample the runs, refit, read percentiles.

`block` draws whole (budget, r) cells, since the runs of a cell share what is wrong with it;
`iid` draws single runs, for comparison.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd

from looped.fitting import get_solver
from looped.fitting.fit import at_optimum
from looped.fitting.problem import BATCH
from looped.fitting.result import Bootstrap, FitResult
from looped.registry.cells import CELL, cell_numbers

METHODS = ("block", "iid")


def bootstrap(
    runs: pd.DataFrame,
    fit: FitResult,
    *,
    resamples: int = 200,
    method: str = "block",
    level: float = 0.95,
    starts: int | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Bootstrap:
    """Refit the same law, split and held parameters on resampled runs.

    Each resample gets the full number of starts; then the fit's own optimum is tried as one more.
    Where that ends lower, the starts had missed the resample's optimum: counted, and warned of.

    Args:
        runs: the runs that were fitted.
        fit: the fit of all runs.
        resamples: how many; two-sided 95 % percentiles want at least 200.
        method: block or iid.
        level: of the percentile interval.
        starts: per resample; None for as many as the fit had.
        seed: of the resampling and of the starts.
        jobs: threads; None for one a core.
        progress: called with the number of resamples that are newly done.

    Raises:
        ValueError: bad arguments, or runs without the columns that the method needs.
    """
    if resamples < 2 or not 0 < level < 1:
        raise ValueError(
            f"got resamples={resamples}, level={level}; expected at least 2, and a level in (0, 1)"
        )
    law = fit.form
    problem = fit.problem(runs)
    units = _units(runs, method)
    rng = np.random.default_rng(seed)
    weights = _multiplicities(units, resamples, rng)
    drawn = problem.draw_starts(starts or fit.starts, rng)
    refits = _refit_all(
        problem, weights, np.vstack([drawn, fit.law.theta]), fit.solver, jobs, progress
    )
    theta, worse = (np.concatenate(parts) for parts in zip(*refits, strict=True))
    params = pd.DataFrame([law.to_params(each) for each in theta])
    return Bootstrap(
        method=method,
        level=level,
        resamples=resamples,
        n_units=int(units.max()) + 1,
        starts=len(drawn),
        seed=seed,
        draws={name: params[name].tolist() for name in params if name not in fit.fixed},
        refits_worse=int(worse.sum()),
        warnings=(
            *_warnings(problem, theta, worse, units, method),
            *_anchorless(runs, law, weights),
        ),
    )


def _warnings(problem, theta, worse, units, method):
    if method == "block" and 1.5 * (units.max() + 1) > len(units):
        yield "most cells hold a single run: is `budget` the nominal one?"
    if worse.any():
        yield f"in {worse.sum()} of {len(worse)} resamples the starts missed the optimum; give more"
    bound = problem.at_bound(theta)
    for name, touched in zip(problem.law.param_names, bound.sum(axis=0), strict=True):
        if touched:
            yield f"{name} is at the bound of the law's box in {touched} of {len(bound)} resamples"


def _anchorless(runs, law, weights):
    """Resamples that drew no r = 1 run, in which nothing holds φ to the plain model."""
    if "phi" not in law.exponents or not (runs["n_recur"] == 1).any():
        return
    anchor = (runs["n_recur"] == 1).to_numpy()
    if without := int((weights[:, anchor].sum(axis=1) == 0).sum()):
        yield (
            f"{without} of {len(weights)} resamples drew no r = 1 run, so φ has no anchor in them: "
            "they stretch the interval; more budgets make them rare"
        )


def _refit_all(problem, weights, starts, solver, jobs, progress) -> list[tuple]:
    """For groups of resamples: the best coordinates, and whether only the last start led there."""
    solve = get_solver(solver)
    size = max(1, BATCH // (len(starts) * weights.shape[1]))
    groups = [weights[i : i + size] for i in range(0, len(weights), size)]

    def refit(group):
        rows = replace(problem, weights=np.repeat(group, len(starts), axis=0))
        solution = solve(rows, np.tile(starts, (len(group), 1)))
        objective = np.nan_to_num(solution.objective, nan=np.inf).reshape(len(group), -1)
        best = objective.argmin(axis=1)
        theta = solution.theta.reshape(*objective.shape, -1)[np.arange(len(group)), best]
        worse = ~at_optimum(objective[:, :-1].min(axis=1), objective[:, -1], problem.delta)
        if progress is not None:
            progress(len(group))
        return theta, worse

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        try:
            return list(pool.map(refit, groups))
        except BaseException:  # an interrupt must not wait for what has not begun
            pool.shutdown(cancel_futures=True)
            raise


def _units(runs, method) -> np.ndarray:
    """For each run, the number of the unit that is drawn with it, [n]."""
    if method not in METHODS:
        raise ValueError(f"method: got {method!r}, expected one of {METHODS}")
    if method == "iid":
        return np.arange(len(runs))
    try:
        units = cell_numbers(runs)
    except ValueError as error:
        raise ValueError(f"the block bootstrap draws {CELL} cells: {error}, or use iid") from None
    if units.max() == 0:
        raise ValueError("all runs are in one (budget, r) cell; use method iid")
    return units


def _multiplicities(units, resamples, rng) -> np.ndarray:
    """How often each run appears in each resample, [resamples, n]."""
    n_units = units.max() + 1
    drawn = rng.integers(0, n_units, (resamples, n_units))
    counts = np.stack([np.bincount(row, minlength=n_units) for row in drawn])
    return counts[:, units].astype(float)
