"""Planning a measurement of Δφ: the runs, their cost, and the standard error that they reach.

Losses are simulated from a fitted law with two kinds of noise, estimated from the residuals of its
runs: one value for all runs of a (case, budget, r) cell, and one value for each run. Baseline and
variant share the simulated r = 1 runs. Cells of the two cases are drawn independently, which is
cautious where both deviate from the law in the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from looped.fitting.batched import solve_batched
from looped.fitting.fit import fit
from looped.fitting.problem import build_problem
from looped.fitting.result import FitResult
from looped.registry.cells import cell_numbers
from looped.registry.stacks import runs_at_width, stack_of

SPREAD = 1.6
"""Widths of a cell go from the law's optimum over this to the optimum times this."""

WIDTHS = (3, 4, 5, 6)
"""Widths per cell that are tried, from the three that a parabola needs."""

FEWEST, CORRECTION = 20, 200  # simulations: of a design, and for the noise that a fit absorbs

ROLES = ("anchor", "baseline", "variant")


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviations in nats per token: of a cell's common error, and of a run's own."""

    cell: float
    run: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Designs of a study by cost, the cheapest that reaches the target, and its assumptions."""

    designs: pd.DataFrame  # n_budgets, n_widths (at most a cell), and of `cost` and `summary`
    runs: pd.DataFrame | None  # of the chosen design; None if no design reaches the target
    own: dict[str, float]  # the same numbers for a variant trained at the baseline's settings
    target_se: float
    noise: dict[str, Noise]  # role -> noise of its looped runs; the anchor's is the baseline's
    fit: FitResult


