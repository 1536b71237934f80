"""Every number of `runs/paper/claims.csv` beside ours, with a computed verdict.

A claim is *reproduced* if ours rounds to the published digits, *reproduced within the reading* if
the distance is within three standard errors of the figure's digitisation, and *differs* otherwise,
with a reason. What the data at hand cannot yield is *reported only*.

All fits here use split `fitted`, from which the published φ follow (see `looped.splits`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from looped import accounting
from looped.config import d_model_of_width, paper_config
from looped.fitting.bootstrap import bootstrap
from looped.fitting.fit import fit
from looped.fitting.isoflop import isoflop_minima, loss_gaps
from looped.fitting.optimal import equal_loss_n_params, power_law_exponents, runs_at_width
from looped.fitting.result import Bootstrap, FitResult
from looped.fitting.sensitivity import propagate_se
from looped.laws import LAWS
from looped.laws.joint import n_params_effective
from looped.registry import load_runs
from looped.registry.paper import published_claims, published_counts
from looped.splits import SPLITS, split_params

SPLIT = "fitted"
CASE_BUDGET_MAX = 4.64e18  # the case studies' four lower budgets
RECURRENCES = (1, 2, 4, 8)
REPRODUCED, WITHIN_READING = "reproduced", "reproduced within the reading"
DIFFERS, REPORTED = "differs", "reported only"
READING_ERRORS = 3.0


@dataclass(frozen=True)
class Ours:
    """Our counterpart of a claim: a number, a range, or both; se is the reading error of value."""

    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    se: float = 0.0


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
    """The paper's interval: 200 resamples of (budget, r) cells."""
    return bootstrap(study_runs(), study_fit(), resamples=200, starts=20)


@cache
def baseline_gaps() -> pd.DataFrame:
    """Loss gaps of the parabola minima to r = 1."""
    return loss_gaps(isoflop_minima(study_runs()))


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


def _param(name, law="joint", **study) -> Callable[[], Ours]:
    return lambda: Ours(study_fit(law, **study).params[name], se=study_se(law, **study)[name])


def _quality(name, **study) -> Callable[[], Ours]:
    return lambda: Ours(getattr(study_fit(**study), name))


def _phi_with_interval() -> Ours:
    low, high = joint_bootstrap().interval("phi")
    return Ours(study_fit().params["phi"], low, high, study_se()["phi"])


def _touched() -> Ours:
    draws = joint_bootstrap()
    return Ours(draws.touched(0) + draws.touched(1))


def _gap_range(n_recur) -> Callable[[], Ours]:
    def ours():
        gaps = baseline_gaps()
        gap = gaps.loc[gaps["n_recur"] == n_recur, "gap"]
        return Ours(low=gap.min(), high=gap.max())

    return ours


def _largest_top_change() -> Ours:
    table = baseline_gaps().pivot(index="budget", columns="n_recur", values="gap").sort_index()
    return Ours(high=float((table.iloc[-1] - table.iloc[-2]).abs().max()))


def _exponent(size, n_recur) -> Callable[[], Ours]:
    def ours():
        study = {"n_recur": (n_recur,)}
        per_r = study_fit("chinchilla", **study)
        widths = study_runs(**study)["d_model"]
        return Ours(power_law_exponents(per_r, paper_config(640, n_recur), widths)[size])

    return ours


def _delta_phi(**study) -> Callable[[], Ours]:
    def ours():
        shift = study_fit(**study).params["phi"] - study_fit(**LOW4).params["phi"]
        return Ours(shift, se=float(np.hypot(study_se(**study)["phi"], study_se(**LOW4)["phi"])))

    return ours


def _token_ratio() -> Ours:
    """Median over the runs that both cases have."""
    cell = ["n_recur", "budget", "d_model"]
    both = study_runs(**TRUNCATED).query("n_recur > 1").merge(study_runs(), on=cell)
    return Ours(float((both["n_tokens_x"] / both["n_tokens_y"]).median()))


def _overhead(n_recur) -> Callable[[], Ours]:
    """The injection's parameters, each passed r times, over those of the blocks."""

    def ours():
        sections = accounting.params_by_section(paper_config(640, n_recur))
        blocks = sections["prelude"] + n_recur * sections["loop"] + sections["coda"]
        return Ours(n_recur * sections["injection"] / blocks)

    return ours


