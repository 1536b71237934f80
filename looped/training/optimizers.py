"""The optimisers of a run, as one: MuonH for matrices, AdamW for everything else.

    matrix     matrices of the blocks, and the injection's     MuonH
    embed      token embedding                                 AdamW
    unembed    output matrix                                   AdamW
    norm       scales of the norms                             AdamW
    lanes      scalars of hyperconnections                     AdamW

Rates of the first step come from `looped.transfer`; all groups then decay together.
"""

from typing import TYPE_CHECKING

import torch

from looped import transfer
from looped.spec import RunSpec
from looped.training.muonh import MuonH

if TYPE_CHECKING:
    from looped.model.looped_lm import LoopedLM


class Optimizers:
    """MuonH and AdamW of one run, stepped and stored together. Made by `build_optimizers`."""

    def __init__(self, spec: RunSpec, parts: dict[str, torch.optim.Optimizer]):
        self.spec = spec
        self.parts = parts
        self.first_rates = transfer.learning_rates(spec)
        self.set_rates(0)

    def set_rates(self, step: int) -> None:
        """Give every group its rate at a step, counted from 0."""
        factor = transfer.decay(step, self.spec.n_steps, self.spec.train.lr_final)
        for group in self._groups():
            group["lr"] = factor * self.first_rates[group["group"]]

    def rates(self) -> dict[str, float]:
        """Rate of the next step by parameter group; groups without parameters are left out."""
        return {group["group"]: group["lr"] for group in self._groups()}

    def step(self) -> None:
        """Update all parameters that have a gradient."""
        for part in self.parts.values():
            part.step()

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for part in self.parts.values():
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> dict:
        """State of every optimiser by name: tensors, numbers and names only."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: dict) -> None:
        """Take up `state_dict` of the same spec's optimisers; rates follow from the step."""
        for name, part in self.parts.items():
            part.load_state_dict(state[name])

    def _groups(self):
        return (group for part in self.parts.values() for group in part.param_groups)


def build_optimizers(model: "LoopedLM", spec: RunSpec) -> Optimizers:
    """Optimisers of an initialised model by the settings of its run.

    Raises:
        ConfigError: a matrix that is zero, so that MuonH cannot keep its norm.
    """
    groups = {
        name: {"params": list(params.items()), "group": name}
        for name, params in model.parameter_groups().items()
        if params
    }
    train = spec.train
    parts = {"muonh": MuonH([groups.pop("matrix")], momentum=train.momentum)}
    if groups:
        parts["adamw"] = torch.optim.AdamW(
            list(groups.values()), betas=train.betas, eps=train.eps, weight_decay=0.0, fused=True
        )
    return Optimizers(spec, parts)
