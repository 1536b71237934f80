"""What a looped model is worth in plain ones: by loss, by cost, by memory; and the φ to break even.

A plain counterpart executes the same layers, each with weights of its own: r = 1.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from looped import accounting
from looped.config import ModelConfig
from looped.errors import NoMinimum
from looped.fitting.optimal import LOG_WIDTHS, compute_optimal, runs_at_width
from looped.fitting.result import FitResult
from looped.laws import get_law

BYTES = 2  # of a weight and of a cached value, bf16


def plain_of(config: ModelConfig) -> ModelConfig:
    """The r = 1 stack that executes the same layers as `config`."""
    return replace(
        config, n_recur=1, n_loop=config.n_recur * config.n_loop, variant="none", bptt=None
    )


def equivalence(fit: FitResult, config: ModelConfig) -> dict[str, float | tuple[float, float]]:
    """Unique parameters of a looped model and of the plain ones that equal it (appendix F.4).

    By the law two models of equal effective parameters have equal loss at any D, and those of a
    plain model are its N.

    Returns:
        n_params (unique), n_params_effective (of the plain model of equal loss), its interval
        n_params_effective_interval if the fit has one, and n_params_equal_cost (of the plain
        model of equal training FLOPs per token); no embeddings in any. Under the split `fitted`,
        which spreads an injection over plain models too, the effective parameters of a plain model
        are not exactly its N (0.1 % in the paper's stacks).

    Raises:
        ValueError: a fit of a law without φ.
    """
    _require_phi(fit)
    at = runs_at_width(config, config.d_model, n_tokens=1.0)
    found = {
        "n_params": float(at["n_params"].iloc[0]),
        "n_params_effective": float(fit.n_params_effective(at)[0]),
        "n_params_equal_cost": _plain_n_params(config),
    }
    if fit.interval is not None:
        found["n_params_effective_interval"] = tuple(
            float(_with_phi(fit, phi).n_params_effective(at)[0])
            for phi in fit.interval.interval("phi")  # N_eff rises with φ: ends go to ends
        )
    return found


def break_even_phi(fit: FitResult, config: ModelConfig, budget: float) -> float:
    """φ at which the looped model's compute-optimal loss is that of its plain counterpart.

    The law's other parameters are held. About 1 where a recurrence costs what a block costs; below
    it where looping saves FLOPs, as truncation does.

    Raises:
        NoMinimum: no φ within the law's bounds does, or a law without a compute-optimal width.
        ValueError: a fit of a law without φ, or a plain model.
    """
    _require_phi(fit)
    if config.n_recur == 1:
        raise ValueError("a plain model, r = 1, breaks even at any φ; give one with r > 1")
    plain = compute_optimal(fit, plain_of(config), budget)["val_loss_star"].iloc[0]
    bounds = dict(zip(get_law(fit.law).coordinates, get_law(fit.law).bounds, strict=True))["phi"]

    def above(phi):
        looped = compute_optimal(_with_phi(fit, phi), config, budget)
        return looped["val_loss_star"].iloc[0] - plain

    low, high = above(bounds[0]), above(bounds[1])
    if low * high > 0:
        raise NoMinimum(
            f"no φ in {bounds} gives r = {config.n_recur} the loss of r = 1 at {budget:.3g} FLOPs"
        )
    return float(brentq(above, *bounds, xtol=1e-6))


def matched_losses(fit: FitResult, config: ModelConfig, budget: float) -> pd.DataFrame:
    """A looped model at a budget against plain ones that match it in one thing at a time.

    Every row spends the same training FLOPs. The looped model has its compute-optimal width; the
    plain one has its own in the first row, and in the others that at which one count of both is
    the same.

    Returns:
        matched (what the plain model's width follows from: own optimum, FLOPs per token, unique
        parameters, inference memory), and of both with the suffixes _looped and _plain: d_model
        (real), n_params, n_tokens, memory (bytes at decoding with a full context: all weights and
        the cache, bf16), val_loss (of the law, nats per token); difference = looped - plain.

    Raises:
        ValueError: a fit of a law without φ.
        NoMinimum: a law without a compute-optimal width.
    """
    _require_phi(fit)
    plain = plain_of(config)
    width = compute_optimal(fit, config, budget)["d_model"].iloc[0]
    counts = {
        "FLOPs per token": accounting.flops_per_token,
        "unique parameters": accounting.n_params,
        "inference memory": _memory,
    }
    widths = {"own optimum": compute_optimal(fit, plain, budget)["d_model"].iloc[0]}
    widths |= {
        name: _width_with(plain, count, count(config, width)) for name, count in counts.items()
    }
    rows = []
    for matched, plain_width in widths.items():
        both = {"looped": (config, width), "plain": (plain, plain_width)}
        row = {
            f"{key}_{name}": value
            for name, (each, at) in both.items()
            for key, value in _at(fit, each, at, budget).items()
        }
        difference = row["val_loss_looped"] - row["val_loss_plain"]
        rows.append({"matched": matched, **row, "difference": difference})
    return pd.DataFrame(rows)


def _require_phi(fit):
    if "phi" not in fit.params:
        raise ValueError(f"the {fit.law} law has no φ to compare by; give a fit of the joint law")


def _with_phi(fit, phi) -> FitResult:
    return replace(fit, params=fit.params | {"phi": phi})


def _plain_n_params(config) -> float:
    plain = plain_of(config)
    width = _width_with(plain, accounting.flops_per_token, accounting.flops_per_token(config))
    return float(accounting.n_params(plain, width))


def _width_with(config, count, value) -> float:
    """The real width at which a count of the configuration has this value; counts rise with it."""
    return float(
        np.exp(
            brentq(lambda log_width: np.log(count(config, np.exp(log_width)) / value), *LOG_WIDTHS)
        )
    )


def _memory(config, d_model):
    """Bytes at decoding with a full context: weights, embeddings and the cache of every layer."""
    weights = sum(accounting.params_by_section(config, d_model).values())
    cache = accounting.kv_cache_bytes_per_token(config, d_model, bytes_per_value=BYTES)
    return BYTES * weights + config.seq_len * cache


def _at(fit, config, width, budget) -> dict:
    run = runs_at_width(config, width, budget=budget)
    return {
        "d_model": width,
        "n_params": run["n_params"].iloc[0],
        "n_tokens": run["n_tokens"].iloc[0],
        "memory": float(_memory(config, width)),
        "val_loss": fit.predict(run)[0],
    }
