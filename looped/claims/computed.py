"""Computed counterparts of the claims in `runs/paper/claims.csv`, and reasons for differences."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from looped import accounting
from looped.claims.studies import (
    HIGH_HALF,
    HYPER,
    LOW4,
    LOW_HALF,
    RECURRENCES,
    SPLIT,
    TRUNCATED,
    TRUNCATED_NO_R2,
    baseline_gaps,
    joint_bootstrap,
    study_fit,
    study_runs,
    study_se,
)
from looped.diagnose.equivalence import equivalence
from looped.fitting.fit import fit
from looped.fitting.summary import residual_summary
from looped.laws.optimal import power_law_exponents
from looped.registry import published
from looped.registry.stacks import runs_at_width
from looped.studies.paper import paper_config


@dataclass(frozen=True)
class Computed:
    """The computed counterpart of a claim: a number, a range, or both, in the claim's unit."""

    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    se: float = 0.0  # digitisation error of value
    # allowed rounding of the printed number, in units of its last digit; 1 for the difference of
    # two rounded numbers
    rounding: float = 0.5


def _param(name: str, law: str = "joint", **study: Any) -> Callable[[], Computed]:
    return lambda: Computed(study_fit(law, **study).params[name], se=study_se(law, **study)[name])


def _quality(name: str, **study: Any) -> Callable[[], Computed]:
    return lambda: Computed(getattr(study_fit(**study), name))


def _phi_interval() -> Computed:
    low, high = joint_bootstrap().interval("phi")
    return Computed(low=low, high=high)


def _touched() -> Computed:
    draws = joint_bootstrap()
    return Computed(draws.touched(0) + draws.touched(1))


def _residual(quantity: str, n_recur: int) -> Callable[[], Computed]:
    def computed() -> Computed:
        summary = residual_summary(study_runs(), study_fit()).set_index("n_recur")
        return Computed(summary.loc[n_recur, quantity])

    return computed


def _gap_range(n_recur: int) -> Callable[[], Computed]:
    def computed() -> Computed:
        gaps = baseline_gaps()
        gap = gaps.loc[gaps["n_recur"] == n_recur, "gap"]
        return Computed(low=gap.min(), high=gap.max())

    return computed


def _largest_top_change() -> Computed:
    table = baseline_gaps().pivot(index="budget", columns="n_recur", values="gap").sort_index()
    return Computed(high=float((table.iloc[-1] - table.iloc[-2]).abs().max()))


def _exponent(size: str, n_recur: int) -> Callable[[], Computed]:
    def computed() -> Computed:
        study = {"n_recur": (n_recur,)}
        per_r = study_fit("chinchilla", **study)
        widths = study_runs(**study)["d_model"]
        return Computed(power_law_exponents(per_r.law, paper_config(640, n_recur), widths)[size])

    return computed


def _delta_phi(**study: Any) -> Callable[[], Computed]:
    def computed() -> Computed:
        shift = study_fit(**study).params["phi"] - study_fit(**LOW4).params["phi"]
        return Computed(shift, rounding=1.0)

    return computed


def _token_ratio() -> Computed:
    """Median ratio of tokens over the runs that truncation and the baseline share."""
    cell = ["n_recur", "budget", "d_model"]
    both = study_runs(**TRUNCATED).query("n_recur > 1").merge(study_runs(), on=cell)
    return Computed(float((both["n_tokens_x"] / both["n_tokens_y"]).median()))


def _overhead(n_recur: int) -> Callable[[], Computed]:
    looped, plain = (accounting.block_flops_per_token(paper_config(640, r)) for r in (n_recur, 1))
    return lambda: Computed(looped / plain - 1)


BILLION = paper_config(2048, 4)  # the width at which the non-looped model has 1.0B parameters


def _n_effective(split: str = SPLIT) -> float:
    """Effective parameters of the looped model of the width of `BILLION`."""
    return equivalence(study_fit(split=split), BILLION)["n_params_effective"]


def _study_cost() -> Computed:
    """FLOPs of the runs of one recurrence at the four lower budgets."""
    return Computed(float(study_runs(n_recur=(4,), **LOW4)["budget"].sum()))


