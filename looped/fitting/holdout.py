"""Extrapolation of a law: fits without some budgets, and predictions of every resample."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from looped.errors import require
from looped.fitting.fit import fit
from looped.fitting.result import Bootstrap, FitResult
from looped.laws import get_form
from looped.splits import split_params


@dataclass(frozen=True, kw_only=True)
class HoldOut:
    """A law fitted without the runs of some budgets, and its predictions of all runs."""

    budgets: tuple[float, ...]  # FLOPs, ascending: left out of the fit
    fit: FitResult
    runs: pd.DataFrame  # all runs, with predicted, residual (nats per token) and held_out

    @property
    def label(self) -> str:
        """The budgets that the fit did not see: "without 1e19, 2.15e19"."""
        return f"without {', '.join(f'{budget:.3g}' for budget in self.budgets)}".replace("e+", "e")

    @property
    def fitted(self) -> pd.DataFrame:
        """The runs of the fit, in its order."""
        return self.runs[~self.runs["held_out"]].reset_index(drop=True)

    @property
    def rmse(self) -> float:
        """RMSE of the held-out runs, nats per token; `fit.rmse` is that of the fitted runs."""
        held = self.runs.loc[self.runs["held_out"], "residual"]
        return float(np.sqrt((held**2).mean()))


def hold_out(
    runs: pd.DataFrame,
    budgets: ArrayLike,
    law: str = "joint",
    split: str = "stated",
    **options: Any,
) -> HoldOut:
    """A law fitted to the runs of the other budgets, and its predictions of all runs.

    Args:
        runs: table of `load_runs`, or any table with budget, val_loss and the law's columns.
        budgets: FLOPs, one or several, as in the table.
        law: a name in `looped.LAWS`.
        split: what counts as recurring (`looped.splits`).
        options: of `looped.fit`: starts, seed, delta, fix, solver.

    Raises:
        ValueError: runs without a budget, no budget or an unknown one, or fewer runs left than
            the law has free parameters.
    """
    require(runs, ["budget"], "hold_out")
    held = tuple(sorted({float(budget) for budget in np.atleast_1d(budgets)}))
    known = sorted(runs["budget"].unique().tolist())
    unknown = [budget for budget in held if budget not in known]
    if unknown or not held:
        raise ValueError(f"budgets: got {list(held)}, expected one or more of the runs' {known}")
    out = runs["budget"].isin(held)
    n_free = len(get_form(law).coordinates) - len(options.get("fix") or {})
    n_left = int((~out).sum())
    if n_left <= n_free:
        raise ValueError(
            f"holding out {list(held)} leaves {n_left} of {len(runs)} runs, but law {law!r} has "
            f"{n_free} free parameters; hold out fewer budgets"
        )
    fitted = fit(runs[~out].reset_index(drop=True), law, split, **options)
    predicted = fitted.predict(runs)
    all_runs = runs.assign(predicted=predicted, residual=runs["val_loss"] - predicted, held_out=out)
    return HoldOut(budgets=held, fit=fitted, runs=all_runs)


def predict_draws(fit: FitResult, resampled: Bootstrap, runs: pd.DataFrame) -> np.ndarray:
    """Loss of each run by the law of each resample, nats per token [resamples, n].

    Differences of columns are gaps between runs under one and the same law.

    Args:
        fit: the fit that was resampled.
        resampled: its bootstrap.
        runs: a table with the law's columns; val_loss is not needed.

    Raises:
        ValueError: a bootstrap of another law, or with other held parameters.
    """
    free = set(fit.form.param_names) - set(fit.fixed)
    if set(resampled.draws) != free:
        raise ValueError(
            f"the bootstrap resampled {sorted(resampled.draws)}, but the fit has {sorted(free)} "
            "free; pass the bootstrap of this fit"
        )
    counted = runs if fit.split is None else split_params(runs, fit.split)
    theta = resampled.theta(fit.form, fit.fixed)
    return np.exp(fit.form.predict(theta, fit.form.design(counted)).log_loss)


def predict_interval(fit: FitResult, resampled: Bootstrap, runs: pd.DataFrame) -> pd.DataFrame:
    """Predicted loss of each run with its percentile interval at the bootstrap's level.

    The interval covers the law's parameters. It contains neither the scatter of single runs nor
    the error of the law's form, which grows away from the fitted runs.

    Returns:
        predicted, low, high (nats per token), one row a run. Raises as `predict_draws`.
    """
    low, high = resampled.percentiles(predict_draws(fit, resampled, runs))
    return pd.DataFrame({"predicted": fit.predict(runs), "low": low, "high": high})
