"""Parameters, FLOPs and cache bytes of a looped language model, in closed form.

Glossary (d = d_model, per token unless stated otherwise):

    B           12 d² + 2 d: one block, 4 d² attention + 8 d² MLP + two RMSNorm scales
    N_once      parameters that run once: prelude, coda, norms outside blocks (3 d), the variant's
    N_rec       parameters that run r times: the loop block and the variant's injection
    N           N_once + N_rec; embedding and unembedding are never part of it
    F           training FLOPs: 6 per parameter and pass (2 forward, 4 backward), with the
                unembedding; attention 12 d T per layer (4 forward), T = seq_len, no causal discount

A recurrence without gradient (truncated BPTT) costs its forward pass only.
Source: paper section 3.2 and appendix B. The results equal its published counts to 1e-9 (log N) and
4e-5 (log F, whose published values are rounded).

Every function also takes `d_model`: real widths [n] that replace the configuration's width, since
the compute-optimal width is searched on a continuum. It then returns [n].
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from looped.config import ModelConfig
from looped.variants import VARIANTS

FORWARD, TRAIN = 2, 6
"""FLOPs per parameter, token and pass: forward alone, forward and backward."""
ATTENTION = 2
"""Attention multiply-adds per layer, position and channel: scores and weighted sum."""
STACK = ["n_prelude", "n_loop", "n_coda", "vocab_size", "seq_len"]
"""Fields that, with n_recur, d_model, variant and bptt, determine the counts."""


def params_by_section(config: ModelConfig, d_model: ArrayLike | None = None) -> dict[str, Any]:
    """Stored parameters of each section of the stack; their sum is the whole model."""
    d = _width(config, d_model)
    variant = VARIANTS[config.variant]
    return {
        "embedding": config.vocab_size * d,
        "prelude": config.n_prelude * _block(d),
        "injection": variant.injection(d) + 0 * d,
        "loop": config.n_loop * _block(d),
        "lanes": variant.lanes(config, d) + 0 * d,
        "coda": config.n_coda * _block(d),
        "norms": 3 * d,
        "unembedding": config.vocab_size * d,
    }


def n_params_once(config: ModelConfig, d_model: ArrayLike | None = None) -> Any:
    """N_once: parameters that run once per token."""
    sections = params_by_section(config, d_model)
    return sum(sections[name] for name in ("prelude", "coda", "norms", "lanes"))


def n_params_rec(config: ModelConfig, d_model: ArrayLike | None = None) -> Any:
    """N_rec: parameters that run n_recur times per token."""
    sections = params_by_section(config, d_model)
    return sections["loop"] + sections["injection"]


def n_params(config: ModelConfig, d_model: ArrayLike | None = None) -> Any:
    """N = N_once + N_rec: unique parameters without embedding and unembedding."""
    return n_params_once(config, d_model) + n_params_rec(config, d_model)


def executed_params(config: ModelConfig, d_model: ArrayLike | None = None) -> Any:
    """N_once + r N_rec: parameters counted as often as they run."""
    return n_params_once(config, d_model) + config.n_recur * n_params_rec(config, d_model)


def flops_per_token(config: ModelConfig, d_model: ArrayLike | None = None) -> Any:
    """Training FLOPs per token, forward and backward."""
    once, step = _forward_flops(config, _width(config, d_model), config.seq_len)
    detached = config.n_recur - config.n_recur_grad
    return TRAIN / FORWARD * (once + config.n_recur_grad * step) + detached * step


def inference_flops_per_token(
    config: ModelConfig, d_model: ArrayLike | None = None, context: int | None = None
) -> Any:
    """FLOPs to decode one token at a context of `context` tokens (default: seq_len)."""
    context = config.seq_len if context is None else context
    once, step = _forward_flops(config, _width(config, d_model), context)
    return once + config.n_recur * step


def block_flops_per_token(config: ModelConfig, d_model: ArrayLike | None = None) -> Any:
    """Forward FLOPs per token of the parameters of the blocks and the injection, no attention.

    In the paper's stacks the injection adds the share r / 120 (section 3.2).
    """
    head = FORWARD * config.vocab_size * _width(config, d_model)
    return inference_flops_per_token(config, d_model, context=0) - head


def kv_cache_bytes_per_token(
    config: ModelConfig,
    d_model: ArrayLike | None = None,
    kept: int | None = None,
    bytes_per_value: int = 2,
) -> Any:
    """Bytes of the key-value cache per token of context, bf16 by default.

    Args:
        kept: how many of the n_recur recurrences stay cached (None: all, paper section 6).

    Raises:
        ValueError: kept is not within 1 to n_recur.
    """
    kept = config.n_recur if kept is None else kept
    if not 1 <= kept <= config.n_recur:
        raise ValueError(f"kept: got {kept} recurrences, expected 1 to n_recur={config.n_recur}")
    layers = config.n_prelude + config.n_coda + kept * config.n_loop
    return 2 * bytes_per_value * layers * _width(config, d_model)


def tokens_at_budget(config: ModelConfig, budget: float, batch_tokens: int) -> int:
    """Training tokens for a FLOP budget: the nearest whole number of batches, at least one.

    Raises:
        ValueError: the budget is not a positive number.
    """
    if not 0 < budget < float("inf"):
        raise ValueError(f"budget: got {budget!r}, expected a positive number of FLOPs")
    return whole_batches(budget / flops_per_token(config), batch_tokens)


def whole_batches(n_tokens: float, batch_tokens: int) -> int:
    """The multiple of `batch_tokens` that is nearest to `n_tokens`, at least one batch."""
    return max(1, round(n_tokens / batch_tokens)) * batch_tokens


def counts(config: ModelConfig) -> dict[str, float]:
    """The counts of one configuration, by the column names of the table of runs."""
    return {
        "n_params_once": int(n_params_once(config)),
        "n_params_rec": int(n_params_rec(config)),
        "n_params": int(n_params(config)),
        "n_params_embed": int(2 * config.vocab_size * config.d_model),
        "flops_per_token": float(flops_per_token(config)),
        "inference_flops_per_token": float(inference_flops_per_token(config)),
        "kv_cache_bytes_per_token": int(kv_cache_bytes_per_token(config)),
    }


def columns(config: ModelConfig) -> dict[str, Any]:
    """The architecture and its counts, by the column names of the table of runs."""
    return {
        "n_recur": config.n_recur,
        "d_model": config.d_model,
        "variant": config.variant,
        "bptt": config.bptt,
        "n_params_once": n_params_once(config),
        "n_params_rec": n_params_rec(config),
        "n_params": n_params(config),
        "flops_per_token": flops_per_token(config),
        **{name: getattr(config, name) for name in STACK},
    }


def executed_layers(config: ModelConfig) -> list[dict[str, Any]]:
    """The layers of one forward pass in order, each with the stored layer that it runs.

    Returns:
        One dict per executed layer: position (from 1), section, layer (number of the stored layer,
        from 1), recurrence (from 1; None outside the loop), reused (the layer has run before),
        gradient (backward reaches it), injection (the prelude's output enters before it).
    """
    first_with_gradient = config.n_recur - config.n_recur_grad + 1
    injects = VARIANTS[config.variant].injects
    stored = config.n_prelude + config.n_loop
    rows: list[tuple[str, int, int | None]]
    rows = [("prelude", layer, None) for layer in range(config.n_prelude)]
    for recurrence in range(1, config.n_recur + 1):
        rows += [("loop", layer, recurrence) for layer in range(config.n_prelude, stored)]
    rows += [("coda", layer, None) for layer in range(stored, stored + config.n_coda)]
    return [
        {
            "position": position,
            "section": section,
            "layer": layer + 1,
            "recurrence": recurrence,
            "reused": recurrence is not None and recurrence > 1,
            "gradient": recurrence is None or recurrence >= first_with_gradient,
            "injection": injects and section == "loop" and layer == config.n_prelude,
        }
        for position, (section, layer, recurrence) in enumerate(rows, start=1)
    ]


def _width(config: ModelConfig, d_model: ArrayLike | None) -> Any:
    return config.d_model if d_model is None else np.asarray(d_model, dtype=float)


def _block(d: Any) -> Any:
    return 12 * d**2 + 2 * d


def _forward_flops(config: ModelConfig, d: Any, context: int) -> tuple[Any, Any]:
    """Forward FLOPs per token: of the sections that run once, and of one recurrence."""
    variant = VARIANTS[config.variant]
    layer = FORWARD * _block(d) + 2 * ATTENTION * context * d
    once = (config.n_prelude + config.n_coda) * layer + FORWARD * config.vocab_size * d
    injection = FORWARD * variant.injection(d) + variant.extra_flops(config, d)
    return once, config.n_loop * layer + injection
