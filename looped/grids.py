"""Named grids: functions that return the complete specs of a study, each run once.

    paper, paper-tbptt, paper-hyperconnect      the three cases of the paper's fits (section 4, 6)
    paper-extrapolation                         the s = 34 pair (section 4)
    paper-lr-sweep, paper-injection             its appendix
    laptop, laptop-...                          the same studies, small enough for two cores
    smoke                                       a few seconds, to try an engine

A grid holds specs and nothing about where they run. A new one is one function and one line.
"""

import math
from collections.abc import Callable

import pandas as pd

from looped.recipes import LAPTOP_TOKENS, laptop_run, paper_run
from looped.spec import RunSpec
from looped.transfer import paper_reference_tokens

RECURRENCES = (1, 2, 4, 8)
LOOPED = (2, 4, 8)

PAPER_WIDTHS = {
    4.64e17: (6, 8, 10, 12),
    1e18: (6, 8, 10, 12, 14),
    2.15e18: (8, 10, 12, 14, 16),
    4.64e18: (10, 12, 14, 16, 18, 20),
    1e19: (12, 16, 18, 20, 24),
    2.15e19: (18, 24, 28, 34),
}
"""Budget (FLOPs) -> widths s of the paper's grid (section 4)."""

CASE_BUDGETS = (4.64e17, 1e18, 2.15e18, 4.64e18)
"""Budgets of the paper's case studies."""

WIDER = {1e18: (16,), 2.15e18: (18,), 4.64e18: (22,)}
"""Widths that truncated backpropagation adds, since its optimum is wider."""

INJECTIONS = ("linear", "additive", "passthrough", "hyperconnect")
LAPTOP_SWEEP_WIDTH = 48
PAPER_RATES = (0.008, 0.010, 0.012, 0.014, 0.016, 0.018, 0.020, 0.024)
EXTRAPOLATION_STEPS, EXTRAPOLATION_ROWS = 89_645, 256


def truncation(n_recur: int) -> int:
    """Recurrences with gradient of the truncated case: the last ⌈r / 2⌉ (section 6)."""
    return math.ceil(n_recur / 2)


def paper() -> list[RunSpec]:
    """116 runs: 29 widths x r, from 4.64e17 to 2.15e19 FLOPs."""
    return [
        paper_run(width, r, budget=budget)
        for budget, widths in PAPER_WIDTHS.items()
        for width in widths
        for r in RECURRENCES
    ]


def paper_tbptt() -> list[RunSpec]:
    """69 runs: gradient through the last half of the recurrences only."""
    return [
        paper_run(width, r, budget=budget, bptt=truncation(r), case="truncated_bptt")
        for budget in CASE_BUDGETS
        for width in PAPER_WIDTHS[budget] + WIDER.get(budget, ())
        for r in LOOPED
    ]


def paper_hyperconnect() -> list[RunSpec]:
    """63 runs: hyperconnections in place of the linear injection."""
    wider = {2.15e18: (18,)}
    return [
        paper_run(width, r, budget=budget, variant="hyperconnect", case="hyperconnections")
        for budget in CASE_BUDGETS
        for width in PAPER_WIDTHS[budget] + wider.get(budget, ())
        for r in LOOPED
    ]


def paper_extrapolation() -> list[RunSpec]:
    """2 runs: s = 34 on 47 billion tokens, r = 1 and r = 4."""
    n_tokens = EXTRAPOLATION_STEPS * EXTRAPOLATION_ROWS * 2048
    return [
        paper_run(34, r, n_tokens=n_tokens, batch_rows=EXTRAPOLATION_ROWS, case="extrapolation")
        for r in (1, 4)
    ]


def paper_lr_sweep() -> list[RunSpec]:
    """32 runs: the MuonH rate at the reference, s = 10 on 10 tokens per executed parameter."""
    return [
        paper_run(10, r, n_tokens=_whole_batches(paper_reference_tokens(r)), lr=lr, case="lr_sweep")
        for r in RECURRENCES
        for lr in PAPER_RATES
    ]


def paper_injection() -> list[RunSpec]:
    """4 runs: every way to inject, s = 10, r = 4, 1e18 FLOPs (table 5)."""
    return [
        paper_run(10, 4, budget=1e18, variant=variant, case="injection") for variant in INJECTIONS
    ]


LAPTOP_WIDTHS = {
    1.5e12: (16, 24, 32, 48),
    3e12: (24, 32, 48, 64),
    6e12: (24, 32, 48, 64, 96),
    1.2e13: (32, 48, 64, 96),
}
"""Budget (FLOPs) -> d_model: the minimum of every r lies between the first and the last width."""

