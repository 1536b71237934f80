"""The plain models that equal a looped one in loss, cost or memory, and the break-even φ.

The plain counterpart executes the same layers, and each layer has separate weights: r = 1.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from looped import accounting
from looped.config import ModelConfig
from looped.errors import NoMinimum
from looped.fitting.result import FitResult
from looped.laws.law import Law
from looped.laws.optimal import LOG_WIDTHS
from looped.registry.stacks import runs_at_width

BYTES = 2  # per weight and per cached value, bf16


def plain_of(config: ModelConfig) -> ModelConfig:
    """The r = 1 stack that executes the same layers as `config`."""
    return replace(
        config, n_recur=1, n_loop=config.n_recur * config.n_loop, variant="none", bptt=None
    )


def equivalence(fit: FitResult | Law, config: ModelConfig) -> dict[str, float]:
    """Unique parameters of a looped model and of its plain equivalents (appendix F.4).

    By the law two models with equal effective parameters have equal loss at any D, and the
    effective parameters of a plain model are its N.

    Returns:
        n_params (unique), n_params_effective (of the plain model of equal loss), with
        n_params_effective_low and _high if the fit has an interval, and n_params_equal_cost (of the
        plain model of equal training FLOPs per token); all without embeddings. The split `fitted`
        spreads an injection over plain models too, so that under it the effective parameters of a
        plain model are not exactly its N (0.1 % in the paper's stacks).

    Raises:
        ValueError: a fit of a law without φ.
    """
    law = _law_with_phi(fit)
    at = runs_at_width(config, config.d_model, n_tokens=1.0)
    found = {
        "n_params": float(at["n_params"].iloc[0]),
        "n_params_effective": float(law.n_eff(at)[0]),
        "n_params_equal_cost": _plain_n_params(config),
    }
    if isinstance(fit, FitResult) and fit.interval is not None:
        # N_eff rises with φ, so the ends of one interval are the ends of the other
        for name, phi in zip(("low", "high"), fit.interval.interval("phi"), strict=True):
            found[f"n_params_effective_{name}"] = float(law.at(phi=phi).n_eff(at)[0])
    return found


def break_even_phi(fit: FitResult | Law, config: ModelConfig, budget: float) -> float:
    """φ at which the looped model and its plain counterpart have equal compute-optimal loss.

    The law's other parameters are held. About 1 where a recurrence costs as much as a block; less
    where looping saves FLOPs, as truncation does.

    Raises:
        NoMinimum: no such φ within the law's bounds, or a law without a compute-optimal width.
        ValueError: a fit of a law without φ, or a plain model.
    """
    law = _law_with_phi(fit)
    if config.n_recur == 1:
        raise ValueError("a plain model, r = 1, breaks even at any φ; give a model with r > 1")
    plain = law.optimal(budget, plain_of(config))["val_loss_star"].iloc[0]
    bounds = law.form.bounds_of("phi")

    def above(phi: float) -> float:
        return law.at(phi=phi).optimal(budget, config)["val_loss_star"].iloc[0] - plain

    low, high = above(bounds[0]), above(bounds[1])
    if low * high > 0:
        raise NoMinimum(
            f"no φ in {bounds} gives r = {config.n_recur} the loss of r = 1 at {budget:.3g} FLOPs"
        )
    return float(brentq(above, *bounds, xtol=1e-6))


def matched_losses(fit: FitResult | Law, config: ModelConfig, budget: float) -> pd.DataFrame:
    """A looped model at a budget against plain models that match one of its counts.

    Every row spends the same training FLOPs. The looped model has its compute-optimal width. The
    plain model has its compute-optimal width in the first row; in the others it has the width at
    which both models have the same count.

    Returns:
        matched (what sets the plain model's width: own optimum, FLOPs per token, unique
        parameters, inference memory), and of both with the suffixes _looped and _plain: d_model
        (real), n_params, n_tokens, memory (bytes at decoding with a full context: all weights and
        the cache, bf16), val_loss (of the law, nats per token); difference = looped - plain.

    Raises:
        ValueError: a fit of a law without φ.
        NoMinimum: a law without a compute-optimal width.
    """
    law = _law_with_phi(fit)
    plain = plain_of(config)
    width = law.optimal(budget, config)["d_model"].iloc[0]
    counts = {
        "FLOPs per token": accounting.flops_per_token,
        "unique parameters": accounting.n_params,
        "inference memory": _memory,
    }
    widths = {"own optimum": law.optimal(budget, plain)["d_model"].iloc[0]}
    widths |= {
        name: _width_with(plain, count, count(config, width)) for name, count in counts.items()
    }
    rows = []
    for matched, plain_width in widths.items():
        both = {"looped": (config, width), "plain": (plain, plain_width)}
        row = {
            f"{key}_{name}": value
            for name, (each, at) in both.items()
            for key, value in _at(law, each, at, budget).items()
        }
        difference = row["val_loss_looped"] - row["val_loss_plain"]
        rows.append({"matched": matched, **row, "difference": difference})
    return pd.DataFrame(rows)


def _law_with_phi(fit: FitResult | Law) -> Law:
    law = fit if isinstance(fit, Law) else fit.law
    if "phi" not in law.params:
        raise ValueError(f"the {law.name} law has no φ to compare by; give a fit of the joint law")
    return law


def _plain_n_params(config: ModelConfig) -> float:
    plain = plain_of(config)
    width = _width_with(plain, accounting.flops_per_token, accounting.flops_per_token(config))
    return float(accounting.n_params(plain, width))


def _width_with(config: ModelConfig, count: Callable, value: float) -> float:
    """The real width at which a count of the configuration has this value; counts rise with it."""
    return float(
        np.exp(
            brentq(lambda log_width: np.log(count(config, np.exp(log_width)) / value), *LOG_WIDTHS)
        )
    )


def _memory(config: ModelConfig, d_model: ArrayLike) -> Any:
    """Bytes at decoding with a full context: weights, embeddings and the cache of every layer."""
    weights = sum(accounting.params_by_section(config, d_model).values())
    cache = accounting.kv_cache_bytes_per_token(config, d_model, bytes_per_value=BYTES)
    return BYTES * weights + config.seq_len * cache


def _at(law: Law, config: ModelConfig, width: float, budget: float) -> dict[str, float]:
    run = runs_at_width(config, width, budget=budget)
    return {
        "d_model": width,
        "n_params": run["n_params"].iloc[0],
        "n_tokens": run["n_tokens"].iloc[0],
        "memory": float(_memory(config, width)),
        "val_loss": law.loss(run)[0],
    }