BILLION = paper_config(2048, 4)  # the width at which the non-looped model has 1.0B parameters


def _study_cost() -> Ours:
    """The runs of one recurrence on the four lower budgets."""
    return Ours(float(study_runs(n_recur=(4,), **LOW4)["budget"].sum()))


OURS: dict[str, Callable[[], Ours]] = {
    "phi_joint": _phi_with_interval,
    **{f"{name}_joint": _param(name) for name in ("alpha", "beta", "E", "A", "B")},
    "r2_joint": _quality("r2"),
    "r2_phi0": _quality("r2", phi=0.0),
    "r2_phi1": _quality("r2", phi=1.0),
    "rmse_joint": _quality("rmse"),
    "maxres_joint": _quality("max_abs_residual"),
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
    "phi_tbptt": _param("phi", **TRUNCATED),
    "r2_tbptt": _quality("r2", **TRUNCATED),
    "phi_tbptt_no_r2": _param("phi", **TRUNCATED_NO_R2),
    "r2_tbptt_no_r2": _quality("r2", **TRUNCATED_NO_R2),
    "rmse_tbptt": _quality("rmse", **TRUNCATED),
    "token_ratio": _token_ratio,
    "phi_hc": _param("phi", **HYPER),
    "r2_hc": _quality("r2", **HYPER),
    "rmse_hc": _quality("rmse", **HYPER),
    "dphi_tbptt": _delta_phi(**TRUNCATED),
    "dphi_hc": _delta_phi(**HYPER),
    "equiv_unique": lambda: Ours(accounting.n_params(BILLION) / 1e6),
    "equiv_effective": lambda: Ours(equal_loss_n_params(study_fit(), BILLION) / 1e6),
    "equiv_gain": lambda: Ours(4 ** study_fit().params["phi"], se=4 * study_se()["phi"]),
    **{f"inject_overhead_r{r}": _overhead(r) for r in RECURRENCES[1:]},
    "probe_cost": _study_cost,
}
"""How each derivable claim is obtained; a claim that is not here is reported only."""


def _why_phi() -> str:
    draws = joint_bootstrap()
    low, high = draws.interval("phi")
    return (
        f"φ itself reproduces; the upper end of the interval does not. The {draws.resamples} refits "
        f"here, of which {draws.refits_worse} missed their optimum, give [{low:.3f}, {high:.3f}]; "
        "refits that stop short of their optimum widen it."
    )


def _why_b() -> str:
    published = published_claims().set_index("id")["value"]
    held = {name: float(published[f"{name}_joint"]) for name in ("A", "B")}
    valley = fit(study_runs(), "joint", SPLIT, starts=100, fix=held)
    excess = valley.objective / study_fit().objective - 1
    return (
        "A, B, E, α and β move together along a flat valley: with A and B held at the published "
        f"values and the rest refitted, the objective is {excess:.0e} (relative) above our optimum."
    )


def _why_equivalent() -> str:
    without = split_params(runs_at_width(BILLION, BILLION.d_model, n_tokens=1.0), "none")
    once, rec, n_recur = (without[name].iloc[0] for name in LAWS["joint"].columns[:3])
    value = n_params_effective(once, rec, n_recur, study_fit().params["phi"]) / 1e6
    return f"The published number leaves the injection out of N_eff: so counted, ours is {value:.0f}."


WHY: dict[str, Callable[[], str]] = {
    "phi_joint": _why_phi,
    "B_joint": _why_b,
    "equiv_effective": _why_equivalent,
}
"""Why a claim differs, by id; asked only for rows whose computed verdict is that they differ."""


def claims_table() -> pd.DataFrame:
    """All claims with ours, the difference and the verdict.

    Returns:
        One row a claim: id, section, quantity, published, ours, difference, unit, verdict, why,
        source, kind, and the numbers behind them (value, low, high as printed; ours_value,
        ours_low, ours_high, reading_se). `difference` is ours minus published, of the number that
        is farthest off in units of its last printed digit.
    """
    rows = [_row(claim) for claim in published_claims().to_dict("records")]
    return pd.DataFrame(rows)


