"""The paper's injection: a matrix mixes the prelude's output and the state."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looped.config import ModelConfig
from looped.model.variants.base import VariantModule


class LinearInjection(VariantModule):
    """h₀ = e, u_t = W_inj [e ; h_{t-1}], W_inj [D, 2D] (paper section 3.1)."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.weight = nn.Parameter(torch.empty(config.d_model, 2 * config.d_model))

    def init_weights(self) -> None:
        """W_inj = [I | 0]: initially every recurrence reads e only."""
        torch.nn.init.eye_(self.weight)

    def read(self, state: Tensor, e_BTD: Tensor, step: int) -> Tensor:
        u_BTD = F.linear(torch.cat([e_BTD, state], dim=-1), self.weight)
        return u_BTD.to(e_BTD.dtype)  # under autocast, keep the residual stream in fp32
