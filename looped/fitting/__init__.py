"""The solvers by name: same problem, same optimum."""

from looped.errors import ConfigError
from looped.fitting.batched import solve_batched
from looped.fitting.lbfgsb import solve_lbfgsb

SOLVERS = {"batched": solve_batched, "lbfgsb": solve_lbfgsb}


def get_solver(name: str):
    """The solver of that name. Raises ConfigError if there is none."""
    if name not in SOLVERS:
        raise ConfigError(f"solver: got {name!r}, expected one of {sorted(SOLVERS)}")
    return SOLVERS[name]