def split_table() -> pd.DataFrame:
    """φ of every study under every split, beside the published value.

    Returns:
        One row a study and split: study, split, phi, r2, n_runs, published, reproduced.
    """
    printed = published_claims().set_index("id")["value"]
    rows = []
    for study, (claim, selection) in STUDIES.items():
        for split in SPLITS:
            found = study_fit(split=split, **selection)
            _, _, verdict = _apart(printed[claim], found.params["phi"], study_se(**selection)["phi"])
            rows.append(
                {
                    "study": study,
                    "split": split,
                    "phi": found.params["phi"],
                    "r2": found.r2,
                    "n_runs": found.n_runs,
                    "published": float(printed[claim]),
                    "reproduced": verdict != DIFFERS,
                }
            )
    return pd.DataFrame(rows)


def count_table() -> pd.DataFrame:
    """Our counts beside the published ones, for each recurrence and width of the paper.

    The published FLOPs are logarithms of numbers rounded to five significant digits, and so both
    are given to five.

    Returns:
        n_recur, d_model, n_params, log_n_params_error (ours minus published), flops_ours,
        flops_published (training FLOPs per token, as text).
    """
    rows = []
    for count in published_counts().itertuples():
        config = paper_config(d_model_of_width(count.width), count.n_recur)
        rows.append(
            {
                "n_recur": count.n_recur,
                "d_model": config.d_model,
                "n_params": accounting.n_params(config),
                "log_n_params_error": np.log(accounting.n_params(config)) - count.log_n_params,
                "flops_ours": f"{accounting.flops_per_token(config):.4e}",
                "flops_published": f"{np.exp(count.log_flops_per_token):.4e}",
            }
        )
    return pd.DataFrame(rows)


def printed_unit(text: str) -> float:
    """One unit of the last significant digit of a printed number: 0.459 -> 0.001, 410 -> 10."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    scale = 10.0 ** int(exponent or 0)
    if decimals:
        return scale * 10.0 ** -len(decimals)
    digits = whole.lstrip("+-")
    zeros = len(digits) - len(digits.rstrip("0")) if digits.strip("0") else 0
    return scale * 10.0**zeros


def _row(claim) -> dict:
    printed = {name: claim[name] for name in ("value", "low", "high") if claim[name]}
    compute = OURS.get(claim["id"])
    ours = Ours() if compute is None else compute()
    apart = [_apart(text, getattr(ours, name), ours.se) for name, text in printed.items()]
    farthest = max(apart, key=lambda each: each[1]) if compute else (np.nan, np.nan, REPORTED)
    return {
        **{name: claim[name] for name in ("id", "section", "quantity")},
        "published": _written(printed),
        "ours": _written({name: _to_digits(getattr(ours, name), text) for name, text in printed.items()})
        if compute
        else "",
        "difference": farthest[0],
        "unit": claim["unit"],
        "verdict": farthest[2],
        "why": WHY.get(claim["id"], lambda: "")() if farthest[2] == DIFFERS else "",
        **{name: claim[name] for name in ("source", "kind", "value", "low", "high")},
        **{f"ours_{name}": getattr(ours, name) for name in ("value", "low", "high")},
        "reading_se": ours.se,
    }


def _apart(text, ours, se) -> tuple[float, float, str]:
    """Ours minus published, its size in printed units, and the verdict on this number."""
    difference, unit = ours - float(text), printed_unit(text)
    excess = abs(difference) - unit / 2
    if excess <= 1e-9 * unit:
        verdict = REPRODUCED
    else:
        verdict = WITHIN_READING if excess <= READING_ERRORS * se else DIFFERS
    return difference, abs(difference) / unit, verdict


def _written(numbers: dict[str, str]) -> str:
    """One cell: 0.459 [0.41, 0.53], [0.03, 0.06], or at most 0.006."""
    value, low, high = (numbers.get(name, "") for name in ("value", "low", "high"))
    if low and high:
        return f"{value} [{low}, {high}]".strip()
    return value or f"at most {high}"


def _to_digits(number: float, like: str) -> str:
    """A number with one digit more than the printed one."""
    unit = printed_unit(like)
    if "e" in like.lower():
        return f"{number:.3g}" if "." not in like else f"{number:.{len(like.split('.')[1].split('e')[0]) + 1}e}"
    return f"{number:.{max(0, 1 - round(np.log10(unit)))}f}"
