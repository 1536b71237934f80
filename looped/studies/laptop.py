"""The laptop study: the paper's study at a size that two processor cores train."""

from dataclasses import replace
from typing import Unpack

from looped.config import ModelConfig
from looped.errors import ConfigError
from looped.spec import RunSpec
from looped.studies import base
from looped.studies.base import TrainOverrides
from looped.studies.paper import REFERENCE_WIDTH, d_model_of_width

STACK = ModelConfig(
    d_model=64, d_head=32, n_prelude=1, n_loop=8, n_coda=1, vocab_size=2048, seq_len=256
)
"""Executes 1 + 8 + 1 layers; the recipe sets the width and the head size."""
TOKENS = 2**19
REFERENCE: TrainOverrides = {
    "ref_d_model": d_model_of_width(REFERENCE_WIDTH),  # the rates of AdamW are the paper's
    "ref_tokens": TOKENS,
    "ref_batch_tokens": 2**11,
}
WIDTHS = {
    1.5e12: (16, 24, 32, 48),
    3e12: (24, 32, 48, 64),
    6e12: (24, 32, 48, 64, 96),
    1.2e13: (32, 48, 64, 96),
}
"""Budget (FLOPs) -> d_model; the minimum of every r lies between the smallest and the largest."""
CASE_WIDTHS = {budget: WIDTHS[budget] for budget in (1.5e12, 3e12, 6e12)}
SEED_CELLS = {1.5e12: 32, 6e12: 48}
"""Budget -> d_model of the cells that are trained from three seeds."""
SWEEP_WIDTH = 48
RATES = (0.005, 0.01, 0.02, 0.03, 0.04, 0.08)


def laptop_run(
    d_model: int = 64,
    n_recur: int = 4,
    *,
    budget: float | None = None,
    n_tokens: int | None = None,
    variant: str | None = None,
    bptt: int | None = None,
    case: str = "baseline",
    **train: Unpack[TrainOverrides],
) -> RunSpec:
    """A run that one processor core finishes in about two minutes.

    Ten executed layers (1 + 8 + 1), rows of 256 tokens, batches of 2,048 tokens, the `laptop`
    corpus, half a million tokens by default. The optimisers are the paper's. The MuonH rate is the
    optimum of the sweep `laptop-lr-sweep`. The unembedding starts at a standard deviation of 0.001
    and has few steps to grow, so its rate is four times the paper's.

    Arguments as in `paper_run`, but d_model, a multiple of 16 or 24, in place of the width.

    Raises:
        ConfigError: n_recur does not divide 8, no head size fits d_model, an argument that does
            not exist, or a value out of range.
    """
    base.check_arguments(laptop_run, train)
    heads = [head for head in (32, 24, 16) if d_model % head == 0]
    if d_model < 1 or not heads:
        raise ConfigError(f"d_model: got {d_model}, expected a multiple of 16 or 24")
    plain = replace(STACK, d_model=d_model, d_head=heads[0])
    if budget is None and n_tokens is None:
        n_tokens = TOKENS
    recipe: TrainOverrides = {"batch_rows": 8, "lr": 0.03, "lr_unembed": 0.016}
    model = base.iso_depth(plain, n_recur, variant, bptt)
    return base.run_at(model, budget, n_tokens, recipe | REFERENCE | train, "laptop", case)


def laptop() -> list[RunSpec]:
    """68 runs: 17 widths x r, from 1.5e12 to 1.2e13 FLOPs, small budgets first."""
    return base.cells(laptop_run, WIDTHS, base.RECURRENCES)


def laptop_seeds() -> list[RunSpec]:
    """16 runs: two more seeds of one cell per r at two budgets of the laptop grid."""
    return [
        laptop_run(d_model, r, budget=budget, seed=seed)
        for budget, d_model in SEED_CELLS.items()
        for r in base.RECURRENCES
        for seed in (1, 2)
    ]


def laptop_tbptt() -> list[RunSpec]:
    """39 runs: truncated backpropagation on the three lower budgets of the laptop grid."""
    return base.cells(laptop_run, CASE_WIDTHS, truncate=True, case="truncated_bptt")


def laptop_hyperconnect() -> list[RunSpec]:
    """39 runs: hyperconnections on the three lower budgets of the laptop grid."""
    variant, case = "hyperconnect", "hyperconnections"
    return base.cells(laptop_run, CASE_WIDTHS, variant=variant, case=case)


def laptop_lr_sweep() -> list[RunSpec]:
    """24 runs: the MuonH rate at the laptop reference, for each r."""
    return [
        laptop_run(SWEEP_WIDTH, r, lr=lr, case="lr_sweep") for r in base.RECURRENCES for lr in RATES
    ]


def laptop_lr_transfer() -> list[RunSpec]:
    """12 runs: whether the rate carries over to another width and to four times the tokens."""
    return [
        laptop_run(d_model, r, n_tokens=n_tokens, lr=lr, case="lr_transfer")
        for d_model, n_tokens in ((96, TOKENS), (SWEEP_WIDTH, 4 * TOKENS))
        for r in (1, 4)
        for lr in (0.015, 0.03, 0.06)
    ]


def laptop_injection() -> list[RunSpec]:
    """4 runs: every way to inject, d_model 48, r = 4, 6e12 FLOPs."""
    return [
        laptop_run(48, 4, budget=6e12, variant=variant, case="injection")
        for variant in base.INJECTIONS
    ]


def smoke() -> list[RunSpec]:
    """4 runs of some seconds."""
    return [
        laptop_run(16, r, n_tokens=2048 * steps, case="smoke") for r in (1, 4) for steps in (8, 16)
    ]
