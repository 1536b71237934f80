"""The minimisation that every fit is (paper section 4.1): a Huber sum over log-loss residuals.

    min over θ of Σ_i w_i Huber_δ( log L(θ, run i) - log L_i )

a sum, not a mean; weights w are 1, or a resample's multiplicities. θ stays in the law's box, which
a held parameter narrows to one value.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from looped.laws.base import Form
from looped.splits import split_params

BATCH = 20_000
"""Residuals (starts x runs) of one block: arrays of 160 kB, which stay in the cache."""


class Solution(NamedTuple):
    """Where each start ended: coordinates [S, p] and objective [S]."""

    theta: np.ndarray
    objective: np.ndarray


@dataclass(frozen=True)
class Problem:
    """A law, the runs as arrays, and the box to search.

    `log_loss` and `weights` are [n], shared by all starts, or [S, n], one row a start: so many
    resamples are one problem.
    """

    law: Form
    design: tuple
    log_loss: np.ndarray
    weights: np.ndarray
    delta: float
    lower: np.ndarray  # [p]
    upper: np.ndarray  # [p]

    @property
    def free(self) -> np.ndarray:
        """Which coordinates are not held, [p] of bool."""
        return self.lower < self.upper

    def at_bound(self, theta: np.ndarray) -> np.ndarray:
        """Which free coordinates of theta [..., p] lie at the end of their box."""
        reach = 1e-6 * (self.upper - self.lower)
        return self.free & ((theta - self.lower <= reach) | (self.upper - theta <= reach))

    def draw_starts(self, starts: int, rng: np.random.Generator) -> np.ndarray:
        """Start vectors [starts, p], uniform in the law's box; held coordinates at their value."""
        low, high = np.array(self.law.bounds, dtype=float).T
        drawn = low + (high - low) * rng.random((starts, len(low)))
        return np.clip(drawn, self.lower, self.upper)

    def rows(self, index) -> "Problem":
        """The problem of some of the starts only."""
        log_loss, weights = (a if a.ndim == 1 else a[index] for a in (self.log_loss, self.weights))
        return replace(self, log_loss=log_loss, weights=weights)

    def objective(self, theta: np.ndarray) -> np.ndarray:
        """The Huber sum of each parameter vector, [S]."""
        return self.huber_sum(self.law.predict(theta, self.design).log_loss - self.log_loss)

    def huber_sum(self, residuals: np.ndarray) -> np.ndarray:
        """Σ_i w_i Huber_δ(residual_i), [S]: r²/2 inside δ, δ (|r| - δ/2) outside."""
        size = np.abs(residuals)
        inside = np.minimum(size, self.delta)
        return (self.weights * inside * (size - 0.5 * inside)).sum(axis=-1)

    def huber_terms(self, theta: np.ndarray) -> np.ndarray:
        """Huber_δ(residual_i) of each run without its weight, [S, n]."""
        size = np.abs(self.law.predict(theta, self.design).log_loss - self.log_loss)
        inside = np.minimum(size, self.delta)
        return inside * (size - 0.5 * inside)


def build_problem(
    runs: pd.DataFrame, law: Form, split: str, delta: float, fix: dict[str, float]
) -> Problem:
    """The fit of `law` to `runs` as arrays. Raises ValueError for runs that cannot be fitted."""
    counted = split_params(runs, split) if "n_params_rec" in law.columns else runs
    _require_columns(counted, law)
    _require_positive(counted, law)
    lower, upper = np.array(law.bounds, dtype=float).T
    for name in fix:
        value = law.coordinate_of(name, fix)
        held = law.param_names.index(name)
        if not lower[held] <= value <= upper[held]:
            raise ValueError(
                f"fix: got {name} = {fix[name]:g}, outside the box of law {law.name!r}: "
                f"{law.coordinates[held]} from {lower[held]:g} to {upper[held]:g}"
            )
        lower[held] = upper[held] = value
    free = int((lower < upper).sum())
    if not free:
        raise ValueError(f"fix holds every parameter of law {law.name!r}; leave at least one free")
    if len(counted) <= free:
        raise ValueError(
            f"law {law.name!r} has {free} free parameters, got {len(counted)} runs; give more runs "
            "or hold parameters with fix"
        )
    if not (np.isfinite(delta) and delta > 0):
        raise ValueError(f"delta: got {delta!r}, expected a positive number (the paper: 1e-3)")
    log_loss = np.log(counted["val_loss"].to_numpy(float))
    if np.ptp(log_loss) == 0:
        raise ValueError("val_loss is the same in every run; a law needs runs that differ")
    weights = np.ones_like(log_loss)
    return Problem(law, law.design(counted), log_loss, weights, delta, lower, upper)


def _require_columns(runs, law):
    needed = [*law.columns, "val_loss"]
    lacking = {
        name: "no such column"
        if name not in runs
        else f"missing in row {runs[name].isna().argmax()}"
        for name in needed
        if name not in runs or runs[name].isna().any()
    }
    if lacking:
        raise ValueError(
            f"law {law.name!r} needs the columns {needed} of every run, got {lacking}; "
            "fill them in, or choose a law that needs less"
        )


def _require_positive(runs, law):
    for name in (*law.columns, "val_loss"):
        values = runs[name].to_numpy(float)
        # a model may keep all its parameters in one of the two parts
        low = values < 0 if name in ("n_params_once", "n_params_rec") else values <= 0
        bad = low | ~np.isfinite(values)
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(
                f"{name}: got {values[row]:g} in row {row}, expected a positive number; "
                "correct it, or leave the run out"
            )
