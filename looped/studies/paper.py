"""The paper's study: its 20-layer stacks, its recipe, and its grids (sections 3, 4 and 6)."""

from typing import Unpack

from looped import accounting
from looped.config import ModelConfig
from looped.spec import RunSpec
from looped.studies import base
from looped.studies.base import TrainOverrides

PAPER_VOCAB = 32_001
"""Number of tokens: the 32,000 of Llama 2 and one special token."""
BATCH_ROWS = 128
BATCH_TOKENS = BATCH_ROWS * 2048  # 262,144
REFERENCE_WIDTH = 10  # s, where the learning rates were tuned
REFERENCE_TOKENS = 10  # per executed parameter

WIDTHS = {
    4.64e17: (6, 8, 10, 12),
    1e18: (6, 8, 10, 12, 14),
    2.15e18: (8, 10, 12, 14, 16),
    4.64e18: (10, 12, 14, 16, 18, 20),
    1e19: (12, 16, 18, 20, 24),
    2.15e19: (18, 24, 28, 34),
}
"""Budget (FLOPs) -> widths s of the grid (section 4)."""
_CASES = {budget: WIDTHS[budget] for budget in (4.64e17, 1e18, 2.15e18, 4.64e18)}
HYPERCONNECT_WIDTHS = _CASES | {2.15e18: (*WIDTHS[2.15e18], 18)}
TRUNCATED_WIDTHS = HYPERCONNECT_WIDTHS | {
    1e18: (*WIDTHS[1e18], 16),
    4.64e18: (*WIDTHS[4.64e18], 22),
}
"""Widths of the case studies: the four lower budgets, and wider where the optimum is wider."""
RATES = (0.008, 0.010, 0.012, 0.014, 0.016, 0.018, 0.020, 0.024)
EXTRAPOLATION_WIDTH, EXTRAPOLATION_STEPS, EXTRAPOLATION_ROWS = 34, 89_645, 256


def d_model_of_width(width: float) -> int:
    """Model size at the paper's width s: 64 s rounded up to a multiple of 128 (section 3.3)."""
    return int(-(-64 * width // 128) * 128)


def paper_config(
    d_model: int, n_recur: int, variant: str | None = None, bptt: int | None = None
) -> ModelConfig:
    """The paper's 20-layer stack: prelude 2, loop 16 / r, coda 2.

    The variant defaults to linear injection, and to the plain stack at n_recur = 1.

    Raises:
        ConfigError: n_recur does not divide 16.
    """
    plain = ModelConfig(d_model=d_model, vocab_used=PAPER_VOCAB)
    return base.iso_depth(plain, n_recur, variant, bptt)


def case_config(case: str, n_recur: int, width: float) -> ModelConfig:
    """Architecture of a run of one of the paper's cases; at n_recur = 1 it is the plain stack."""
    looped = n_recur > 1
    return paper_config(
        d_model_of_width(width),
        n_recur,
        variant="hyperconnect" if looped and case == "hyperconnections" else None,
        bptt=base.truncation(n_recur) if looped and case == "truncated_bptt" else None,
    )


def reference_tokens(n_recur: int) -> float:
    """T_ref: 10 tokens per executed parameter of the s = 10 reference stack (section 4).

    The reference of all looped runs is the stack with r = 4, that of r = 1 the plain stack.
    """
    reference = paper_config(d_model_of_width(REFERENCE_WIDTH), 4 if n_recur > 1 else 1)
    return REFERENCE_TOKENS * accounting.executed_params(reference)


def paper_run(
    width: float,
    n_recur: int = 1,
    *,
    budget: float | None = None,
    n_tokens: int | None = None,
    variant: str | None = None,
    bptt: int | None = None,
    case: str = "baseline",
    **train: Unpack[TrainOverrides],
) -> RunSpec:
    """A run of the paper's grid: its 20-layer stack, FineWeb-Edu, its recipe (section 4).

    Args:
        width: the paper's s; d_model is 64 s rounded up to a multiple of 128.
        n_recur: how often the loop block runs (r).
        budget: nominal training FLOPs, which determine the tokens; or give `n_tokens`.
        variant: name in `looped.variants.VARIANTS`; None for the linear injection.
        bptt: last recurrences that carry gradient; None = all.
        case: name of the study.
        train: fields of `TrainConfig` that differ from the paper's.

    Raises:
        ConfigError: an argument that does not exist, or a value out of range.
        ValueError: both budget and n_tokens, or neither.
    """
    base.check_arguments(paper_run, train)
    model = paper_config(d_model_of_width(width), n_recur, variant, bptt)
    reference: TrainOverrides = {
        "ref_d_model": d_model_of_width(REFERENCE_WIDTH),
        "ref_tokens": reference_tokens(n_recur),
        "ref_batch_tokens": BATCH_TOKENS,
        "batch_rows": BATCH_ROWS,
    }
    return base.run_at(model, budget, n_tokens, reference | train, "fineweb-edu", case)


def paper() -> list[RunSpec]:
    """116 runs: 29 widths x r, from 4.64e17 to 2.15e19 FLOPs."""
    return base.cells(paper_run, WIDTHS, base.RECURRENCES)


def paper_tbptt() -> list[RunSpec]:
    """69 runs: gradient through the last half of the recurrences only."""
    return base.cells(paper_run, TRUNCATED_WIDTHS, truncate=True, case="truncated_bptt")


def paper_hyperconnect() -> list[RunSpec]:
    """63 runs: hyperconnections in place of the linear injection."""
    variant, case = "hyperconnect", "hyperconnections"
    return base.cells(paper_run, HYPERCONNECT_WIDTHS, variant=variant, case=case)


def paper_extrapolation() -> list[RunSpec]:
    """2 runs: s = 34 on 47 billion tokens, r = 1 and r = 4."""
    rows, case = EXTRAPOLATION_ROWS, "extrapolation"
    n_tokens = EXTRAPOLATION_STEPS * rows * 2048
    return [
        paper_run(EXTRAPOLATION_WIDTH, r, n_tokens=n_tokens, batch_rows=rows, case=case)
        for r in (1, 4)
    ]


def paper_lr_sweep() -> list[RunSpec]:
    """32 runs: the MuonH rate at the reference, s = 10 on 10 tokens per executed parameter."""
    tokens = {
        r: accounting.whole_batches(reference_tokens(r), BATCH_TOKENS) for r in base.RECURRENCES
    }
    return [
        paper_run(REFERENCE_WIDTH, r, n_tokens=n_tokens, lr=lr, case="lr_sweep")
        for r, n_tokens in tokens.items()
        for lr in RATES
    ]


def paper_injection() -> list[RunSpec]:
    """4 runs: every way to inject, s = 10, r = 4, 1e18 FLOPs (table 5)."""
    return [
        paper_run(10, 4, budget=1e18, variant=variant, case="injection")
        for variant in base.INJECTIONS
    ]
