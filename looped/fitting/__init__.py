"""The solvers by name: the same problem, the same optimum."""

from collections.abc import Callable

import numpy as np

from looped.errors import pick
from looped.fitting.batched import solve_batched
from looped.fitting.lbfgsb import solve_lbfgsb
from looped.fitting.problem import Problem, Solution

Solver = Callable[[Problem, np.ndarray], Solution]

SOLVERS: dict[str, Solver] = {"batched": solve_batched, "lbfgsb": solve_lbfgsb}


def get_solver(name: str) -> Solver:
    """The solver with that name. Raises ConfigError for an unknown name."""
    solver: Solver = pick("solver", name, SOLVERS)
    return solver
