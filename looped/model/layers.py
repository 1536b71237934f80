"""The layers of prelude, loop block and coda.

Shapes: B batch, T time, D d_model, H heads, K d_head. A matrix is stored [out, in].

Each module with parameters names their optimiser group in `group`. Under bf16 autocast, matrix
products and attention run in bf16; the residual stream x_BTD, the norms and the rotation stay in
the precision of the parameters.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looped.config import ModelConfig
from looped.model.attention import attend

if TYPE_CHECKING:
    from looped.model.decoding import Slot

NORM_EPS = 1e-6
ROTARY_BASE = 10_000

Rotary = tuple[Tensor, Tensor]
"""Cosine and signed sine of the rotation angles (`rotary_tables`)."""


class Matrix(nn.Module):
    """Linear map without bias, weight [d_out, d_in]."""

    def __init__(self, d_in: int, d_out: int, group: str = "matrix"):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(d_out, d_in))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Embedding(nn.Module):
    """Token embedding, weight [V, D]."""

    group = "embed"

    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return F.embedding(tokens_BT, self.weight)


class RMSNorm(nn.Module):
    """x / √(mean x² + 1e-6), times a learnable scale."""

    group = "norm"

    def __init__(self, d_model: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d_model))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return F.rms_norm(x_BTD, self.scale.shape, self.scale, NORM_EPS)


def rotary_tables(positions: Tensor, d_head: int, dtype: torch.dtype) -> Rotary:
    """Cosine and signed sine of position · 10000^(-2i / K): [..., T, 1, K] for positions [..., T].

    Every forward pass computes them again, at a small fraction of the cost of a layer. So there is
    no buffer to move between devices or precisions, and nothing to store in the state dict.
    """
    channel = torch.arange(0, d_head, 2, device=positions.device, dtype=dtype)
    angle = positions[..., None, None].to(dtype) * ROTARY_BASE ** (-channel / d_head)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)


def rotate(x_BTHK: Tensor, rotary: Rotary) -> Tensor:
    """Rotate channel pair (i, i + K/2) by the angle of the position (arXiv 2104.09864)."""
    cos, sin = rotary
    return x_BTHK * cos + x_BTHK.roll(x_BTHK.shape[-1] // 2, dims=-1) * sin


class Attention(nn.Module):
    """Causal attention over all earlier positions, with rotary positions and QK-norm."""

    def __init__(self, d_model: int, d_head: int):
        super().__init__()
        self.d_head = d_head
        self.query = Matrix(d_model, d_model)
        self.key = Matrix(d_model, d_model)
        self.value = Matrix(d_model, d_model)
        self.out = Matrix(d_model, d_model)

    def forward(
        self, x_BTD: Tensor, rotary: Rotary, backend: str = "sdpa", slot: "Slot | None" = None
    ) -> Tensor:
        heads = (*x_BTD.shape[:2], -1, self.d_head)
        q_BTHK, k_BTHK, v_BTHK = (
            matrix(x_BTD).view(heads) for matrix in (self.query, self.key, self.value)
        )
        # The norm follows the rotation and has no scale. Under autocast both are in fp32, while
        # the kernels require one precision for all three tensors.
        q_BTHK, k_BTHK = (
            F.rms_norm(rotate(x, rotary), (self.d_head,), eps=NORM_EPS).to(v_BTHK.dtype)
            for x in (q_BTHK, k_BTHK)
        )
        if slot is None:
            o_BTHK = attend(q_BTHK, k_BTHK, v_BTHK, backend)
        else:
            o_BTHK = slot.attend(q_BTHK, k_BTHK, v_BTHK)
        return self.out(o_BTHK.flatten(2))


class MLP(nn.Module):
    """D -> 4 D -> D with squared ReLU (arXiv 2109.08668)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.up = Matrix(d_model, 4 * d_model)
        self.down = Matrix(4 * d_model, d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        active = F.relu(self.up(x_BTD))
        return self.down(active * active)


class Block(nn.Module):
    """One layer: pre-norm residual attention, then pre-norm residual MLP."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm_attention = RMSNorm(config.d_model)
        self.attention = Attention(config.d_model, config.d_head)
        self.norm_mlp = RMSNorm(config.d_model)
        self.mlp = MLP(config.d_model)

    def forward(
        self, x_BTD: Tensor, rotary: Rotary, backend: str = "sdpa", slot: "Slot | None" = None
    ) -> Tensor:
        """x_BTD after the layer.

        Args:
            rotary: result of `rotary_tables`.
            backend: name in `looped.model.attention.BACKENDS`.
            slot: cached keys and values of earlier positions, in decoding.
        """
        x_BTD = x_BTD + self.attention(self.norm_attention(x_BTD), rotary, backend, slot)
        return x_BTD + self.mlp(self.norm_mlp(x_BTD))
