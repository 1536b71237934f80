"""Compute-optimal sizes of a fitted law: the width that minimises its loss at a budget.

The width is searched on a continuum with the exact counts of the accounting: at width d a budget C
buys D = C / F(d) tokens, and the law gives L(N_once(d), N_rec(d), r, D).
"""

from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from looped import accounting
from looped.config import ModelConfig, paper_config
from looped.errors import ConfigError, NoMinimum
from looped.fitting.result import FitResult
from looped.registry.schema import STACK

LOG_WIDTHS = (np.log(16.0), np.log(131_072.0))


def runs_at_width(config: ModelConfig, d_model, *, budget=None, n_tokens=None) -> pd.DataFrame:
    """Rows that a law can predict: the configuration at real widths, for a budget or tokens.

    Args:
        config: the architecture; its own d_model is not used.
        d_model: widths, [n] or one.
        budget: training FLOPs, from which the tokens follow; or
        n_tokens: the tokens themselves.
    """
    if (budget is None) == (n_tokens is None):
        raise ValueError("give budget or n_tokens, and not both")
    d_model = np.atleast_1d(np.asarray(d_model, dtype=float))
    flops = accounting.flops_per_token(config, d_model)
    tokens = budget / flops if n_tokens is None else n_tokens
    return pd.DataFrame(
        {
            "n_recur": config.n_recur,
            "d_model": d_model,
            "variant": config.variant,
            "n_params_once": accounting.n_params_once(config, d_model),
            "n_params_rec": accounting.n_params_rec(config, d_model),
            "n_params": accounting.n_params(config, d_model),
            "n_tokens": tokens,
            "flops_per_token": flops,
            "budget": tokens * flops,
        }
    )


def stack_of(runs: pd.DataFrame, n_recur: int) -> ModelConfig:
    """The architecture of the runs at one recurrence: their sections, variant and truncation.

    Where the runs do not say how many layers a section has, it is the paper's stack. d_model is
    only a place holder: `compute_optimal` and `runs_at_width` take real widths.

    Raises:
        ConfigError: runs of several architectures, or whose counts are not those of theirs.
    """
    at = runs[runs["n_recur"] == n_recur]
    variant, bptt = (_only(at, name) for name in ("variant", "bptt"))
    config = paper_config(640, int(n_recur), variant, None if bptt is None else int(bptt))
    known = {name: _only(at, name) for name in STACK}
    if all(value is not None for value in known.values()):
        config = replace(config, vocab_used=None, **{k: int(v) for k, v in known.items()})
    _require_counts(at, config)
    return config


def _require_counts(runs, config):
    known = runs.dropna(subset=["d_model"]) if "d_model" in runs else runs.iloc[:0]
    counted = accounting.n_params(config, known["d_model"].to_numpy(float)) if len(known) else 0
    if len(known) and not np.allclose(counted, known["n_params"], rtol=1e-6):
        raise ConfigError(
            f"the runs at r = {config.n_recur} are not of a stack of {config.n_prelude}, "
            f"{config.n_loop} and {config.n_coda} layers: N = {known['n_params'].iloc[0]:.6g} at "
            f"d_model {known['d_model'].iloc[0]}, expected {counted[0]:.6g}; give the columns "
            f"{', '.join(STACK)}, or give compute_optimal a ModelConfig of your own"
        )


def _only(runs, column):
    """The one value of a column, None if it is missing."""
    values = runs[column].drop_duplicates().tolist() if column in runs else []
    if len(values) > 1:
        raise ConfigError(f"runs of several {column}s: {values}; choose one case")
    return None if not values or pd.isna(values[0]) else values[0]


def compute_optimal(fit: FitResult, config: ModelConfig, budgets) -> pd.DataFrame:
    """N*, D*, L* of a fitted law for one architecture at each budget (FLOPs).

    Returns:
        One row a budget: split, n_recur, budget, d_model (real), n_params_star, n_tokens_star,
        val_loss_star, n_params_effective_star.

    Raises:
        ValueError: a budget that is not positive.
        NoMinimum: the loss still falls at the end of the searched widths.
    """
    budgets = np.atleast_1d(budgets)
    if not ((budgets > 0) & np.isfinite(budgets)).all():
        raise ValueError(f"budgets: got {budgets.tolist()}, expected positive numbers of FLOPs")
    rows = [_optimum(fit, config, budget) for budget in budgets]
    return pd.DataFrame(rows)


def _optimum(fit, config, budget) -> dict:
    found = minimize_scalar(
        lambda log_width: fit.predict(runs_at_width(config, np.exp(log_width), budget=budget))[0],
        bounds=LOG_WIDTHS,
        method="bounded",
        options={"xatol": 1e-7},
    )
    if min(abs(found.x - end) for end in LOG_WIDTHS) < 1e-3:
        raise NoMinimum(
            f"the {fit.law} law has no compute-optimal width at {budget:.3g} FLOPs, "
            f"r = {config.n_recur}: its loss is lowest at the end of the search, "
            f"d_model = {np.exp(found.x):.0f}"
        )
    at = runs_at_width(config, np.exp(found.x), budget=budget)
    return {
        "split": fit.split,
        "n_recur": config.n_recur,
        "budget": float(budget),
        "d_model": float(np.exp(found.x)),
        "n_params_star": float(at["n_params"].iloc[0]),
        "n_tokens_star": float(at["n_tokens"].iloc[0]),
        "val_loss_star": float(found.fun),
        "n_params_effective_star": float(fit.n_params_effective(at)[0]),
    }


def exponent(budgets, sizes) -> float:
    """Exponent of a size in the budget: the slope of log size on log budget.

    Raises:
        ValueError: fewer than two different budgets.
    """
    if len(np.unique(budgets)) < 2:
        raise ValueError(f"an exponent needs two budgets, got {np.unique(budgets).tolist()}")
    return float(np.polyfit(np.log(budgets), np.log(sizes), 1)[0])


def exponents(optima: pd.DataFrame) -> pd.DataFrame:
    """Exponents in C of n_params_star and n_tokens_star, one row for each n_recur (the index).

    Args:
        optima: of `compute_optimal` or `isoflop_minima`, at two budgets or more; rows whose
            minimum is missing are left out.
    """
    sizes = ["n_params_star", "n_tokens_star"]
    known = optima.dropna(subset=sizes)
    return pd.DataFrame(
        {
            n_recur: {size: exponent(cells["budget"], cells[size]) for size in sizes}
            for n_recur, cells in known.groupby("n_recur")
        }
    ).T


def power_law_exponents(fit: FitResult, config: ModelConfig, d_model) -> dict[str, float]:
    """Exponents of N* and D* in C if F were k N^κ, κ fitted over the given widths.

    With F = k N^κ the minimum of A N^-α + B (C / F)^-β has N* ~ C^(β / (α + κ β)), D* ~ C / N*^κ.
    The exact F is no power law, so these differ from `exponent` on `compute_optimal`.
    """
    widths = runs_at_width(config, np.unique(np.asarray(d_model, float)), n_tokens=1.0)
    kappa = exponent(widths["n_params"], widths["flops_per_token"])
    alpha, beta = fit.params["alpha"], fit.params["beta"]
    n_star = beta / (alpha + kappa * beta)
    return {"kappa": kappa, "n_params_star": n_star, "n_tokens_star": 1 - kappa * n_star}