LAPTOP_RATES = (0.005, 0.01, 0.02, 0.03, 0.04, 0.08)
LAPTOP_CASE_BUDGETS = (1.5e12, 3e12, 6e12)
LAPTOP_SEED_CELLS = {1.5e12: 32, 6e12: 48}
"""Budget -> d_model of the cells that are trained from three seeds."""


def laptop() -> list[RunSpec]:
    """68 runs: 17 widths x r, from 1.5e12 to 1.2e13 FLOPs, small budgets first."""
    return [
        laptop_run(d_model, r, budget=budget)
        for budget, widths in LAPTOP_WIDTHS.items()
        for d_model in widths
        for r in RECURRENCES
    ]


def laptop_seeds() -> list[RunSpec]:
    """16 runs: two more seeds of one cell per r at two budgets of the laptop grid."""
    return [
        laptop_run(d_model, r, budget=budget, seed=seed)
        for budget, d_model in LAPTOP_SEED_CELLS.items()
        for r in RECURRENCES
        for seed in (1, 2)
    ]


def laptop_tbptt() -> list[RunSpec]:
    """39 runs: truncated backpropagation on the three lower budgets of the laptop grid."""
    return [
        laptop_run(d_model, r, budget=budget, bptt=truncation(r), case="truncated_bptt")
        for budget in LAPTOP_CASE_BUDGETS
        for d_model in LAPTOP_WIDTHS[budget]
        for r in LOOPED
    ]


def laptop_hyperconnect() -> list[RunSpec]:
    """39 runs: hyperconnections on the three lower budgets of the laptop grid."""
    return [
        laptop_run(d_model, r, budget=budget, variant="hyperconnect", case="hyperconnections")
        for budget in LAPTOP_CASE_BUDGETS
        for d_model in LAPTOP_WIDTHS[budget]
        for r in LOOPED
    ]


def laptop_lr_sweep() -> list[RunSpec]:
    """24 runs: the MuonH rate at the laptop reference, for each r."""
    return [
        laptop_run(LAPTOP_SWEEP_WIDTH, r, lr=lr, case="lr_sweep")
        for r in RECURRENCES
        for lr in LAPTOP_RATES
    ]


def laptop_lr_transfer() -> list[RunSpec]:
    """12 runs: whether the rate carries over to another width and to four times the tokens."""
    there = [{"d_model": 96}, {"d_model": LAPTOP_SWEEP_WIDTH, "n_tokens": 4 * LAPTOP_TOKENS}]
    return [
        laptop_run(n_recur=r, lr=lr, case="lr_transfer", **size)
        for size in there
        for r in (1, 4)
        for lr in (0.015, 0.03, 0.06)
    ]


def laptop_injection() -> list[RunSpec]:
    """4 runs: every way to inject, d_model 48, r = 4, 6e12 FLOPs."""
    return [
        laptop_run(48, 4, budget=6e12, variant=variant, case="injection") for variant in INJECTIONS
    ]


def smoke() -> list[RunSpec]:
    """4 runs of some seconds."""
    return [
        laptop_run(16, r, n_tokens=2048 * steps, case="smoke") for r in (1, 4) for steps in (8, 16)
    ]


GRIDS: dict[str, Callable[[], list[RunSpec]]] = {
    "paper": paper,
    "paper-tbptt": paper_tbptt,
    "paper-hyperconnect": paper_hyperconnect,
    "paper-extrapolation": paper_extrapolation,
    "paper-lr-sweep": paper_lr_sweep,
    "paper-injection": paper_injection,
    "laptop": laptop,
    "laptop-seeds": laptop_seeds,
    "laptop-tbptt": laptop_tbptt,
    "laptop-hyperconnect": laptop_hyperconnect,
    "laptop-lr-sweep": laptop_lr_sweep,
    "laptop-lr-transfer": laptop_lr_transfer,
    "laptop-injection": laptop_injection,
    "smoke": smoke,
}


def get_grid(name: str) -> list[RunSpec]:
    """Specs of a grid. Raises ValueError for an unknown name."""
    if name not in GRIDS:
        raise ValueError(f"grid: got {name!r}, expected one of {', '.join(GRIDS)}")
    return GRIDS[name]()


def cost_table() -> pd.DataFrame:
    """What each grid costs.

    Returns:
        grid, runs, n_tokens and flops (training, over all runs), what.
    """
    return pd.DataFrame(
        {
            "grid": name,
            "runs": len(specs := grid()),
            "n_tokens": sum(spec.train.n_tokens for spec in specs),
            "flops": sum(spec.flops for spec in specs),
            "what": (grid.__doc__ or "").partition(": ")[2].partition("\n")[0].rstrip("."),
        }
        for name, grid in GRIDS.items()
    )


def _whole_batches(n_tokens: float, batch_tokens: int = 262_144) -> int:
    return max(1, round(n_tokens / batch_tokens)) * batch_tokens
