"""How far a fit follows its data: parameters under the runs' errors, and objective against φ."""

from dataclasses import replace

import numpy as np
import pandas as pd

from looped.fitting.batched import solve_batched
from looped.fitting.fit import fit
from looped.fitting.result import FitResult
from looped.laws import get_law


def propagate_se(
    runs: pd.DataFrame, fitted: FitResult, *, draws: int = 100, seed: int = 0
) -> pd.Series:
    """Standard error of each parameter from the runs' val_loss_se alone.

    Every draw adds independent normal errors of that size to the losses and refits from the fit's
    own optimum. It covers what val_loss_se covers (for digitised runs the reading of the figure),
    not the scatter of the runs about the law: that is the bootstrap's.

    Raises:
        ValueError: fewer than two draws, runs that are not the fit's, without val_loss_se, or with
            errors as large as the loss.
    """
    if draws < 2:
        raise ValueError(f"draws: got {draws}, expected at least 2")
    if "val_loss_se" not in runs or runs["val_loss_se"].isna().any():
        raise ValueError("val_loss_se is missing for some runs; give it for each")
    if (runs["val_loss_se"] > 0.1 * runs["val_loss"]).any():
        raise ValueError("val_loss_se is above a tenth of val_loss; are both nats per token?")
    law = get_law(fitted.law)
    problem = fitted.problem(runs)
    errors = np.random.default_rng(seed).standard_normal((draws, len(runs)))
    noisy = np.log(runs["val_loss"].to_numpy() + runs["val_loss_se"].to_numpy() * errors)
    starts = np.tile(fitted.theta, (draws, 1))
    found = solve_batched(replace(problem, log_loss=noisy), starts).theta
    return pd.DataFrame([law.to_params(theta) for theta in found]).std()


def profile_phi(runs: pd.DataFrame, fitted: FitResult, phi, *, starts: int = 50) -> pd.DataFrame:
    """The fit with φ held at each value in turn, in their order of size.

    Returns:
        split, phi, objective, r2, rmse (nats per token).
    """
    held = [
        fit(
            runs,
            fitted.law,
            fitted.split,
            starts=starts,
            seed=fitted.seed,
            delta=fitted.delta,
            fix=fitted.fixed | {"phi": float(value)},
            solver=fitted.solver,
        )
        for value in sorted(phi)
    ]
    quality = ("objective", "r2", "rmse")
    return pd.DataFrame(
        [
            {"split": each.split, "phi": each.fixed["phi"]}
            | {name: getattr(each, name) for name in quality}
            for each in held
        ]
    )