COMPUTED: dict[str, Callable[[], Computed]] = {
    **{f"{name}_joint": _param(name) for name in ("phi", "alpha", "beta", "E")},
    **{f"{name}_page": _param(name) for name in ("alpha", "beta", "E", "A", "B")},
    "phi_interval": _phi_interval,
    "r2_joint": _quality("r2"),
    "r2_phi0": _quality("r2", phi=0.0),
    "r2_phi1": _quality("r2", phi=1.0),
    "rmse_joint": _quality("rmse"),
    "maxres_joint": _quality("max_abs_residual"),
    **{
        f"resid_{short}_r{r}": _residual(name, r)
        for r in RECURRENCES
        for short, name in (("mean", "mean"), ("max", "max_abs"), ("rmse", "rmse"))
    },
    "phi_low_half": _param("phi", **LOW_HALF),
    "phi_high_half": _param("phi", **HIGH_HALF),
    "bootstrap_touch": _touched,
    **{
        f"r{r}_{name}": _param(name, "chinchilla", n_recur=(r,))
        for r in RECURRENCES
        for name in ("alpha", "beta", "E")
    },
    **{
        f"r{r}_{short}": _quality(name, law="chinchilla", n_recur=(r,))
        for r in RECURRENCES
        for short, name in (("huber", "objective"), ("r2", "r2"))
    },
    **{f"gap_r{r}": _gap_range(r) for r in RECURRENCES[1:]},
    "gap_top_change": _largest_top_change,
    **{f"nstar_exp_r{r}": _exponent("n_params_star", r) for r in RECURRENCES},
    **{f"dstar_exp_r{r}": _exponent("n_tokens_star", r) for r in RECURRENCES},
    **{f"{name}_low4": _param(name, **LOW4) for name in ("phi", "alpha", "beta", "E")},
    "r2_low4": _quality("r2", **LOW4),
    "phi_truncated_bptt": _param("phi", **TRUNCATED),
    "r2_truncated_bptt": _quality("r2", **TRUNCATED),
    "phi_truncated_bptt_no_r2": _param("phi", **TRUNCATED_NO_R2),
    "r2_truncated_bptt_no_r2": _quality("r2", **TRUNCATED_NO_R2),
    "rmse_truncated_bptt": _quality("rmse", **TRUNCATED),
    "token_ratio": _token_ratio,
    "phi_hyperconnections": _param("phi", **HYPER),
    "r2_hyperconnections": _quality("r2", **HYPER),
    "rmse_hyperconnections": _quality("rmse", **HYPER),
    "dphi_truncated_bptt": _delta_phi(**TRUNCATED),
    "dphi_hyperconnections": _delta_phi(**HYPER),
    "equiv_unique": lambda: Computed(accounting.n_params(BILLION) / 1e6),
    "equiv_effective": lambda: Computed(
        equivalence(study_fit(), BILLION)["n_params_effective"] / 1e6
    ),
    "equiv_gain": lambda: Computed(4 ** study_fit().params["phi"], se=4 * study_se()["phi"]),
    **{f"inject_overhead_r{r}": _overhead(r) for r in RECURRENCES[1:]},
    "probe_cost": _study_cost,
}
"""How each derivable claim is computed. A claim that is not here is reported only."""


def _why_interval() -> str:
    draws = joint_bootstrap()
    return (
        f"{draws.refits_worse} of {draws.resamples} computed refits missed their optimum, and the "
        f"Monte Carlo error of the ends is ±{draws.edge_error('phi'):.3f}. The reason for the "
        "higher published upper end is not known."
    )


def _why_valley() -> str:
    printed = published.claims().set_index("id")["value"]
    held = {name: float(printed[f"{name}_page"]) for name in ("E", "alpha", "beta")}
    valley = fit(study_runs(), "joint", SPLIT, starts=100, fix=held)
    excess = valley.objective / study_fit().objective - 1
    return (
        "The published optimum lies in the same flat valley: with E, α and β held at the page's "
        f"values, A is {valley.params['A']:.2f} and B {valley.params['B']:.1f}, at an objective "
        f"{excess:.0e} (relative) above the computed optimum."
    )


def _why_equivalent() -> str:
    """Ways of counting that round to the published number."""
    stated = _n_effective("stated") / 1e6
    without = replace(study_fit().law, split="none")
    mixed = without.n_eff(runs_at_width(BILLION, BILLION.d_model, n_tokens=1.0))[0] / 1e6
    return (
        f"Two other ways of counting give it: split stated throughout ({stated:.0f}), or the φ of "
        f"split fitted without the injection ({mixed:.0f}). Which one the paper used is not known."
    )


WHY: dict[str, Callable[[], str]] = {
    "phi_interval": _why_interval,
    "beta_page": _why_valley,
    "B_page": _why_valley,
    "equiv_effective": _why_equivalent,
}
"""Reason for a difference, by id; called only for claims with the verdict `differs`."""