def plan(
    runs: pd.DataFrame,
    budgets: Sequence[float],
    n_recur: Sequence[int] = (2, 4, 8),
    *,
    target_se: float = 0.03,
    like: pd.DataFrame | None = None,
    split: str = "stated",
    simulations: int = 400,
    starts: int = 200,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Designs on the lowest two, three, ... budgets, and the cheapest that reaches the target.

    Args:
        runs: of a baseline; they give the law, the noise (from residuals) and the architecture.
        budgets: FLOPs on which to train, two at least.
        n_recur: the looped r; r = 1 is added as the anchor.
        target_se: of Δφ.
        like: runs of a variant; their residuals give the noise of the planned variant. None for
            the baseline's noise. A variant with larger residuals has a less certain φ.
        split: what counts as recurring.
        simulations: of each design; they determine se to about 1 / √(2 simulations) of itself.
        starts: of the fits.
        seed: of the fits and of the noise.
        progress: called with the number of finished designs and their total.

    Raises:
        ValueError: fewer than two budgets, an r that the runs do not have, runs without r = 1, a
            target that is not positive, or fewer than 20 simulations.
        ConfigError: runs whose architecture is not known.
    """
    budgets, n_recur = sorted(set(map(float, budgets))), sorted(set(map(int, n_recur)) - {1})
    _check(runs, budgets, n_recur, target_se, simulations)
    fitted = fit(runs, "joint", split, starts=starts, seed=seed)
    noise = dict.fromkeys(ROLES[1:], noise_of(runs, fitted, seed=seed))
    if like is not None:
        similar = fit(like, "joint", split, starts=starts, seed=seed)
        noise["variant"] = noise_of(like, similar, seed=seed)
    options = {"simulations": simulations, "seed": seed}
    tried = {}
    for n_budgets in range(2, len(budgets) + 1):
        for n_widths in WIDTHS:
            tried[n_budgets, n_widths] = design(
                runs, fitted, budgets[:n_budgets], n_recur, n_widths
            )
    rows = []
    for done, ((n_budgets, n_widths), each) in enumerate(tried.items(), start=1):
        errors = simulated_errors(each, fitted, noise, **options)
        size = {"n_budgets": n_budgets, "n_widths": n_widths}
        rows.append(size | cost(each) | summary(errors))
        if progress is not None:
            progress(done, len(tried))
    designs = pd.DataFrame(rows).sort_values("flops", ignore_index=True)
    enough = designs[designs["se"] <= target_se]
    chosen = None
    if len(enough):
        chosen = tried[enough["n_budgets"].iloc[0], enough["n_widths"].iloc[0]]
    own = own_design(runs, n_recur)
    return Plan(
        designs=designs,
        runs=chosen,
        own=cost(own) | summary(simulated_errors(own, fitted, noise, **options)),
        target_se=target_se,
        noise=noise,
        fit=fitted,
    )


def _check(runs, budgets, n_recur, target_se, simulations):
    if len(budgets) < 2 or not n_recur or min(n_recur) < 1 or not target_se > 0:
        raise ValueError(
            f"got budgets {budgets}, r {n_recur}, target_se {target_se}; expected at least two "
            "budgets, an r above 1 and a positive target"
        )
    if simulations < FEWEST:
        raise ValueError(
            f"simulations: got {simulations}, expected at least {FEWEST}; 400 simulations "
            "determine the standard error to about 4 %"
        )
    known = sorted(runs["n_recur"].dropna().astype(int).unique().tolist())
    if absent := sorted({1, *n_recur} - set(known)):
        raise ValueError(
            f"r = {absent}: the runs have only r = {known}, and give law, noise and "
            "architecture of no other; choose among these, or give runs with r = 1 and the "
            "planned r"
        )


def noise_of(runs: pd.DataFrame, fit: FitResult, *, seed: int = 0) -> Noise:
    """The noise behind the residuals of a fit: one part per cell, one part per run.

    The fit absorbs part of the noise, mostly between cells. Studies with the residuals' noise are
    therefore simulated and fitted, and the loss of noise in them is corrected for.

    Raises:
        ValueError: runs without cells, or with a single run in each.
    """
    cells = cell_numbers(runs)
    if len(cells) == cells.max() + 1:
        raise ValueError("the noise of runs needs cells of two or more runs; give more widths")
    seen = _components(np.array(fit.residuals)[None], cells)
    rng = np.random.default_rng(seed)
    common = rng.normal(0, seen.cell, (CORRECTION, cells.max() + 1))[:, cells]
    losses = fit.predict(runs) + common + rng.normal(0, seen.run, common.shape)
    predicted = np.exp(_refit(runs, fit, losses).log_loss)
    kept = _components(losses - predicted, cells)
    return Noise(cell=_restored(seen.cell, kept.cell), run=_restored(seen.run, kept.run))


def _restored(seen, kept) -> float:
    return seen**2 / kept if kept > 0 else seen


def _components(residuals, cells) -> Noise:
    """Noise of runs (within cells) and of cells (between them), pooled over studies [S, n]."""
    size = np.bincount(cells)
    means = np.stack([np.bincount(cells, row) / size for row in residuals])
    within = ((residuals - means[:, cells]) ** 2).sum(axis=1) / (len(cells) - len(size))
    between = means.var(axis=1, ddof=1) - within * (1 / size).mean()
    return Noise(cell=float(np.sqrt(max(between.mean(), 0.0))), run=float(np.sqrt(within.mean())))


def design(runs, fit: FitResult, budgets, n_recur, n_widths: int) -> pd.DataFrame:
    """Runs to train: n_widths about the law's optimum of each cell, for anchor and both cases.

    Widths are multiples of the greatest common divisor of the widths of `runs`, so that every width
    has whole heads; equal widths are merged.

    Returns:
        role (anchor, baseline or variant), n_recur, budget, d_model, variant (of the baseline's
        stack), n_params_once, n_params_rec, n_params, n_tokens, flops_per_token, flops.
    """
    step = int(np.gcd.reduce(runs["d_model"].astype(int).to_numpy()))
    tables = []
    for r in (1, *n_recur):
        config = stack_of(runs, r)
        for row in fit.law.optimal(budgets, config).itertuples():
            widths = row.d_model * np.geomspace(1 / SPREAD, SPREAD, n_widths)
            widths = np.unique((widths / step).round().clip(1) * step)
            cell = runs_at_width(config, widths, budget=row.budget)
            tables += [cell.assign(role=role) for role in (ROLES[:1] if r == 1 else ROLES[1:])]
    table = pd.concat(tables, ignore_index=True)
    table = table.assign(d_model=table["d_model"].astype(int))
    return table.assign(flops=table["n_tokens"] * table["flops_per_token"])


def own_design(runs: pd.DataFrame, n_recur) -> pd.DataFrame:
    """The settings of a baseline's runs at these r, repeated for a variant, as of `design`."""
    plain, looped = runs[runs["n_recur"] == 1], runs[runs["n_recur"].isin(n_recur)]
    tables = zip(ROLES, (plain, looped, looped), strict=True)
    table = pd.concat([each.assign(role=role) for role, each in tables], ignore_index=True)
    return table.assign(flops=table["n_tokens"] * table["flops_per_token"])


def cost(design: pd.DataFrame) -> dict[str, float]:
    """n_runs and flops of a design, and n_runs_variant and flops_variant of its variant alone."""
    of = {"": design, "_variant": design[design["role"] == "variant"]}
    counts = {f"n_runs{name}": len(rows) for name, rows in of.items()}
    return counts | {f"flops{name}": float(rows["flops"].sum()) for name, rows in of.items()}


def simulated_errors(
    design: pd.DataFrame,
    fit: FitResult,
    noise: dict[str, Noise],
    *,
    simulations: int = 400,
    seed: int = 0,
) -> np.ndarray:
    """Errors of Δφ in simulated studies of a design in which φ does not shift, [simulations].

    Args:
        noise: role -> noise of its runs; the anchor has the baseline's.
    """
    rng = np.random.default_rng(seed)
    cells = design.groupby(["role", "n_recur", "budget"]).ngroup().to_numpy()
    per_run = [noise.get(role, noise["baseline"]) for role in design["role"]]
    common = rng.normal(0, 1, (simulations, cells.max() + 1))[:, cells]
    losses = fit.predict(design) + common * [each.cell for each in per_run]
    losses += rng.normal(0, 1, common.shape) * [each.run for each in per_run]
    phi = fit.form.index("phi")
    found = {}
    for role in ROLES[1:]:
        rows = design["role"].isin((ROLES[0], role)).to_numpy()
        found[role] = _refit(design[rows], fit, losses[:, rows]).theta[:, phi]
    return found["variant"] - found["baseline"]


class Refit(NamedTuple):
    """Fits of simulated studies: coordinates [S, p] and predicted log losses [S, n]."""

    theta: np.ndarray
    log_loss: np.ndarray


def _refit(runs, fit, losses) -> Refit:
    """The law fitted to each row of losses [S, n], started at the law that simulated them."""
    problem = build_problem(runs.assign(val_loss=losses[0]), fit.form, fit.split, fit.delta, {})
    problem = replace(problem, log_loss=np.log(losses))
    theta = solve_batched(problem, np.tile(fit.law.theta, (len(losses), 1))).theta
    return Refit(theta, fit.form.predict(theta, problem.design).log_loss)


def summary(errors: np.ndarray) -> dict[str, float]:
    """Standard error of Δφ (robust to outlying refits) and width of the central 95 % of errors."""
    low, lower, upper, high = np.quantile(errors, [0.025, 0.16, 0.84, 0.975])
    return {"se": float((upper - lower) / 2), "interval_width": float(high - low)}
