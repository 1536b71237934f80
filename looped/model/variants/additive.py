"""Injection without parameters: the prelude's output is added in every recurrence."""

import torch

from looped.model.variants.base import Variant


class AdditiveInjection(Variant):
    """h₀ = 0, u_t = h_{t-1} + e (paper appendix, ablation of the injection)."""

    def start(self, e_BTD):
        return torch.zeros_like(e_BTD)

    def read(self, state, e_BTD, step):
        return state + e_BTD
