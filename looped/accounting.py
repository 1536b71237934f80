"""Parameters, FLOPs and cache bytes of a looped language model, in closed form.

Glossary (d = d_model, per token unless said otherwise):

    B           12 d² + 2 d: one block, 4 d² attention + 8 d² MLP + two RMSNorm scales
    N_once      parameters that run once: prelude, coda, norms outside blocks (3 d), lane scalars
    N_rec       parameters that run r times: the loop block and the linear injection (2 d²)
    N           N_once + N_rec; embedding and unembedding are never part of it
    F           training FLOPs: 6 a parameter and pass (2 forward, 4 backward), with the
                unembedding; attention 12 d T a layer (4 forward), T = seq_len, no causal discount

A recurrence without gradient (truncated BPTT) costs its forward part only.
Source: paper section 3.2 and appendix B; equal to its published counts to 1e-9 (log N) and
4e-5 (log F, whose published values are rounded).

Every function also takes `d_model`, an array of real widths in place of the configuration's own,
since the compute-optimal width is searched on a continuum.
"""

import numpy as np

from looped.config import ModelConfig

FORWARD, TRAIN = 2, 6
"""FLOPs a parameter costs per token and pass: forward alone, forward and backward."""
ATTENTION = 2
"""Attention multiply-adds per layer, position and channel: scores and weighted sum."""


def params_by_section(config: ModelConfig, d_model=None) -> dict[str, np.ndarray | float]:
    """Stored parameters of each section of the stack; their sum is the whole model."""
    d = _width(config, d_model)
    return {
        "embedding": config.vocab_size * d,
        "prelude": config.n_prelude * _block(d),
        "injection": _injection(config, d),
        "loop": config.n_loop * _block(d),
        "lanes": _lane_scalars(config) * d**0,
        "coda": config.n_coda * _block(d),
        "norms": 3 * d,
        "unembedding": config.vocab_size * d,
    }


def n_params_once(config: ModelConfig, d_model=None):
    """N_once: parameters that run once per token."""
    sections = params_by_section(config, d_model)
    return sum(sections[name] for name in ("prelude", "coda", "norms", "lanes"))


def n_params_rec(config: ModelConfig, d_model=None):
    """N_rec: parameters that run n_recur times per token."""
    sections = params_by_section(config, d_model)
    return sections["loop"] + sections["injection"]


def n_params(config: ModelConfig, d_model=None):
    """N = N_once + N_rec: unique parameters without embedding and unembedding."""
    return n_params_once(config, d_model) + n_params_rec(config, d_model)


def n_params_injection(variant: str, d_model):
    """Parameters of the injection layer: [d, 2 d] for the linear variant, none otherwise."""
    return np.where(np.asarray(variant) == "linear", 2.0, 0.0) * np.asarray(d_model) ** 2


def flops_per_token(config: ModelConfig, d_model=None):
    """Training FLOPs per token, forward and backward."""
    d = _width(config, d_model)
    once, step = _forward_flops(config, d, context=config.seq_len)
    detached = config.n_recur - config.n_recur_grad
    return TRAIN / FORWARD * (once + config.n_recur_grad * step) + detached * step


def inference_flops_per_token(config: ModelConfig, d_model=None, context: int | None = None):
    """FLOPs to decode one token at the given context length (default: seq_len)."""
    d = _width(config, d_model)
    once, step = _forward_flops(config, d, context=config.seq_len if context is None else context)
    return once + config.n_recur * step


def block_flops_per_token(config: ModelConfig, d_model=None):
    """Forward FLOPs per token of the blocks' and the injection's parameters, without attention.

    In the paper's stacks the injection adds r / 120 to it (section 3.2).
    """
    head = FORWARD * config.vocab_size * _width(config, d_model)
    return inference_flops_per_token(config, d_model, context=0) - head


