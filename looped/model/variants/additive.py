"""Injection without parameters: the prelude's output is added in every recurrence."""

import torch
from torch import Tensor

from looped.model.variants.base import VariantModule


class AdditiveInjection(VariantModule):
    """h₀ = 0, u_t = h_{t-1} + e (paper table 5)."""

    def start(self, e_BTD: Tensor) -> Tensor:
        return torch.zeros_like(e_BTD)

    def read(self, state: Tensor, e_BTD: Tensor, step: int) -> Tensor:
        return state + e_BTD
