"""SciPy's L-BFGS-B from each start in turn: the paper's protocol, kept as the reference.

The objective is ~1e-3, and SciPy's stopping test compares its decrease with max(|f|, 1), so the
default tolerances stop far from the optimum. Here it gets the analytic gradient, an objective in
units of δ², and tight tolerances. A failed line search ends that start where it stands.
"""

import numpy as np

from looped.fitting.problem import Problem, Solution

MAX_ITERATIONS = 10_000
OPTIONS = {"maxiter": MAX_ITERATIONS, "maxfun": 5 * MAX_ITERATIONS, "ftol": 1e-16, "gtol": 1e-9}


def solve_lbfgsb(problem: Problem, starts: np.ndarray) -> Solution:
    """Minimise from every start [S, p]."""
    from scipy.optimize import minimize  # here: its import takes longer than a batched fit

    box = list(zip(problem.lower, problem.upper, strict=True))
    found = [
        minimize(
            _value_and_gradient,
            start,
            args=(problem.rows(slice(i, i + 1)),),
            jac=True,
            method="L-BFGS-B",
            bounds=box,
            options=OPTIONS,
        ).x
        for i, start in enumerate(starts)
    ]
    theta = np.clip(np.array(found), problem.lower, problem.upper)
    # recomputed: the value that SciPy returns may be of another point after a failed line search
    return Solution(theta, problem.objective(theta))


def _value_and_gradient(theta, problem):
    prediction = problem.law.predict(theta[None, :], problem.design)
    residuals = prediction.log_loss - problem.log_loss
    slopes = problem.weights * np.clip(residuals, -problem.delta, problem.delta)
    gradient = prediction.gradient()[0] @ slopes.ravel()
    scale = problem.delta**-2
    return scale * problem.huber_sum(residuals)[0], scale * gradient
