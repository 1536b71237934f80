"""SciPy's L-BFGS-B from each start in turn: the paper's protocol, kept as the reference.

The objective is ~1e-3, and SciPy's stopping test compares its decrease with max(|f|, 1), so the
default tolerances stop far from the optimum. Here it gets the analytic gradient, an objective in
units of δ², and tight tolerances. A failed line search ends that start where it stands.
"""

import numpy as np
from scipy.optimize import minimize

from looped.fitting.problem import Problem, Solution, huber_sum

MAX_ITERATIONS = 10_000
OPTIONS = {"maxiter": MAX_ITERATIONS, "maxfun": 5 * MAX_ITERATIONS, "ftol": 1e-16, "gtol": 1e-9}


def solve_lbfgsb(
    problem: Problem, starts: np.ndarray, weights: np.ndarray | None = None
) -> Solution:
    """Minimise from every start [S, p]; weights [n] multiply the runs' terms."""
    weights = np.ones_like(problem.log_loss) if weights is None else weights
    box = list(zip(problem.lower, problem.upper, strict=True))
    found = [
        minimize(
            _value_and_gradient,
            start,
            args=(problem, weights),
            jac=True,
            method="L-BFGS-B",
            bounds=box,
            options=OPTIONS,
        ).x
        for start in starts
    ]
    theta = np.clip(np.array(found), problem.lower, problem.upper)
    # recomputed: the value that SciPy returns may be of another point after a failed line search
    return Solution(theta, problem.objective(theta, weights))


def _value_and_gradient(theta, problem, weights):
    theta = theta[None, :]
    log_loss, shares = problem.law.log_loss(theta, problem.design)
    residuals = log_loss[0] - problem.log_loss
    slopes = weights * np.clip(residuals, -problem.delta, problem.delta)
    gradient = problem.law.gradient(theta, problem.design, shares)[0] @ slopes
    scale = problem.delta**-2
    return scale * huber_sum(residuals, problem.delta, weights), scale * gradient
