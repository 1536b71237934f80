"""The joint law (paper section 4.1): Chinchilla on the effective parameters of a looped model.

    L = E + A (N_once + r^φ N_rec)^(-α) + B D^(-β)

φ = 1: a recurrence is worth a unique block; φ = 0: it is worth nothing, and this is Chinchilla's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from looped.laws.base import Form
from looped.laws.chinchilla import CHINCHILLA


class Design(NamedTuple):
    """N_once, N_rec, log r and log D of the runs, each [n]."""

    n_params_once: np.ndarray
    n_params_rec: np.ndarray
    log_n_recur: np.ndarray
    log_n_tokens: np.ndarray


class Joint(Form):
    """Loss of all recurrences together, from N_once, N_rec, r and D."""

    def design(self, runs: pd.DataFrame) -> Design:
        once, rec, n_recur, n_tokens = (runs[name].to_numpy(float) for name in self.columns)
        return Design(once, rec, np.log(n_recur), np.log(n_tokens))

    def shapes(self, theta: np.ndarray, design: Any) -> tuple[list, list]:
        alpha, beta, phi = self.exponents_of(theta)
        recurring = design.n_params_rec * np.exp(phi * design.log_n_recur)  # r^φ N_rec
        effective = design.n_params_once + recurring
        by_alpha = -np.log(effective)
        by_phi = -alpha * design.log_n_recur * (recurring / effective)
        constant = np.zeros((len(theta), 1))
        shapes = [alpha * by_alpha, -beta * design.log_n_tokens, constant]
        return shapes, [(0, by_alpha), (1, -design.log_n_tokens), (0, by_phi)]

    def n_eff(self, params: Mapping[str, float], runs: pd.DataFrame) -> np.ndarray:
        """N_once + r^φ N_rec of each run [n]."""
        columns = ("n_params_once", "n_params_rec", "n_recur")
        once, rec, n_recur = (runs[name].to_numpy(float) for name in columns)
        return once + n_recur ** params["phi"] * rec


JOINT = Joint(
    name="joint",
    formula="L = E + A (N_once + r^φ N_rec)^-α + B D^-β",
    columns=("n_params_once", "n_params_rec", "n_recur", "n_tokens"),
    intercepts=CHINCHILLA.intercepts,
    exponents=(*CHINCHILLA.exponents, "phi"),
    bounds=(*CHINCHILLA.bounds, (-3, 3)),
)
