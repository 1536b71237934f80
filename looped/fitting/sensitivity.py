"""Sensitivity of a fit: parameters under the runs' errors, and the objective against φ."""

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from looped.errors import require
from looped.fitting import get_solver
from looped.fitting.fit import fit
from looped.fitting.result import FitResult


def propagate_se(
    runs: pd.DataFrame, fitted: FitResult, *, draws: int = 100, seed: int = 0
) -> pd.Series:
    """Standard error of each parameter from the runs' val_loss_se alone.

    Each draw adds independent normal errors of that size to the losses and refits, starting at the
    fit's optimum. It covers the errors that val_loss_se covers (for digitised runs the reading of
    the figure). It does not cover the scatter of the runs about the law; the bootstrap does.

    Raises:
        ValueError: fewer than two draws, runs that were not fitted, runs without val_loss_se, or
            errors above a tenth of the loss.
    """
    if draws < 2:
        raise ValueError(f"draws: got {draws}, expected at least 2")
    require(runs, ["val_loss_se"], "propagate_se")
    if (runs["val_loss_se"] > 0.1 * runs["val_loss"]).any():
        raise ValueError("val_loss_se is above a tenth of val_loss; are both in nats per token?")
    problem = fitted.problem(runs)
    errors = np.random.default_rng(seed).standard_normal((draws, len(runs)))
    noisy = np.log(runs["val_loss"].to_numpy() + runs["val_loss_se"].to_numpy() * errors)
    starts = np.tile(fitted.law.theta, (draws, 1))
    refitted = get_solver("batched")(replace(problem, log_loss=noisy), starts).theta
    return pd.DataFrame([fitted.form.to_params(theta) for theta in refitted]).std()


def profile_phi(
    runs: pd.DataFrame, fitted: FitResult, phi: ArrayLike, *, starts: int = 50
) -> pd.DataFrame:
    """The fit repeated with φ held at each value, in ascending order; all else is refitted.

    Returns:
        split, phi, objective, r2, rmse (nats per token).
    """
    rows = []
    for value in sorted(np.ravel(phi).astype(float)):
        fix = fitted.fixed | {"phi": float(value)}
        held = fit(
            runs,
            fitted.law.name,
            fitted.split or "stated",
            starts=starts,
            seed=fitted.seed,
            delta=fitted.delta,
            fix=fix,
            solver=fitted.solver,
        )
        quality = {name: getattr(held, name) for name in ("objective", "r2", "rmse")}
        rows.append({"split": held.split, "phi": held.params["phi"], **quality})
    return pd.DataFrame(rows)
