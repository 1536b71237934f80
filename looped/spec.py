"""What a run is: an architecture, the training it gets, and the text it reads.

A `RunSpec` holds all that decides the result and nothing else. What only decides how fast the
result comes (device, attention backend, compilation, rows per pass, processes) is an argument of
`looped.train`. The trainer is told tokens: a budget in FLOPs becomes tokens in
`looped.accounting`, before the spec is made, and no scaling law takes part in it.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields

from looped.accounting import flops_per_token
from looped.config import ModelConfig, require_whole
from looped.errors import ConfigError

SEED_LIMIT = 2**63

BUDGET_TOLERANCE = 0.01
"""Relative distance allowed between a nominal budget and tokens x FLOPs per token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """The optimiser's settings and the amount of training. Defaults are the paper's (section 4).

    The learning rates are those of the reference: a model of `ref_d_model`, trained on
    `ref_tokens` tokens in batches of `ref_batch_tokens`. `looped.transfer` carries them over to
    the run at hand. Where a reference is None, the run is its own reference in that respect.

    Raises:
        ConfigError: a value out of its range.
    """

    n_tokens: int
    batch_rows: int = 128  # rows of seq_len tokens in a step: 262,144 tokens in the paper
    lr: float = 0.014  # MuonH: block matrices and the linear injection
    lr_embed: float = 0.3
    lr_unembed: float = 0.004
    lr_norm: float = 0.005
    lr_lanes: float = 0.01
    lr_final: float = 0.1  # of the first step's rate, at the end of the linear decay
    momentum: float = 0.95
    betas: tuple[float, float] = (0.8, 0.95)
    eps: float = 1e-10
    ref_d_model: int | None = None
    ref_tokens: float | None = None
    ref_batch_tokens: int | None = None
    seed: int = 0

    def __post_init__(self):
        require_whole("n_tokens", self.n_tokens, 1)
        require_whole("batch_rows", self.batch_rows, 1)
        require_whole("seed", self.seed, 0)
        if self.seed >= SEED_LIMIT:
            raise ConfigError(f"seed: got {self.seed}, expected less than 2^63")
        if not isinstance(self.betas, list | tuple) or len(self.betas) != 2:
            raise ConfigError(f"betas: got {self.betas!r}, expected two numbers")
        object.__setattr__(self, "betas", tuple(self.betas))
        for field in ("lr", "lr_embed", "lr_unembed", "lr_norm", "lr_lanes", "eps"):
            _require_between(field, getattr(self, field), 0, math.inf, open_low=True)
        for field in ("ref_d_model", "ref_tokens", "ref_batch_tokens"):
            if getattr(self, field) is not None:
                _require_between(field, getattr(self, field), 0, math.inf, open_low=True)
        _require_between("lr_final", self.lr_final, 0, 1)
        for field, value in [("momentum", self.momentum), *(("betas", b) for b in self.betas)]:
            _require_between(field, value, 0, 1)
            if value == 1:
                raise ConfigError(f"{field}: got {value!r}, expected less than 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """One run of one study. Its `run_id` names its work folder and its record.

    Raises:
        ConfigError: tokens that are not a whole number of batches.
    """

    model: ModelConfig
    train: TrainConfig
    corpus: str  # source of `looped.data`, or SOURCE@DIGEST with the first digits of its SHA-256
    case: str = "baseline"  # name of the study
    budget: float | None = None  # nominal training FLOPs; None = those that n_tokens cost

    def __post_init__(self):
        kinds = {"model": ModelConfig, "train": TrainConfig, "corpus": str, "case": str}
        for field, kind in kinds.items():
            value = getattr(self, field)
            if not isinstance(value, kind) or value == "":
                raise ConfigError(f"{field}: got {value!r}, expected a {kind.__name__}")
        if rest := self.train.n_tokens % self.batch_tokens:
            below = self.train.n_tokens - rest
            raise ConfigError(
                f"n_tokens: got {self.train.n_tokens}, expected a multiple of the "
                f"{self.batch_tokens} tokens of a batch; {max(below, self.batch_tokens)} is one"
            )
        if self.budget is not None:
            self._check_budget()

    def _check_budget(self):
        _require_between("budget", self.budget, 0, math.inf, open_low=True)
        if abs(self.flops / self.budget - 1) > BUDGET_TOLERANCE:
            raise ConfigError(
                f"budget: got {self.budget:.6g} FLOPs, but {self.train.n_tokens} tokens, the whole "
                f"batches that come nearest, cost {self.flops:.6g}; give a budget of more batches, "
                "or tokens in its place"
            )

    @property
    def batch_tokens(self) -> int:
        """Tokens of one optimiser step."""
        return self.train.batch_rows * self.model.seq_len

    @property
    def flops(self) -> float:
        """Training FLOPs of the run."""
        return self.train.n_tokens * flops_per_token(self.model)

    @property
    def nominal_budget(self) -> float:
        """The budget that the run belongs to; without one, what it costs."""
        return self.flops if self.budget is None else self.budget

    @property
    def n_steps(self) -> int:
        """Optimiser steps of the run."""
        return self.train.n_tokens // self.batch_tokens

    @property
    def run_id(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the spec's canonical JSON."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict:
        """Plain values by field name, as JSON has them; `from_dict` is the exact inverse."""
        values = asdict(self)
        values["train"]["betas"] = list(self.train.betas)
        return values

    @classmethod
    def from_dict(cls, values: dict) -> "RunSpec":
        """Spec of `to_dict`'s values. Raises ConfigError on an unknown or missing key."""
        values = dict(values)
        _require_fields(cls, values)
        for part in ("model", "train"):
            if not isinstance(values[part], dict):
                raise ConfigError(f"{part}: got {values[part]!r}, expected its fields")
        values["model"] = ModelConfig.from_dict(values["model"])
        _require_fields(TrainConfig, values["train"])
        values["train"] = TrainConfig(**values["train"])
        return cls(**values)


def _require_fields(cls, values):
    known = {field.name for field in fields(cls)}
    if unknown := sorted(set(values) - known):
        raise ConfigError(f"{cls.__name__}: unknown fields {unknown}; known: {sorted(known)}")
    needed = {"model", "train", "corpus"} if cls is RunSpec else {"n_tokens"}
    if missing := sorted(needed - set(values)):
        raise ConfigError(f"{cls.__name__}: missing fields {missing}")


def _require_between(field, value, low, high, open_low=False):
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high or (open_low and value == low) or value == math.inf:
        start = "more than" if open_low else "at least"
        end = "" if high == math.inf else f" and at most {high}"
        raise ConfigError(f"{field}: got {value!r}, expected a number of {start} {low}{end}")
