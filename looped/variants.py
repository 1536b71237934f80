"""Variants of the looped stack: how the prelude's output enters the recurrences, and what it costs.

This is the half of a variant that needs no torch: parameters, FLOPs, what it supports. The other
half, its forward pass, is one file in `looped.model.variants`. A new variant is one entry in
`VARIANTS`, one such file, and one line in `VARIANT_CLASSES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from looped.errors import pick


class Sizes(Protocol):
    """The fields of `ModelConfig` that counts of a variant may depend on, besides the width."""

    @property
    def n_recur(self) -> int: ...
    @property
    def n_loop(self) -> int: ...
    @property
    def n_lanes(self) -> int: ...


def _nothing(*sizes: Any) -> int:
    return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """Counts and abilities of one variant. Counts take the width d: an int, or real widths [n]."""

    injection: Callable[[Any], Any] = _nothing
    """d -> parameters that run in every recurrence; they are part of N_rec."""
    lanes: Callable[[Sizes, Any], Any] = _nothing
    """(config, d) -> parameters that run once per token, over all recurrences; part of N_once."""
    extra_flops: Callable[[Sizes, Any], Any] = _nothing
    """(config, d) -> forward FLOPs per token and recurrence, beyond 2 per injection parameter."""
    loops: bool = True
    """Whether n_recur may exceed 1."""
    injects: bool = False
    """Whether the prelude's output enters before each recurrence, not only before the first."""
    any_n_recur: bool = True
    """Whether a trained model can run with a number of recurrences other than n_recur."""
    no_truncation: str | None = None
    """Why truncated BPTT is not supported: what happens to the gradient; None if it is."""


def _lane_scalars(config: Sizes, d: Any) -> Any:
    """a_t [K], M_t [K, K] and b_t [K] of each recurrence t, with K = n_lanes."""
    return config.n_recur * config.n_lanes * (config.n_lanes + 2)


def _lane_flops(config: Sizes, d: Any) -> Any:
    """Multiply-adds of one recurrence: K d to read, K² d to mix, K d to write the lanes."""
    return 2 * config.n_lanes * (config.n_lanes + 2) * d


VARIANTS: dict[str, Variant] = {
    # the plain stack, n_recur = 1 only
    "none": Variant(loops=False, any_n_recur=False),
    # one matrix [d, 2 d] mixes the prelude's output and the state (paper section 3.1)
    "linear": Variant(injection=lambda d: 2 * d**2, injects=True),
    # the prelude's output is added to the state (paper table 5)
    "additive": Variant(injects=True),
    # the prelude's output is the first state and does not enter again (paper table 5)
    "passthrough": Variant(
        no_truncation="reaches prelude and embedding through the first recurrence alone"
    ),
    # static hyperconnections: parallel lanes (arXiv 2409.19606, paper section 5)
    "hyperconnect": Variant(
        lanes=_lane_scalars,
        extra_flops=_lane_flops,
        any_n_recur=False,
        no_truncation="passes through the lanes of every recurrence",
    ),
}


def n_params_injection(variant: ArrayLike, d_model: ArrayLike) -> Any:
    """Parameters that run in every recurrence besides the loop block.

    Args:
        variant: one name, or names [n].
        d_model: one width, or widths [n].

    Returns:
        A number, or numbers [n].

    Raises:
        ConfigError: a name that is not in `VARIANTS`.
    """
    names, widths = np.broadcast_arrays(
        np.asarray(variant, dtype=object), np.asarray(d_model, dtype=float)
    )
    counts = np.zeros(widths.shape)
    for name in set(names.ravel()):
        at = names == name
        counts[at] = pick("variant", name, VARIANTS).injection(widths[at])
    return counts[()]
