"""What a law is: a sum of power-law terms whose logarithm is fitted.

    log L = log( Σ_k exp( i_k + s_k(exponents, run) ) )

The intercepts i_k are the logs of the law's linear parameters (log_A, log_B, log_E) and the shapes
s_k depend on the exponents only. A law is therefore linear in A, B, E once its exponents are held,
which the batched solver uses.

Shapes of arrays: S parameter vectors at once, n runs, p coordinates, K terms. All logs are natural.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

LINEAR = {"A": "log_A", "B": "log_B", "E": "log_E"}
"""Public name of each linear parameter -> the coordinate in which it is fitted."""


class Prediction(NamedTuple):
    """A law at S parameter vectors: its losses, and what their gradient is made of."""

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

    def rows(self, index) -> "Prediction":
        """The prediction of some of the parameter vectors only."""
        slopes = [(term, s if s.ndim == 1 else s[index]) for term, s in self.slopes]
        return Prediction(self.log_loss[index], [s[index] for s in self.shares], slopes)


@dataclass(frozen=True)
class Law:
    """One loss law: its coordinates, their bounds, prediction and gradient. Pure, no state."""

    name: str
    formula: str
    columns: tuple[str, ...]  # of the table of runs, that the design needs
    intercepts: tuple[str, ...]
    exponents: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]  # per coordinate; starts are drawn uniformly inside

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the fitted coordinates, in the order of every parameter vector."""
        return self.intercepts + self.exponents

    def design(self, runs: pd.DataFrame):
        """What the law reads of the runs, as arrays of length n."""
        raise NotImplementedError

    def shapes(self, theta: np.ndarray, design) -> tuple[list, list]:
        """s_k of each of the K terms, each [S, n] or [S, 1]; and for each exponent the term that
        it moves, with ∂s_k/∂exponent [S, n] or [n]."""
        raise NotImplementedError

    def predict(self, theta: np.ndarray, design) -> Prediction:
        """Log loss of the runs at each parameter vector [S, p], with its derivatives at hand."""
        shapes, slopes = self.shapes(theta, design)
        terms = [np.exp(theta[:, k : k + 1] + shape) for k, shape in enumerate(shapes)]
        total = sum(terms)
        return Prediction(np.log(total), [term / total for term in terms], slopes)

    def to_params(self, theta: np.ndarray) -> dict[str, float]:
        """Public parameters (E, A, B, exponents) of one coordinate vector [p]."""
        values = dict(zip(self.coordinates, map(float, theta), strict=True))
        linear = {name: float(np.exp(values.pop(log))) for name, log in LINEAR.items()}
        return {**linear, **values}

    def to_theta(self, params: dict[str, float]) -> np.ndarray:
        """Inverse of `to_params`. Raises ValueError on a missing, unknown or negative parameter."""
        expected = set(LINEAR) | set(self.exponents)
        if set(params) != expected:
            raise ValueError(
                f"law {self.name!r}: got parameters {sorted(params)}, expected {sorted(expected)}"
            )
        return np.array([self.coordinate_of(name, params) for name in self.param_names])

    @property
    def param_names(self) -> tuple[str, ...]:
        """Public names in the order of the coordinates."""
        return tuple(LINEAR) + self.exponents

    def coordinate_of(self, name: str, params: dict[str, float]) -> float:
        """The coordinate value of the public parameter `name`. Raises ValueError."""
        if name not in self.param_names:
            raise ValueError(
                f"law {self.name!r} has no parameter {name!r}; it has {self.param_names}"
            )
        value = float(params[name])
        if not np.isfinite(value) or (name in LINEAR and value <= 0):
            kind = "positive" if name in LINEAR else "finite"
            raise ValueError(f"{name}: got {value!r}, expected a {kind} number")
        return float(np.log(value)) if name in LINEAR else value
