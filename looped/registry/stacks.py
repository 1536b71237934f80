"""From an architecture to rows of the table of runs, and back."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from looped import accounting
from looped.accounting import STACK
from looped.config import ModelConfig
from looped.errors import ConfigError
from looped.studies.paper import paper_config


def runs_at_width(
    config: ModelConfig,
    d_model: ArrayLike,
    *,
    budget: ArrayLike | None = None,
    n_tokens: ArrayLike | None = None,
) -> pd.DataFrame:
    """Rows that a law can predict: the configuration at real widths, for a budget or tokens.

    Args:
        config: the architecture; its own d_model is not used.
        d_model: widths, [n] or one.
        budget: training FLOPs, [n] or one; the tokens follow, not rounded to batches; or
        n_tokens: the training tokens.

    Raises:
        ValueError: both budget and n_tokens, or neither.
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
            "budget": tokens * flops if budget is None else budget,
        }
    )


def stack_of(runs: pd.DataFrame, n_recur: int) -> ModelConfig:
    """The architecture of the runs at one recurrence: sections, variant and truncation.

    Where the runs have no columns for the layers of each section, the paper's stack is assumed.
    d_model is a placeholder: `Law.optimal` and `runs_at_width` take real widths.

    Raises:
        ConfigError: runs of several architectures, or counts that differ from those of the stack.
    """
    at = runs[runs["n_recur"] == n_recur]
    variant, bptt = (_only(at, name) for name in ("variant", "bptt"))
    config = paper_config(640, int(n_recur), variant, None if bptt is None else int(bptt))
    known = {name: _only(at, name) for name in STACK}
    if all(value is not None for value in known.values()):
        sizes: dict[str, Any] = {name: int(value) for name, value in known.items()}
        config = replace(config, vocab_used=None, **sizes)
    _require_counts(at, config)
    return config


def _require_counts(runs: pd.DataFrame, config: ModelConfig) -> None:
    known = runs.dropna(subset=["d_model"]) if "d_model" in runs else runs.iloc[:0]
    if known.empty:
        return
    counted = accounting.n_params(config, known["d_model"].to_numpy(float))
    if not np.allclose(counted, known["n_params"], rtol=1e-6):
        raise ConfigError(
            f"the runs at r = {config.n_recur} do not have a stack of {config.n_prelude}, "
            f"{config.n_loop} and {config.n_coda} layers: N = {known['n_params'].iloc[0]:.6g} at "
            f"d_model {known['d_model'].iloc[0]}, expected {counted[0]:.6g}; add the columns "
            f"{', '.join(STACK)}, or give `Law.optimal` a ModelConfig of your own"
        )


def _only(runs: pd.DataFrame, column: str) -> Any:
    """The one value of a column, None if it is missing."""
    values = runs[column].drop_duplicates().tolist() if column in runs else []
    if len(values) > 1:
        raise ConfigError(f"runs of several {column}s: {values}; choose one case")
    return None if not values or pd.isna(values[0]) else values[0]