def kv_cache_bytes_per_token(
    config: ModelConfig, d_model=None, kept: int | None = None, bytes_per_value: int = 2
):
    """Key-value cache per token of context, bf16 by default.

    `kept` is how many of the n_recur recurrences stay cached (None: all, paper section 6).
    """
    kept = config.n_recur if kept is None else kept
    if not 1 <= kept <= config.n_recur:
        raise ValueError(f"kept: got {kept} recurrences, expected 1 to n_recur={config.n_recur}")
    layers = config.n_prelude + config.n_coda + kept * config.n_loop
    return 2 * bytes_per_value * layers * _width(config, d_model)


def tokens_at_budget(config: ModelConfig, budget: float, batch_tokens: int = 262_144) -> int:
    """Training tokens of a FLOP budget: the nearest whole number of batches, at least one.

    Raises:
        ValueError: a budget that is not a positive number.
    """
    if not 0 < budget < float("inf"):
        raise ValueError(f"budget: got {budget!r}, expected a positive number of FLOPs")
    batches = round(budget / flops_per_token(config) / batch_tokens)
    return max(1, batches) * batch_tokens


def counts(config: ModelConfig) -> dict[str, float]:
    """The counts of one configuration, by the names of the table of runs."""
    return {
        "n_params_once": int(n_params_once(config)),
        "n_params_rec": int(n_params_rec(config)),
        "n_params": int(n_params(config)),
        "n_params_embed": int(2 * config.vocab_size * config.d_model),
        "flops_per_token": float(flops_per_token(config)),
        "inference_flops_per_token": float(inference_flops_per_token(config)),
        "kv_cache_bytes_per_token": int(kv_cache_bytes_per_token(config)),
    }


def executed_layers(config: ModelConfig) -> list[dict]:
    """The layers of one forward pass in order, each with the stored layer that it runs.

    Keys: position (from 1), section, layer (number of the stored layer, from 1), recurrence (from
    1; None outside the loop), reused (the layer has run before), gradient (backward reaches it),
    injection (the prelude's output enters before it).
    """
    first_with_gradient = config.n_recur - config.n_recur_grad + 1
    rows = [("prelude", layer, None) for layer in range(config.n_prelude)]
    for recurrence in range(1, config.n_recur + 1):
        loop = range(config.n_prelude, config.n_prelude + config.n_loop)
        rows += [("loop", layer, recurrence) for layer in loop]
    stored = config.n_prelude + config.n_loop
    rows += [("coda", layer, None) for layer in range(stored, stored + config.n_coda)]
    return [
        {
            "position": position,
            "section": section,
            "layer": layer + 1,
            "recurrence": recurrence,
            "reused": recurrence is not None and recurrence > 1,
            "gradient": recurrence is None or recurrence >= first_with_gradient,
            "injection": config.variant in ("linear", "additive")
            and recurrence is not None
            and layer == config.n_prelude,
        }
        for position, (section, layer, recurrence) in enumerate(rows, start=1)
    ]


def _width(config, d_model):
    return config.d_model if d_model is None else np.asarray(d_model, dtype=float)


def _block(d):
    return 12 * d**2 + 2 * d


def _injection(config, d):
    return 2 * d**2 if config.variant == "linear" else 0 * d


def _lane_scalars(config):
    """Static hyperconnections (arXiv 2409.19606): a_t [K], M_t [K, K], b_t [K] of each step t."""
    if config.variant != "hyperconnect":
        return 0
    return config.n_recur * config.n_lanes * (config.n_lanes + 2)


def _lane_flops(config, d):
    """Forward FLOPs of one step's lane mixing: read K d, mix K² d, write K d multiply-adds."""
    if config.variant != "hyperconnect":
        return 0 * d
    return 2 * config.n_lanes * (config.n_lanes + 2) * d


def _forward_flops(config, d, context):
    """Forward FLOPs per token of the part that runs once, and of one recurrence."""
    layer = FORWARD * _block(d) + 2 * ATTENTION * context * d
    once = (config.n_prelude + config.n_coda) * layer + FORWARD * config.vocab_size * d
    step = config.n_loop * layer + FORWARD * _injection(config, d) + _lane_flops(config, d)
    return once, step
