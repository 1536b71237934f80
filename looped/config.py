"""Configuration of a looped language model: what the accounting and the model both need.

A stack executes `n_prelude + n_recur * n_loop + n_coda` layers: the prelude and the coda run once
per token, the loop block `n_recur` times. At one executed depth (iso-depth) a larger `n_recur`
means fewer unique layers.
"""

from dataclasses import asdict, dataclass, fields

from looped.errors import ConfigError

VARIANTS = ("none", "linear", "additive", "passthrough", "hyperconnect")
"""How the prelude's output enters each recurrence; `none` is the plain stack, n_recur = 1 only."""

NEEDS_EVERY_RECURRENCE = {
    "passthrough": "reaches prelude and embedding through the first recurrence alone",
    "hyperconnect": "passes through the lanes of every recurrence",
}
"""Variants that truncated backpropagation would cut off: what happens to their gradient."""

PAPER_SHARED = 16
"""Layers that the loop block of the paper's 20-layer stacks executes."""

PAPER_VOCAB = 32_001
"""Tokens of the paper: Llama 2's 32,000 and one more special one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Sizes of one architecture. Defaults are the paper's (section 3, table 4).

    Raises:
        ConfigError: a size that is not a positive whole number, or options that exclude another.
    """

    d_model: int
    d_head: int = 128
    n_recur: int = 1
    n_prelude: int = 2
    n_loop: int = 16
    n_coda: int = 2
    variant: str = "none"
    bptt: int | None = None  # last recurrences that carry gradient; None = all
    n_lanes: int = 2  # hyperconnections only
    vocab_size: int = 32_064  # rows in memory: PAPER_VOCAB padded to a multiple of 64
    vocab_used: int | None = None  # rows that are tokens, the rest is padding; None = all
    seq_len: int = 2048

    def __post_init__(self):
        for field in ("d_model", "d_head", "n_recur", "n_loop", "n_lanes", "vocab_size", "seq_len"):
            require_whole(field, getattr(self, field), 1)
        for field in ("n_prelude", "n_coda"):
            require_whole(field, getattr(self, field), 0)
        if self.variant not in VARIANTS:
            raise ConfigError(f"variant: got {self.variant!r}, expected one of {VARIANTS}")
        if self.variant == "none" and self.n_recur > 1:
            raise ConfigError(
                f"variant 'none' is the plain stack, got n_recur={self.n_recur}; "
                f"choose one of {VARIANTS[1:]} to loop"
            )
        self._check_heads()
        if self.vocab_used is not None:
            require_whole("vocab_used", self.vocab_used, 1)
            if self.vocab_used > self.vocab_size:
                raise ConfigError(
                    f"vocab_used: got {self.vocab_used} tokens for vocab_size={self.vocab_size} "
                    "rows; use None for all rows"
                )
        if self.bptt is not None:
            self._check_bptt()

    def _check_heads(self):
        if self.d_head % 2:
            raise ConfigError(
                f"d_head: got {self.d_head}, expected an even number, since rotary positions turn "
                "pairs of channels"
            )
        if self.d_model % self.d_head:
            raise ConfigError(
                f"d_head: got {self.d_head}, which does not divide d_model={self.d_model}; "
                "set d_head to a divisor"
            )

    def _check_bptt(self):
        require_whole("bptt", self.bptt, 1)
        if self.bptt > self.n_recur:
            raise ConfigError(
                f"bptt: got {self.bptt} recurrences with gradient of n_recur={self.n_recur}; "
                "use None for full backpropagation"
            )
        if self.bptt < self.n_recur and (why := NEEDS_EVERY_RECURRENCE.get(self.variant)):
            raise ConfigError(
                f"bptt: got {self.bptt} of n_recur={self.n_recur} with variant {self.variant!r}, "
                f"whose gradient {why}; use bptt=None"
            )

    @property
    def n_heads(self) -> int:
        """Attention heads of each layer."""
        return self.d_model // self.d_head

    @property
    def n_vocab(self) -> int:
        """Tokens that can be predicted: vocab_size without its padding."""
        return self.vocab_size if self.vocab_used is None else self.vocab_used

    @property
    def n_layers(self) -> int:
        """Executed depth."""
        return self.n_prelude + self.n_recur * self.n_loop + self.n_coda

    @property
    def n_recur_grad(self) -> int:
        """Recurrences that carry gradient."""
        return self.n_recur if self.bptt is None else self.bptt

    def to_dict(self) -> dict:
        """Plain values by field name; `from_dict` is the exact inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "ModelConfig":
        """Config of `to_dict`'s values. Raises ConfigError on an unknown key."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ConfigError(f"unknown fields {unknown}; known: {[f.name for f in fields(cls)]}")
        return cls(**values)


def d_model_of_width(width: float) -> int:
    """Model size of the paper's width s: 64 s rounded up to a multiple of 128 (section 3.3)."""
    return int(-(-64 * width // 128) * 128)


def paper_config(
    d_model: int, n_recur: int, variant: str | None = None, bptt: int | None = None
) -> ModelConfig:
    """The paper's 20-layer stack: prelude 2, loop 16 / r, coda 2.

    The variant defaults to linear injection, and to the plain stack at n_recur = 1.
    """
    if n_recur < 1 or PAPER_SHARED % n_recur:
        raise ConfigError(
            f"n_recur: got {n_recur}, expected a divisor of {PAPER_SHARED}, "
            "so that the depth stays the same"
        )
    return ModelConfig(
        d_model=d_model,
        n_recur=n_recur,
        n_loop=PAPER_SHARED // n_recur,
        vocab_used=PAPER_VOCAB,
        variant=variant or ("linear" if n_recur > 1 else "none"),
        bptt=bptt,
    )


def require_whole(field: str, value: object, least: int) -> None:
    """Raise ConfigError unless the value of a field is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{field}: got {value!r}, expected a whole number of at least {least}")
