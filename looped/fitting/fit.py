"""`fit`: a law on a table of runs, by the paper's protocol (section 4.1)."""

from collections.abc import Iterator
from importlib.metadata import version

import numpy as np
import pandas as pd

from looped.errors import FitError
from looped.fitting import get_solver
from looped.fitting.problem import Problem, Solution, build_problem
from looped.fitting.result import FitResult, FitStatus
from looped.laws import get_form
from looped.laws.law import Law

ARRIVED = 1e-6  # relative distance to the best objective within which a start has arrived
FEW = 0.01  # share of the starts below which the optimum is doubtful
SMALLEST = {"n_tokens": 1e4, "n_params": 1e3}  # of any language model that was trained
SINGULAR = 1e-5  # smallest singular value of the scaled Jacobian that still identifies


def fit(
    runs: pd.DataFrame,
    law: str = "joint",
    split: str = "stated",
    *,
    starts: int = 500,
    seed: int = 0,
    delta: float = 1e-3,
    fix: dict[str, float] | None = None,
    solver: str = "batched",
) -> FitResult:
    """A law fitted to runs: the best of many starts, drawn uniformly in the law's box.

    Args:
        runs: table of `load_runs`, or any table with the law's columns and val_loss.
        law: a name in `looped.LAWS`.
        split: what counts as recurring (`looped.splits`); laws without φ read N only.
        starts: number of starts.
        seed: of the random starts.
        delta: residual in log loss beyond which the objective grows only linearly.
        fix: parameters to hold, for example {"phi": 1.0}.
        solver: batched, or lbfgsb (SciPy, one start after the other).

    Raises:
        ValueError: runs or arguments that cannot be fitted.
        FitError: no start reached a finite objective.
    """
    starts, seed, delta = int(starts), int(seed), float(delta)
    if starts < 1:
        raise ValueError(f"starts: got {starts}, expected at least 1")
    fix = {name: float(value) for name, value in (fix or {}).items()}
    form = get_form(law)
    problem = build_problem(runs, form, split, delta, fix)
    drawn = problem.draw_starts(starts, np.random.default_rng(seed))
    solution = get_solver(solver)(problem, drawn)
    theta, objective = best_of(solution)
    arrived = float(at_optimum(solution.objective, objective, delta).mean())
    status, warnings = _judge(problem, theta, runs, arrived, starts)
    predicted = np.exp(form.predict(theta[None], problem.design).log_loss[0])
    actual = np.exp(problem.log_loss)
    residuals = actual - predicted
    return FitResult(
        law=Law(law, form.to_params(theta) | fix, split if form.counts_recurring else None),
        n_runs=len(runs),
        objective=float(objective),
        r2=float(1 - (residuals**2).sum() / ((actual - actual.mean()) ** 2).sum()),
        rmse=float(np.sqrt((residuals**2).mean())),
        max_abs_residual=float(np.abs(residuals).max()),
        starts=starts,
        starts_at_optimum=arrived,
        status=status,
        warnings=warnings,
        fixed=fix,
        delta=delta,
        solver=solver,
        seed=seed,
        cases=_labels(runs, "case"),
        sources=_labels(runs, "source"),
        versions={name: version(name) for name in ("looped", "numpy", "scipy")},
        residuals=tuple(residuals.tolist()),
    )


def best_of(solution: Solution) -> tuple[np.ndarray, float]:
    """The coordinates and objective of the best start. Raises FitError if none is finite."""
    objective = np.where(np.isfinite(solution.objective), solution.objective, np.inf)
    best = int(objective.argmin())
    if not (np.isfinite(objective[best]) and np.isfinite(solution.theta[best]).all()):
        raise FitError(
            f"none of {len(objective)} starts reached a finite objective; check the units of the "
            "runs (parameters and tokens as raw counts, loss in nats per token) and the held values"
        )
    return solution.theta[best], objective[best]


def at_optimum(objective: np.ndarray, best: float | np.ndarray, delta: float) -> np.ndarray:
    """Which objectives equal the best one, to ARRIVED or to the rounding of exact data."""
    return objective <= best * (1 + ARRIVED) + 1e-18 * delta**2


def _judge(
    problem: Problem, theta: np.ndarray, runs: pd.DataFrame, arrived: float, starts: int
) -> tuple[FitStatus, tuple[str, ...]]:
    """Status and warnings of an estimate, the gravest first."""
    names = np.array(problem.law.param_names)
    found = []
    blurred = _not_identified(problem, theta)
    if blurred.any():
        found.append(
            (
                FitStatus.NOT_IDENTIFIED,
                f"{', '.join(names[blurred])}: not identified by these runs: other values fit "
                "as well; vary N, D and r more, or hold a parameter with fix",
            )
        )
    bound = problem.at_bound(theta)
    if bound.any():
        found.append(
            (FitStatus.AT_BOUND, f"{', '.join(names[bound])}: at the bound of the law's box")
        )
    if arrived < FEW or arrived * starts < 2:
        found.append(
            (
                FitStatus.FEW_STARTS,
                f"{round(arrived * starts)} of {starts} starts reached the best objective; "
                "give more starts",
            )
        )
    status = found[0][0] if found else FitStatus.OK
    return status, tuple(text for _, text in found) + tuple(_data_warnings(problem, runs))


def _data_warnings(problem: Problem, runs: pd.DataFrame) -> Iterator[str]:
    key = [name for name in (*problem.law.columns, "case", "bptt") if name in runs]
    if again := int(runs.duplicated(key).sum()):
        yield f"{again} runs repeat the settings of another run; each counts as a separate run"
    for name in ("n_tokens", "n_params"):
        if name in runs and runs[name].min() < SMALLEST[name]:
            yield (
                f"{name} from {runs[name].min():.3g}: expected raw counts; did you give millions "
                "or billions?"
            )
    if "budget" in runs and runs["budget"].nunique() == 1:
        yield "only one budget: N and D move together, so the exponents are hard to separate"
    sources = _labels(runs, "source")
    if len(sources) > 1:
        yield f"runs of mixed sources: {', '.join(sources)}"
    own = _labels(runs[runs["n_recur"] > 1], "case") if "n_recur" in runs else ()
    if len(own) > 1:
        yield f"runs of mixed cases: {', '.join(own)}"
    if "phi" not in problem.law.exponents:
        recurrences = _labels(runs, "n_recur")
        if len(recurrences) > 1:
            yield f"a law of one architecture on runs of r = {', '.join(recurrences)}"
    elif problem.free[problem.law.index("phi")] and not (runs["n_recur"] == 1).any():
        yield "no r = 1 runs: φ has no non-looped anchor"


def _not_identified(problem: Problem, theta: np.ndarray) -> np.ndarray:
    """Free coordinates that can move without moving any prediction, [p] of bool."""
    prediction = problem.law.predict(theta[None], problem.design)
    jacobian = prediction.gradient()[0][problem.free]
    size = np.linalg.norm(jacobian, axis=1)
    blurred = np.zeros(len(theta), bool)
    flat = size < SINGULAR * size.max()
    moving = jacobian[~flat] / size[~flat, None]
    directions, singular, _ = np.linalg.svd(moving, full_matrices=False)
    null = directions[:, singular < SINGULAR * singular.max()]
    free = np.flatnonzero(problem.free)
    blurred[free[flat]] = True
    blurred[free[~flat][(np.abs(null) > 0.1).any(axis=1)]] = True
    return blurred


def _labels(runs: pd.DataFrame, column: str) -> tuple[str, ...]:
    return tuple(sorted(runs[column].dropna().astype(str).unique())) if column in runs else ()
