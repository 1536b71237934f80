"""The Chinchilla law (arXiv 2203.15556): L(N, D) = E + A N^(-α) + B D^(-β)."""

from typing import NamedTuple

import numpy as np

from looped.laws.base import Law


class Design(NamedTuple):
    """log N and log D of the runs, each [n]."""

    log_n_params: np.ndarray
    log_n_tokens: np.ndarray


class Chinchilla(Law):
    """Loss of one architecture from its unique parameters N and training tokens D."""

    def design(self, runs):
        return Design(*(np.log(runs[column].to_numpy(float)) for column in self.columns))

    def shapes(self, theta, design):
        alpha, beta = theta[:, 3:4], theta[:, 4:5]
        constant = np.zeros((len(theta), 1))
        shapes = [-alpha * design.log_n_params, -beta * design.log_n_tokens, constant]
        return shapes, [(0, -design.log_n_params), (1, -design.log_n_tokens)]


# The box is the paper's (section 4.1): a, b in [-5, 35], e in [-3, 2], α, β in [0, 2.5].
CHINCHILLA = Chinchilla(
    name="chinchilla",
    formula="L = E + A N^-α + B D^-β",
    columns=("n_params", "n_tokens"),
    intercepts=("log_A", "log_B", "log_E"),
    exponents=("alpha", "beta"),
    bounds=((-5, 35), (-5, 35), (-3, 2), (0, 2.5), (0, 2.5)),
)
