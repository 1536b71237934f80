"""Bootstrap of a fit (paper appendix F.2): resample the runs, refit, read percentiles.

`block` draws whole (budget, r) cells, since the errors of the runs of a cell are alike; `iid` draws
single runs, for comparison.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd

from looped.fitting import get_solver
from looped.fitting.batched import SAME, race
from looped.fitting.fit import at_optimum
from looped.fitting.problem import Solution
from looped.fitting.result import Bootstrap, FitResult
from looped.registry.cells import CELL, cell_numbers

METHODS = ("block", "iid")

RESAMPLE_STARTS = 10
"""Random starts of each resample, unless another number is given."""

CHECKED = 0.02
"""Share of the resamples that are refitted from all starts before the races, and again after."""

SAMPLE = 20
"""Smallest number of resamples refitted from all starts, before the races and again after."""

CANDIDATES, APART, FIRST = 4, 1.0, ((4, 3), (4, 2))
"""A race: candidates (ends of other resamples), their distance in standard deviations, rounds."""

RIVALS, RIVAL_APART, SECOND = 3, 2.0, ((3, 3), (4, 2))
"""The same of the second race."""

GROUP = 2_000_000
"""Residuals (resamples x starts x runs) of one task of a thread: 16 MB of weights."""


def bootstrap(
    runs: pd.DataFrame,
    fit: FitResult,
    *,
    resamples: int = 200,
    method: str = "block",
    level: float = 0.95,
    starts: int = RESAMPLE_STARTS,
    seed: int = 0,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Bootstrap:
    """Refit the same law, split and held parameters on resampled runs.

    The fit's optimum is one more start of each resample. Where it alone leads to the lowest end,
    the random starts missed the resample's optimum: `refits_worse` counts these among the resamples
    that are refitted from all starts.

    Where all resamples have one clear optimum, most of them are refitted from the optima of others
    (`_refit_all` says how this is checked); otherwise every start is driven to the end in each.

    Args:
        runs: the runs that were fitted.
        fit: the fit of all runs.
        resamples: how many; two-sided 95 % percentiles want at least 200.
        method: block or iid.
        level: of the percentile interval.
        starts: random starts of each resample.
        seed: of the resampling and of the starts.
        jobs: threads; None for one a core.
        progress: called with the number of finished resamples and their total.

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
    drawn = problem.draw_starts(starts, rng)
    refits = _Refits(problem, np.vstack([drawn, fit.law.theta]), jobs, resamples, progress)
    theta, worse = _refit_all(refits, weights, fit.solver)
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


