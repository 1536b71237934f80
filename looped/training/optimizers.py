"""Optimisers of a run: MuonH for matrices, AdamW for all other parameters.

    matrix     matrices of the blocks and of the injection     MuonH
    embed      token embedding                                 AdamW
    unembed    output matrix                                   AdamW
    norm       scales of the norms                             AdamW
    lanes      scalars of hyperconnections                     AdamW

`looped.transfer` determines the rates of the first step; then all rates decay by the same factor.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from looped import transfer
from looped.spec import RunSpec
from looped.training.muonh import MuonH

if TYPE_CHECKING:
    from looped.model.looped_lm import LoopedLM


class Optimizers:
    """MuonH and AdamW of one run as one optimiser; see `build_optimizers`."""

    def __init__(self, spec: RunSpec, parts: dict[str, torch.optim.Optimizer]):
        self.spec = spec
        self.parts = parts
        self.first_rates = transfer.learning_rates(spec)
        self.set_rates(0)

    def set_rates(self, step: int) -> None:
        """Set the rate of every group for a step, counted from 0."""
        factor = transfer.decay(step, self.spec.n_steps, self.spec.train.lr_final)
        for group in self._groups():
            group["lr"] = factor * self.first_rates[group["group"]]

    def rates(self) -> dict[str, float]:
        """Rate of the next step by parameter group; groups without parameters are absent."""
        return {group["group"]: group["lr"] for group in self._groups()}

    def step(self) -> None:
        """Update all parameters that have a gradient."""
        for part in self.parts.values():
            part.step()

    def zero_grad(self) -> None:
        """Delete all gradients."""
        for part in self.parts.values():
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """State of every optimiser by name: tensors, numbers and names only."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the optimisers; the rates are set at each step."""
        for name, part in self.parts.items():
            part.load_state_dict(state[name])

    def _groups(self) -> Iterator[dict[str, Any]]:
        return (group for part in self.parts.values() for group in part.param_groups)


def build_optimizers(model: "LoopedLM", spec: RunSpec) -> Optimizers:
    """The optimisers of a run for a model with initial weights.

    Raises:
        ConfigError: a matrix is zero, so that MuonH cannot keep its norm.
    """
    groups = {
        name: {"params": list(params.items()), "group": name}
        for name, params in model.parameter_groups().items()
        if params
    }
    train = spec.train
    parts: dict[str, torch.optim.Optimizer]
    parts = {"muonh": MuonH([groups.pop("matrix")], momentum=train.momentum)}
    if groups:
        parts["adamw"] = torch.optim.AdamW(
            list(groups.values()), betas=train.betas, eps=train.eps, weight_decay=0.0, fused=True
        )
    return Optimizers(spec, parts)
