"""Building blocks of a study: stacks of one executed depth, recipes, and what its grids share.

A study has a recipe, a function that returns the `RunSpec` of one run, and grids, functions that
return the specs of all runs of one experiment.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from looped import accounting
from looped.config import ModelConfig
from looped.errors import ConfigError, pick
from looped.spec import RunSpec, TrainConfig

Recipe = Callable[..., RunSpec]
Grid = Callable[[], list[RunSpec]]

RECURRENCES = (1, 2, 4, 8)
LOOPED = (2, 4, 8)
INJECTIONS = ("linear", "additive", "passthrough", "hyperconnect")
"""Variants that the injection studies compare."""


class TrainOverrides(TypedDict, total=False):
    """Fields of `TrainConfig` that a caller may set; see there for their meaning."""

    batch_rows: int
    lr: float
    lr_embed: float
    lr_unembed: float
    lr_norm: float
    lr_lanes: float
    lr_final: float
    momentum: float
    betas: tuple[float, float]
    eps: float
    ref_d_model: int | None
    ref_tokens: float | None
    ref_batch_tokens: int | None
    seed: int


def iso_depth(
    plain: ModelConfig, n_recur: int, variant: str | None = None, bptt: int | None = None
) -> ModelConfig:
    """The stack that executes as many layers as `plain`, with a loop block of n_loop / n_recur.

    Args:
        plain: the stack with n_recur = 1.
        variant: None for the linear injection, or for the plain stack at n_recur = 1.
        bptt: last recurrences that carry gradient; None = all.

    Raises:
        ConfigError: n_recur does not divide n_loop.
    """
    if n_recur < 1 or plain.n_loop % n_recur:
        raise ConfigError(
            f"n_recur: got {n_recur}, expected a divisor of {plain.n_loop}, "
            "so that the depth stays the same"
        )
    return replace(
        plain,
        n_recur=n_recur,
        n_loop=plain.n_loop // n_recur,
        variant=variant or ("linear" if n_recur > 1 else "none"),
        bptt=bptt,
    )


def truncation(n_recur: int) -> int:
    """Recurrences with gradient in the truncated-BPTT case: the last ⌈r / 2⌉ (section 6)."""
    return math.ceil(n_recur / 2)


def cells(
    recipe: Recipe,
    widths: Mapping[float, Sequence[int]],
    recurrences: Sequence[int] = LOOPED,
    truncate: bool = False,
    **settings: Any,
) -> list[RunSpec]:
    """A grid: one run for each budget (FLOPs), width of the budget, and recurrence.

    Args:
        widths: budget -> widths, in the unit of the recipe's first argument.
        truncate: backpropagate through the last ⌈r / 2⌉ recurrences only (section 6).
        settings: further arguments of the recipe.
    """
    return [
        recipe(width, r, budget=budget, bptt=truncation(r) if truncate else None, **settings)
        for budget in widths
        for width in widths[budget]
        for r in recurrences
    ]


def run_at(
    model: ModelConfig,
    budget: float | None,
    n_tokens: int | None,
    train: TrainOverrides,
    corpus: str,
    case: str,
) -> RunSpec:
    """The spec of a model trained for a budget in FLOPs or for a number of tokens.

    Raises:
        ValueError: both budget and n_tokens, or neither.
    """
    if (budget is None) == (n_tokens is None):
        raise ValueError("give either budget (FLOPs) or n_tokens")
    settings = TrainConfig(n_tokens=1 if n_tokens is None else n_tokens, **train)
    if budget is not None:
        batch_tokens = settings.batch_rows * model.seq_len
        n_tokens = accounting.tokens_at_budget(model, budget, batch_tokens)
        settings = replace(settings, n_tokens=n_tokens)
    return RunSpec(model=model, train=settings, corpus=corpus, case=case, budget=budget)


def check_arguments(recipe: Recipe, train: TrainOverrides) -> None:
    """Raise ConfigError for a keyword of `recipe` that neither it nor `TrainOverrides` has."""
    parameters = inspect.signature(recipe).parameters.values()
    own = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    for name in train:
        pick(f"argument of {recipe.__name__}", name, [*own, *TrainOverrides.__annotations__])
