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
