"""Compute-optimal sizes of a law: the width that minimises its loss at a budget.

The width is searched on a continuum with the exact counts of the accounting: at width d a budget C
buys D = C / F(d) tokens, and the law gives L(N_once(d), N_rec(d), r, D).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from looped.config import ModelConfig
from looped.errors import NoMinimum
from looped.registry.stacks import runs_at_width

if TYPE_CHECKING:
    from looped.laws.law import Law

LOG_WIDTHS = (float(np.log(16.0)), float(np.log(131_072.0)))
TOLERANCE = 1e-8  # of the log width: the loss is flat to rounding within it
GOLDEN = (np.sqrt(5) - 1) / 2


def optima(law: "Law", stack: ModelConfig, budgets: np.ndarray) -> pd.DataFrame:
    """`Law.optimal`."""
    if not ((budgets > 0) & np.isfinite(budgets)).all():
        raise ValueError(f"budgets: got {budgets.tolist()}, expected positive numbers of FLOPs")

    def loss(log_width: np.ndarray) -> np.ndarray:
        return law.loss(runs_at_width(stack, np.exp(log_width), budget=budgets))

    log_width = _minimise(loss, *(np.full(len(budgets), end) for end in LOG_WIDTHS))
    at_end = np.min([np.abs(log_width - end) for end in LOG_WIDTHS], axis=0) < 1e-3
    if at_end.any():
        first = at_end.argmax()
        raise NoMinimum(
            f"the {law.name} law has no compute-optimal width at {budgets[first]:.3g} FLOPs, "
            f"r = {stack.n_recur}: its loss is lowest at the end of the search, "
            f"d_model = {np.exp(log_width[first]):.0f}"
        )
    at = runs_at_width(stack, np.exp(log_width), budget=budgets)
    return pd.DataFrame(
        {
            "split": law.split,
            "n_recur": stack.n_recur,
            "budget": budgets,
            "d_model": at["d_model"],
            "n_params_star": at["n_params"],
            "n_tokens_star": at["n_tokens"],
            "val_loss_star": law.loss(at),
            "n_params_effective_star": law.n_eff(at),
        }
    )


def _minimise(
    function: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Golden-section search of many minima at the same time: one function call per step."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while (high - low).max() > TOLERANCE:
        down = at_left < at_right
        low, high = np.where(down, low, left), np.where(down, right, high)
        kept, at_kept = np.where(down, left, right), np.where(down, at_left, at_right)
        step = GOLDEN * (high - low)
        new = np.where(down, high - step, low + step)
        at_new = function(new)
        left, right = np.where(down, new, kept), np.where(down, kept, new)
        at_left, at_right = np.where(down, at_new, at_kept), np.where(down, at_kept, at_new)
    return (low + high) / 2


def exponent(budgets: ArrayLike, sizes: ArrayLike) -> float:
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
        optima: of `Law.optimal` or `isoflop_minima`, at two budgets or more; rows without a
            minimum are left out.
    """
    sizes = ["n_params_star", "n_tokens_star"]
    known = optima.dropna(subset=sizes)
    return pd.DataFrame(
        {
            n_recur: {size: exponent(cells["budget"], cells[size]) for size in sizes}
            for n_recur, cells in known.groupby("n_recur")
        }
    ).T


def power_law_exponents(law: "Law", stack: ModelConfig, d_model: ArrayLike) -> dict[str, float]:
    """Exponents of N* and D* in C if F were k N^κ, with κ fitted over these widths.

    With F = k N^κ the minimum of A N^-α + B (C / F)^-β has N* ~ C^(β / (α + κ β)), D* ~ C / N*^κ.
    The exact F is no power law, so these differ from `exponents` of `Law.optimal`.

    Returns:
        kappa, n_params_star, n_tokens_star.
    """
    widths = runs_at_width(stack, np.unique(np.asarray(d_model, float)), n_tokens=1.0)
    kappa = exponent(widths["n_params"], widths["flops_per_token"])
    alpha, beta = law.params["alpha"], law.params["beta"]
    n_star = beta / (alpha + kappa * beta)
    return {"kappa": kappa, "n_params_star": n_star, "n_tokens_star": 1 - kappa * n_star}
