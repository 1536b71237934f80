"""Static hyperconnections: parallel lanes that learned weights read, mix and write.

Shapes: N lanes. Source: arXiv 2409.19606; paper section 5.
"""

import torch
from torch import Tensor, nn

from looped.config import ModelConfig
from looped.model.variants.base import VariantModule


class HyperConnections(VariantModule):
    """u_t = Σ_n a_t[n] lane_n; lanes ← M_t lanes + b_t ⊗ h_t; the coda reads Σ_n lane_n.

    All lanes start at e. Each recurrence has separate a_t [N], M_t [N, N], b_t [N], so a trained
    model is undefined for any other n_recur.
    """

    group = "lanes"

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        steps, lanes = config.n_recur, config.n_lanes
        self.read_weight = nn.Parameter(torch.empty(steps, lanes))
        self.mix_weight = nn.Parameter(torch.empty(steps, lanes, lanes))
        self.write_weight = nn.Parameter(torch.empty(steps, lanes))

    @torch.no_grad()
    def init_weights(self) -> None:
        """a_t = one-hot(t mod N), M_t = I, b_t = 1.

        All lanes then hold the same s_t = s_{t-1} + h_t with s₀ = e: the plain loop with a
        residual connection around each recurrence. The coda reads N s_r. The one-hot vectors make
        the gradients of the lanes differ.
        """
        steps, lanes = self.read_weight.shape
        identity = torch.eye(lanes)
        self.read_weight.copy_(identity[torch.arange(steps) % lanes])
        self.mix_weight.copy_(identity.expand(steps, -1, -1))
        self.write_weight.fill_(1.0)

    def start(self, e_BTD: Tensor) -> Tensor:
        return e_BTD.expand(self.read_weight.shape[1], *e_BTD.shape)

    def read(self, state: Tensor, e_BTD: Tensor, step: int) -> Tensor:
        return _mix(self.read_weight[step : step + 1], state)[0]

    def write(self, state: Tensor, h_BTD: Tensor, step: int) -> Tensor:
        added_NBTD = self.write_weight[step][:, None, None, None] * h_BTD
        return _mix(self.mix_weight[step], state) + added_NBTD

    def finish(self, state: Tensor) -> Tensor:
        return state.sum(dim=0)


def _mix(weight: Tensor, lanes_NBTD: Tensor) -> Tensor:
    """Weighted sums of lanes, weight [M, N] -> [M, B, T, D], never in half precision."""
    with torch.autocast(lanes_NBTD.device.type, enabled=False):
        return torch.einsum("mn,nbtd->mbtd", weight, lanes_NBTD)
