"""The Chinchilla law (arXiv 2203.15556): L(N, D) = E + A N^(-α) + B D^(-β)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from looped.laws.base import Form


class Design(NamedTuple):
    """log N and log D of the runs, each [n]."""

    log_n_params: np.ndarray
    log_n_tokens: np.ndarray


class Chinchilla(Form):
    """Loss of one architecture from its unique parameters N and training tokens D."""

    def design(self, runs: pd.DataFrame) -> Design:
        return Design(*(np.log(runs[column].to_numpy(float)) for column in self.columns))

    def shapes(self, theta: np.ndarray, design: Any) -> tuple[list, list]:
        alpha, beta = self.exponents_of(theta)
        constant = np.zeros((len(theta), 1))
        shapes = [-alpha * design.log_n_params, -beta * design.log_n_tokens, constant]
        return shapes, [(0, -design.log_n_params), (1, -design.log_n_tokens)]

    def n_eff(self, params: Mapping[str, float], runs: pd.DataFrame) -> np.ndarray:
        return runs["n_params"].to_numpy(float)


# The box is the paper's (section 4.1): a, b in [-5, 35], e in [-3, 2], α, β in [0, 2.5].
CHINCHILLA = Chinchilla(
    name="chinchilla",
    formula="L = E + A N^-α + B D^-β",
    columns=("n_params", "n_tokens"),
    intercepts=("log_A", "log_B", "log_E"),
    exponents=("alpha", "beta"),
    bounds=((-5, 35), (-5, 35), (-3, 2), (0, 2.5), (0, 2.5)),
)
