"""Specification of a run: architecture, training settings and corpus.

A `RunSpec` holds everything that determines the result, and nothing else. What determines only the
speed (device, attention backend, compilation, rows per pass, processes) is an argument of
`looped.train`. The trainer receives a number of tokens: `looped.accounting` converts a budget in
FLOPs into tokens before the spec is made, and no scaling law is involved.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from looped import accounting
from looped.config import ModelConfig, require_known, require_whole
from looped.errors import ConfigError
from looped.files import sha256

SEED_LIMIT = 2**63

BUDGET_TOLERANCE = 0.01
"""Largest relative difference between a nominal budget and tokens x FLOPs per token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Optimiser settings and number of training tokens. Defaults are the paper's (section 4).

    The learning rates hold for the reference: a model of width `ref_d_model`, trained on
    `ref_tokens` tokens in batches of `ref_batch_tokens`. `looped.transfer` converts them to this
    run. A reference of None means that the rates need no conversion in that respect.

    Raises:
        ConfigError: a value out of range.
    """

    n_tokens: int
    batch_rows: int = 128  # rows of seq_len tokens per step
    lr: float = 0.014  # MuonH: block matrices and the linear injection
    lr_embed: float = 0.3
    lr_unembed: float = 0.004
    lr_norm: float = 0.005
    lr_lanes: float = 0.01
    lr_final: float = 0.1  # share of the initial rate at the end of the linear decay
    momentum: float = 0.95
    betas: tuple[float, float] = (0.8, 0.95)
    eps: float = 1e-10
    ref_d_model: int | None = None
    ref_tokens: float | None = None
    ref_batch_tokens: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
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
        ConfigError: n_tokens is not a whole number of batches, or does not match the budget.
    """

    model: ModelConfig
    train: TrainConfig
    corpus: str  # source of `looped.data`, or SOURCE@DIGEST with the first digits of its SHA-256
    case: str = "baseline"  # name of the study
    budget: float | None = None  # nominal training FLOPs; None = the cost of n_tokens

    def __post_init__(self) -> None:
        kinds = {"model": ModelConfig, "train": TrainConfig, "corpus": str, "case": str}
        for field, kind in kinds.items():
            value = getattr(self, field)
            if not isinstance(value, kind) or value == "":
                raise ConfigError(f"{field}: got {value!r}, expected a {kind.__name__}")
        if self.train.n_tokens % self.batch_tokens:
            nearest = accounting.whole_batches(self.train.n_tokens, self.batch_tokens)
            raise ConfigError(
                f"n_tokens: got {self.train.n_tokens}, expected a multiple of the "
                f"{self.batch_tokens} tokens of a batch; the nearest multiple is {nearest}"
            )
        if self.budget is not None:
            self._check_budget(self.budget)

    def _check_budget(self, budget: float) -> None:
        _require_between("budget", budget, 0, math.inf, open_low=True)
        if abs(self.flops / budget - 1) > BUDGET_TOLERANCE:
            raise ConfigError(
                f"budget: got {budget:.6g} FLOPs, but {self.train.n_tokens} tokens, the nearest "
                f"whole number of batches, cost {self.flops:.6g}; give a larger budget, or give "
                "n_tokens instead"
            )

    @property
    def batch_tokens(self) -> int:
        """Tokens per optimiser step."""
        return self.train.batch_rows * self.model.seq_len

    @property
    def flops(self) -> float:
        """Training FLOPs of the run."""
        return self.train.n_tokens * accounting.flops_per_token(self.model)

    @property
    def nominal_budget(self) -> float:
        """The nominal budget; without one, the training FLOPs."""
        return self.flops if self.budget is None else self.budget

    @property
    def n_steps(self) -> int:
        """Optimiser steps of the run."""
        return self.train.n_tokens // self.batch_tokens

    @property
    def run_id(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the spec's canonical JSON."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return sha256(text)[:16]

    def row(self) -> dict[str, Any]:
        """The run as a row of the table of runs (`looped.registry.schema`), without its result."""
        return {
            "case": self.case,
            **accounting.columns(self.model),
            "budget": self.nominal_budget,
            "n_tokens": self.train.n_tokens,
            "seed": self.train.seed,
            "run_id": self.run_id,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name, as in JSON; `from_dict` is the exact inverse."""
        values = asdict(self)
        values["train"]["betas"] = list(self.train.betas)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunSpec":
        """The spec with the values of `to_dict`. Raises ConfigError for unknown, missing fields."""
        values = dict(values)
        _require_fields(cls, values, {"model", "train", "corpus"})
        for part in ("model", "train"):
            if not isinstance(values[part], dict):
                raise ConfigError(f"{part}: got {values[part]!r}, expected a mapping of its fields")
        values["model"] = ModelConfig.from_dict(values["model"])
        _require_fields(TrainConfig, values["train"], {"n_tokens"})
        values["train"] = TrainConfig(**values["train"])
        return cls(**values)


def _require_fields(
    cls: type[RunSpec] | type[TrainConfig], values: dict[str, Any], needed: set[str]
) -> None:
    require_known(cls.__name__, values, [field.name for field in fields(cls)])
    if missing := sorted(needed - set(values)):
        raise ConfigError(f"{cls.__name__}: missing fields {missing}")


def _require_between(
    field: str, value: Any, low: float, high: float, open_low: bool = False
) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high or (open_low and value == low) or value == math.inf:
        start = "more than" if open_low else "at least"
        end = "" if high == math.inf else f" and at most {high}"
        raise ConfigError(f"{field}: got {value!r}, expected a number of {start} {low}{end}")