class _Refits:
    """Refits of resamples, in groups on a pool of threads, with their progress."""

    def __init__(self, problem, starts, jobs, total, progress):
        self.problem, self.starts, self.jobs = problem, starts, jobs or os.cpu_count() or 1
        self.total, self.progress, self.done = total, progress, 0

    def from_all_starts(self, weights, solver, count=True) -> Solution:
        """Every start driven to its end: coordinates [R, S, p] and objectives [R, S]."""
        solve = get_solver(solver)

        def refit(group):
            rows = replace(self.problem, weights=np.repeat(group, len(self.starts), axis=0))
            theta, objective = solve(rows, np.tile(self.starts, (len(group), 1)))
            objective = np.nan_to_num(objective, nan=np.inf).reshape(len(group), -1)
            return theta.reshape(*objective.shape, -1), objective

        return Solution(*self._in_groups(refit, len(self.starts), count, weights))

    def from_candidates(self, weights, candidates, rounds, at_rest=0):
        """The best end of the candidates [R, m, p] by a race, and the objectives of all ends."""

        def refit(group, some):
            return race(replace(self.problem, weights=group), some, rounds, at_rest)

        return self._in_groups(refit, candidates.shape[1], False, weights, candidates)

    def report(self, finished):
        """Add finished resamples to the progress."""
        self.done += finished
        if self.progress is not None:
            self.progress(self.done, self.total)

    def _in_groups(self, refit, each, count, *rows):
        size = max(1, min(GROUP // (each * rows[0].shape[1]), -(-len(rows[0]) // self.jobs)))
        begins = range(0, len(rows[0]), size)
        groups = [[array[begin : begin + size] for array in rows] for begin in begins]
        ends = []
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for group, end in zip(
                    groups, pool.map(lambda group: refit(*group), groups), strict=True
                ):
                    ends.append(end)
                    if count:
                        self.report(len(group[0]))
            except BaseException:  # an interrupt must not wait for what has not begun
                pool.shutdown(cancel_futures=True)
                raise
        return tuple(np.concatenate(parts) for parts in zip(*ends, strict=True))


def _refit_all(refits, weights, solver) -> tuple[np.ndarray, np.ndarray]:
    """The best coordinates of each resample, and which resamples missed their optimum.

    The first resamples are refitted from all starts, and their ends are the pool from which the
    others take the candidates of a race. Its result stands only if a second race improves no
    resample, and if all starts, driven to the end in a share of the resamples, confirm it. Else
    the objective has several optima, and every resample is refitted from all starts.
    """
    share = max(SAMPLE, round(CHECKED * len(weights)))
    if solver != "batched" or len(weights) <= 2 * share or len(refits.starts) <= CANDIDATES:
        theta, _, worse = _best(refits, *refits.from_all_starts(weights, solver))
        return theta, worse
    ends = refits.from_all_starts(weights[:share], solver)
    theta, _, worse = _best(refits, *ends)
    rest = weights[share:]
    raced = _race(refits, rest, ends.theta, theta)
    if raced is not None:
        optima, objective = raced
        checks = refits.from_all_starts(rest[-share:], solver, count=False)
        _, lowest, missed = _best(refits, *checks)
        if at_optimum(objective[-share:], lowest, refits.problem.delta).all():
            refits.report(len(rest))
            unmissed = np.zeros(len(rest) - share, bool)
            return np.vstack([theta, optima]), np.concatenate([worse, unmissed, missed])
    optima, _, missed = _best(refits, *refits.from_all_starts(rest, solver))
    return np.vstack([theta, optima]), np.append(worse, missed)


def _race(refits, weights, ends, optima):
    """Best coordinates and objectives of the resamples; None if the second race improves any.

    In the second race, optima of other resamples compete with the winner of the first. In either
    the fit's optimum must not be the only one to win.
    """
    problem = refits.problem
    own = np.broadcast_to(refits.starts[-1], (len(weights), 1, len(refits.starts[-1])))
    pool = _distinct(problem, ends.reshape(-1, optima.shape[1]))
    spread = optima.std(axis=0)
    low = _lowest_apart(problem, weights, pool, CANDIDATES, APART * spread)
    theta, value = refits.from_candidates(weights, np.concatenate([low, own], axis=1), FIRST)
    if (value[:, :-1].min(axis=1) > value[:, -1] * (1 + SAME)).any():
        return None
    pool = np.vstack([pool, theta])
    low = _lowest_apart(problem, weights, pool, RIVALS, RIVAL_APART * spread, near=theta)
    both = np.concatenate([theta[:, None], low], axis=1)
    theta, rivals = refits.from_candidates(weights, both, SECOND, at_rest=1)
    objective = rivals.min(axis=1)
    if not at_optimum(value.min(axis=1), objective, problem.delta).all():
        return None
    return theta, objective


def _best(refits, theta, objective):
    """Coordinates and objective of the lowest end, and whether only the last start led there."""
    best = objective.argmin(axis=1)
    each = np.arange(len(objective))
    drawn = objective[:, :-1].min(axis=1)
    worse = ~at_optimum(drawn, objective[:, -1], refits.problem.delta)
    return theta[each, best], objective[each, best], worse


def _distinct(problem, ends) -> np.ndarray:
    """The ends [P, p] without those that are at the place of another."""
    width = SAME * np.where(problem.free, problem.upper - problem.lower, 1.0)
    return ends[np.unique(np.round(ends / width), axis=0, return_index=True)[1]]


def _lowest_apart(problem, weights, pool, number, distance, near=None) -> np.ndarray:
    """For each resample, the lowest vectors of the pool that differ by `distance` [R, number, p].

    The Huber terms of the pool do not depend on the weights: one product ranks it in all resamples.
    """
    objective = weights @ problem.huber_terms(pool).T
    chosen = []
    for _ in range(number):
        if near is not None:
            close = np.ones(objective.shape, bool)
            for values, place, reach in zip(pool.T, near.T, distance, strict=True):
                close &= np.abs(values - place[:, None]) <= reach
            objective[close] = np.inf
        near = pool[objective.argmin(axis=1)]
        chosen.append(near)
    return np.stack(chosen, axis=1)


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
