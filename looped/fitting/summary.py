"""Fits as tables: one row a fit, or one row a recurrence of one fit."""

import numpy as np
import pandas as pd

from looped.fitting.result import FitResult


def fit_table(fits: dict[str, FitResult]) -> pd.DataFrame:
    """Parameters and quality of several fits, one row each.

    Returns:
        fit (the key), split, n_runs, each parameter (missing where the law has none), objective,
        r2, rmse and max_abs_residual (nats per token), starts_at_optimum, status.
    """
    quality = ("objective", "r2", "rmse", "max_abs_residual", "starts_at_optimum")
    rows = [
        {
            "fit": label,
            "split": each.split or "",
            "n_runs": each.n_runs,
            **each.params,
            **{name: getattr(each, name) for name in quality},
            "status": str(each.status),
        }
        for label, each in fits.items()
    ]
    return pd.DataFrame(rows)


def residual_summary(runs: pd.DataFrame, fit: FitResult) -> pd.DataFrame:
    """Residuals by recurrence, actual - predicted in nats per token.

    Returns:
        n_recur, n_runs, mean, max_abs, rmse.
    """
    groups = runs.assign(residual=fit.residuals).groupby("n_recur")["residual"]
    return pd.DataFrame(
        {
            "n_runs": groups.size(),
            "mean": groups.mean(),
            "max_abs": groups.agg(lambda residual: residual.abs().max()),
            "rmse": groups.agg(lambda residual: np.sqrt((residual**2).mean())),
        }
    ).reset_index()


def seed_noise(runs: pd.DataFrame, repeated: pd.DataFrame) -> pd.DataFrame:
    """How far runs of one spec lie apart that differ in their seed, one row a spec.

    Args:
        runs: table of runs.
        repeated: further seeds of some of them.

    Returns:
        budget, n_recur, d_model, seeds (how many), mean and sd of val_loss (nats per token); specs
        of a single seed are left out.
    """
    key = ["budget", "n_recur", "d_model"]
    both = pd.concat([runs.merge(repeated[key].drop_duplicates(), on=key), repeated])
    found = both.groupby(key)["val_loss"].agg(seeds="size", mean="mean", sd="std").reset_index()
    return found[found["seeds"] > 1].reset_index(drop=True)


def pooled_sd(noise: pd.DataFrame) -> float:
    """One standard deviation of all specs of `seed_noise`, weighted by degrees of freedom."""
    return float(np.sqrt(np.average(noise["sd"] ** 2, weights=noise["seeds"] - 1)))
