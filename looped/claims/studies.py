"""The paper's studies: their runs and their fits, cached."""

from functools import cache
from typing import Any

import pandas as pd

from looped.fitting.bootstrap import bootstrap
from looped.fitting.fit import fit
from looped.fitting.isoflop import isoflop_minima, loss_gaps
from looped.fitting.result import Bootstrap, FitResult
from looped.fitting.sensitivity import propagate_se
from looped.registry.read import load_runs

SPLIT = "fitted"
"""The split from which the published φ follow."""

RECURRENCES = (1, 2, 4, 8)
CASE_BUDGET_MAX = 4.64e18  # the case studies' four lower budgets
LOW4: dict[str, Any] = {"budget_max": CASE_BUDGET_MAX}
TRUNCATED: dict[str, Any] = {"case": "truncated_bptt"}
TRUNCATED_NO_R2: dict[str, Any] = {"case": "truncated_bptt", "n_recur": (1, 4, 8)}
HYPER: dict[str, Any] = {"case": "hyperconnections"}
LOW_HALF: dict[str, Any] = {"budget_max": 2.15e18}
HIGH_HALF: dict[str, Any] = {"budget_min": 4.64e18}
STUDIES: dict[str, tuple[str, dict[str, Any]]] = {
    "baseline": ("phi_joint", {}),
    "four lower budgets": ("phi_low4", LOW4),
    "truncated BPTT": ("phi_truncated_bptt", TRUNCATED),
    "truncated BPTT without r = 2": ("phi_truncated_bptt_no_r2", TRUNCATED_NO_R2),
    "hyperconnections": ("phi_hyperconnections", HYPER),
    "lower budgets' half": ("phi_low_half", LOW_HALF),
    "upper budgets' half": ("phi_high_half", HIGH_HALF),
}
"""Studies with a published φ: the id of the claim, and the selection of runs."""


@cache
def study_runs(
    case: str = "baseline", n_recur: tuple[int, ...] | None = None, **budgets: Any
) -> pd.DataFrame:
    """The paper's runs of one study."""
    return load_runs("paper", case=case, n_recur=n_recur, **budgets)


@cache
def study_fit(
    law: str = "joint", phi: float | None = None, split: str = SPLIT, **study: Any
) -> FitResult:
    """The law fitted to the runs of one study, with φ held fixed unless it is None."""
    return fit(study_runs(**study), law, split, starts=100, fix={} if phi is None else {"phi": phi})


@cache
def study_se(law: str = "joint", **study: Any) -> pd.Series:
    """Standard error of each parameter of `study_fit` due to the digitisation."""
    return propagate_se(study_runs(**study), study_fit(law, **study))


@cache
def joint_bootstrap() -> Bootstrap:
    """Bootstrap over (budget, r) cells, with more resamples than the paper's 200 (noisy ends)."""
    return bootstrap(study_runs(), study_fit(), resamples=2000, starts=10)


@cache
def baseline_gaps() -> pd.DataFrame:
    """Loss gaps between the isoFLOP minima and those of r = 1, nats per token."""
    return loss_gaps(isoflop_minima(study_runs()))
