"""Sizes of a looped language model, which the accounting and the model share.

A stack executes `n_prelude + n_recur * n_loop + n_coda` layers: the prelude and the coda run once
per token, the loop block `n_recur` times. At a fixed executed depth (iso-depth), a larger `n_recur`
means fewer unique layers.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any

from looped.errors import ConfigError, pick
from looped.variants import VARIANTS


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Sizes of one architecture. Defaults are the paper's (section 3, table 4).

    Raises:
        ConfigError: a size that is not a positive whole number, or options that contradict.
    """

    d_model: int
    d_head: int = 128
    n_recur: int = 1
    n_prelude: int = 2
    n_loop: int = 16
    n_coda: int = 2
    variant: str = "none"  # name in looped.variants.VARIANTS
    bptt: int | None = None  # last recurrences that carry gradient; None = all
    n_lanes: int = 2  # hyperconnections only
    vocab_size: int = 32_064  # rows of the embedding: tokens padded to a multiple of 64
    vocab_used: int | None = None  # rows that are tokens, the rest is padding; None = all
    seq_len: int = 2048

    def __post_init__(self) -> None:
        for field in ("d_model", "d_head", "n_recur", "n_loop", "n_lanes", "vocab_size", "seq_len"):
            require_whole(field, getattr(self, field), 1)
        for field in ("n_prelude", "n_coda"):
            require_whole(field, getattr(self, field), 0)
        self._check_variant()
        self._check_heads()
        if self.vocab_used is not None:
            require_whole("vocab_used", self.vocab_used, 1)
            if self.vocab_used > self.vocab_size:
                raise ConfigError(
                    f"vocab_used: got {self.vocab_used} tokens for vocab_size={self.vocab_size} "
                    "rows; use None for all rows"
                )

    def _check_variant(self) -> None:
        try:
            variant = pick("variant", self.variant, VARIANTS)
        except ConfigError as error:
            raise ConfigError(f"{error}. Add a new variant to looped.variants.VARIANTS") from None
        if self.n_recur > 1 and not variant.loops:
            looping = [name for name, each in VARIANTS.items() if each.loops]
            raise ConfigError(
                f"variant {self.variant!r} is the plain stack, got n_recur={self.n_recur}; "
                f"choose one of {', '.join(looping)} to loop"
            )
        if self.bptt is None:
            return
        require_whole("bptt", self.bptt, 1)
        if self.bptt > self.n_recur:
            raise ConfigError(
                f"bptt: got {self.bptt} recurrences with gradient of n_recur={self.n_recur}; "
                "use None for full backpropagation"
            )
        if self.bptt < self.n_recur and variant.no_truncation:
            raise ConfigError(
                f"bptt: got {self.bptt} of n_recur={self.n_recur} with variant {self.variant!r}, "
                f"whose gradient {variant.no_truncation}; use bptt=None"
            )

    def _check_heads(self) -> None:
        if self.d_head % 2:
            raise ConfigError(
                f"d_head: got {self.d_head}, expected an even number, since rotary positions "
                "rotate pairs of channels"
            )
        if self.d_model % self.d_head:
            raise ConfigError(
                f"d_head: got {self.d_head}, which does not divide d_model={self.d_model}; "
                "set d_head to a divisor"
            )

    @property
    def n_heads(self) -> int:
        """Attention heads per layer."""
        return self.d_model // self.d_head

    @property
    def n_vocab(self) -> int:
        """Number of tokens that can be predicted: vocab_size without padding."""
        return self.vocab_size if self.vocab_used is None else self.vocab_used

    @property
    def n_layers(self) -> int:
        """Executed depth."""
        return self.n_prelude + self.n_recur * self.n_loop + self.n_coda

    @property
    def n_recur_grad(self) -> int:
        """Number of recurrences that carry gradient."""
        return self.n_recur if self.bptt is None else self.bptt

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name; `from_dict` is the exact inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ModelConfig":
        """The config with the values of `to_dict`. Raises ConfigError for an unknown field."""
        require_known("ModelConfig", values, [field.name for field in fields(cls)])
        return cls(**values)


def require_whole(field: str, value: object, least: int) -> None:
    """Raise ConfigError unless `value` is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{field}: got {value!r}, expected a whole number of at least {least}")


def require_known(kind: str, values: dict[str, Any], known: list[str]) -> None:
    """Raise ConfigError for a key of `values` that is not `known`; it names the closest match."""
    for name in values:
        pick(f"field of {kind}", name, known)
