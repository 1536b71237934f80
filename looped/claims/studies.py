"""The paper's studies: which runs each fits, and the fits, each made once."""

from functools import cache

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
LOW4 = {"budget_max": CASE_BUDGET_MAX}
TRUNCATED = {"case": "truncated_bptt"}
TRUNCATED_NO_R2 = {"case": "truncated_bptt", "n_recur": (1, 4, 8)}
HYPER = {"case": "hyperconnections"}
LOW_HALF, HIGH_HALF = {"budget_max": 2.15e18}, {"budget_min": 4.64e18}
STUDIES: dict[str, tuple[str, dict]] = {
    "baseline": ("phi_joint", {}),
    "four lower budgets": ("phi_low4", LOW4),
    "truncated BPTT": ("phi_tbptt", TRUNCATED),
    "truncated BPTT without r = 2": ("phi_tbptt_no_r2", TRUNCATED_NO_R2),
    "hyperconnections": ("phi_hc", HYPER),
    "lower budgets' half": ("phi_low_half", LOW_HALF),
    "upper budgets' half": ("phi_high_half", HIGH_HALF),
}
"""Each study whose φ is published: the claim, and which runs it fits."""


@cache
def study_runs(case: str = "baseline", n_recur: tuple[int, ...] | None = None, **budgets):
    """The paper's runs of one study."""
    return load_runs("paper", case=case, n_recur=n_recur, **budgets)


@cache
def study_fit(
    law: str = "joint", phi: float | None = None, split: str = SPLIT, **study
) -> FitResult:
    """The law on one study's runs; φ held if given."""
    return fit(study_runs(**study), law, split, starts=100, fix={} if phi is None else {"phi": phi})


@cache
def study_se(law: str = "joint", **study) -> pd.Series:
    """Reading error of each parameter of `study_fit`."""
    return propagate_se(study_runs(**study), study_fit(law, **study))


@cache
def joint_bootstrap() -> Bootstrap:
    """Resamples of the (budget, r) cells: more than the paper's 200, whose ends are noisy."""
    return bootstrap(study_runs(), study_fit(), resamples=2000, starts=10)


@cache
def baseline_gaps() -> pd.DataFrame:
    """Loss gaps of the parabola minima to r = 1."""
    return loss_gaps(isoflop_minima(study_runs()))
