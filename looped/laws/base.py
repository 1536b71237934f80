"""A law in two parts: its `Form` (names, bounds, formula) and a `Law` (a form with values).

A form is a sum of power-law terms. Fits minimise residuals of its logarithm:

    log L = log( Σ_k exp( i_k + s_k(exponents, run) ) )

The intercepts i_k are the logs of the linear parameters (log_A, log_B, log_E). The shapes s_k
depend on the exponents only. With its exponents held, a law is therefore linear in A, B and E; the
batched solver uses this.

Shapes of arrays: S parameter vectors, n runs, p coordinates, K terms. All logs are natural.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

LOG = "log_"
"""Prefix of the coordinate of a linear parameter: A is fitted as log_A."""


class Prediction(NamedTuple):
    """A form at S parameter vectors: its losses, and the parts of their gradient."""

    log_loss: np.ndarray  # [S, n]
    shares: list[np.ndarray]  # of each term in L: K arrays [S, n]
    slopes: list[tuple[int, np.ndarray]]  # per exponent: the term it moves, ∂s_k [S, n] or [n]

    def gradient(self) -> np.ndarray:
        """∂ log L / ∂ coordinates, [S, p, n]."""
        n_terms = len(self.shares)
        starts, runs = self.log_loss.shape
        gradient = np.empty((starts, n_terms + len(self.slopes), runs))
        for k, share in enumerate(self.shares):
            gradient[:, k] = share
        for i, (term, slope) in enumerate(self.slopes):
            np.multiply(self.shares[term], slope, out=gradient[:, n_terms + i])
        return gradient

    def rows(self, index: Any) -> "Prediction":
        """The prediction of the parameter vectors that `index` selects."""
        slopes = [(term, s if s.ndim == 1 else s[index]) for term, s in self.slopes]
        return Prediction(self.log_loss[index], [s[index] for s in self.shares], slopes)


@dataclass(frozen=True)
class Form:
    """The form of a loss law: coordinates, bounds, prediction and gradient. It has no values.

    The intercepts stand first in every coordinate vector, then the exponents. No other order is
    assumed: read a coordinate by `index`, a column of the table of runs by its name.
    """

    name: str
    formula: str
    columns: tuple[str, ...]  # of the table of runs, that `design` reads
    intercepts: tuple[str, ...]  # log_ and the public name of each linear parameter
    exponents: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]  # per coordinate; starts are drawn uniformly inside

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the fitted coordinates, in the order of every parameter vector."""
        return self.intercepts + self.exponents

    @property
    def linear(self) -> tuple[str, ...]:
        """Public names of the linear parameters, in the order of the intercepts."""
        return tuple(name.removeprefix(LOG) for name in self.intercepts)

    @property
    def param_names(self) -> tuple[str, ...]:
        """Public names of the parameters, in the order of the coordinates."""
        return self.linear + self.exponents

    @property
    def counts_recurring(self) -> bool:
        """Whether the law distinguishes N_once from N_rec, so that the split matters."""
        return "n_params_rec" in self.columns

    def index(self, param: str) -> int:
        """Position of a public parameter in every coordinate vector. Raises ValueError."""
        if param not in self.param_names:
            raise ValueError(
                f"law {self.name!r} has no parameter {param!r}; it has {self.param_names}"
            )
        return self.param_names.index(param)

    def bounds_of(self, param: str) -> tuple[float, float]:
        """Bounds of the coordinate of a public parameter. Raises ValueError."""
        return self.bounds[self.index(param)]

    def exponents_of(self, theta: np.ndarray) -> list[np.ndarray]:
        """The exponents of parameter vectors [S, p], each as a column [S, 1], in their order."""
        return [theta[:, i : i + 1] for i in range(len(self.intercepts), theta.shape[1])]

    def n_eff(self, params: Mapping[str, float], runs: pd.DataFrame) -> np.ndarray:
        """Effective parameters of each run [n]: the unique parameters that it is worth."""
        raise NotImplementedError

    def design(self, runs: pd.DataFrame) -> Any:
        """What the law reads of the runs, as arrays of length n."""
        raise NotImplementedError

    def shapes(self, theta: np.ndarray, design: Any) -> tuple[list, list]:
        """Shapes of the K terms and their slopes.

        Returns:
            s_k of each term, [S, n] or [S, 1]; and for each exponent the number of the term that
            it moves, with ∂s_k/∂exponent [S, n] or [n].
        """
        raise NotImplementedError

    def predict(self, theta: np.ndarray, design: Any) -> Prediction:
        """Log loss of the runs at each parameter vector [S, p], ready for its gradient."""
        shapes, slopes = self.shapes(theta, design)
        terms = [np.exp(theta[:, k : k + 1] + shape) for k, shape in enumerate(shapes)]
        total = sum(terms)
        return Prediction(np.log(total), [term / total for term in terms], slopes)

    def to_params(self, theta: np.ndarray) -> dict[str, float]:
        """Public parameters (E, A, B, exponents) of one coordinate vector [p]."""
        values = dict(zip(self.param_names, map(float, theta), strict=True))
        return values | {name: float(np.exp(values[name])) for name in self.linear}

    def to_theta(self, params: Mapping[str, float]) -> np.ndarray:
        """Inverse of `to_params`. Raises ValueError on a missing, unknown or negative parameter."""
        if set(params) != set(self.param_names):
            raise ValueError(
                f"law {self.name!r}: got parameters {sorted(params)}, expected "
                f"{sorted(self.param_names)}"
            )
        return np.array([self.coordinate_of(name, params) for name in self.param_names])

    def coordinate_of(self, name: str, params: Mapping[str, float]) -> float:
        """The coordinate value of the public parameter `name`. Raises ValueError."""
        linear = self.index(name) < len(self.intercepts)
        value = float(params[name])
        if not np.isfinite(value) or (linear and value <= 0):
            kind = "positive" if linear else "finite"
            raise ValueError(f"{name}: got {value!r}, expected a {kind} number")
        return float(np.log(value)) if linear else value
