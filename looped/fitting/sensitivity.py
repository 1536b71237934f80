"""How far a fit follows its data: parameters under the runs' errors, and objective against φ."""

import numpy as np
import pandas as pd

from looped.fitting.batched import solve_batched
from looped.fitting.fit import fit
from looped.fitting.problem import build_problem
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
        ValueError: runs without val_loss_se.
    """
    if runs["val_loss_se"].isna().any():
        raise ValueError(
            "val_loss_se is missing for some runs; give it for each, or leave this out"
        )
    rng = np.random.default_rng(seed)
    law = get_law(fitted.law)
    found = []
    for _ in range(draws):
        noisy = runs["val_loss"] + runs["val_loss_se"] * rng.standard_normal(len(runs))
        problem = build_problem(
            runs.assign(val_loss=noisy), law, fitted.split or "stated", fitted.delta, fitted.fixed
        )
        found.append(law.to_params(solve_batched(problem, fitted.theta[None]).theta[0]))
    return pd.DataFrame(found).std()


def profile_phi(runs: pd.DataFrame, fitted: FitResult, phi, *, starts: int = 50) -> pd.DataFrame:
    """The fit with φ held at each value in turn: columns phi, objective, r2, rmse (nats)."""
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
        for value in phi
    ]
    return pd.DataFrame(
        [
            {
                "phi": each.fixed["phi"],
                "objective": each.objective,
                "r2": each.r2,
                "rmse": each.rmse,
            }
            for each in held
        ]
    )
