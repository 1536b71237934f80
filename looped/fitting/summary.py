"""Fits as tables: one row a fit, or one row a recurrence of one fit."""

from typing import Any

import numpy as np
import pandas as pd

from looped.fitting.result import FitResult

QUALITY = ("objective", "r2", "rmse", "max_abs_residual", "starts_at_optimum")


def fit_table(fits: dict[str, FitResult]) -> pd.DataFrame:
    """Parameters, intervals and quality of several fits, one row each.

    Returns:
        fit (the key), split, n_runs, each parameter (missing where the law has none), NAME_low and
        NAME_high of each parameter with an interval, objective, r2, rmse and max_abs_residual (nats
        per token), starts_at_optimum, status.
    """
    return pd.DataFrame([{"fit": label, **_row(each)} for label, each in fits.items()])


def _row(fit: FitResult) -> dict[str, Any]:
    row: dict[str, Any] = {"split": fit.split or "", "n_runs": fit.n_runs, **fit.params}
    if fit.interval is not None:
        for name in fit.interval.draws:
            row[f"{name}_low"], row[f"{name}_high"] = fit.interval.interval(name)
    return row | {name: getattr(fit, name) for name in QUALITY} | {"status": str(fit.status)}


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
