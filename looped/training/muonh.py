"""MuonH: Muon that keeps every matrix at its initial norm ("Muon-Hyperball").

    G            gradient of a matrix W
    M            momentum, M <- μ M + (1 - μ) G, with μ = 0.95
    U            update, the polar factor of (1 - μ) G + μ M (Nesterov): all singular values
                 are 1
    ρ            ‖W‖ (Frobenius) at the start of training

    W <- W - lr ρ U / ‖U‖,  then  W <- ρ W / ‖W‖

The rate is the length of a step relative to the norm of the matrix, whatever its shape. Weight
decay changes only ‖W‖, which the projection restores, so there is none.
Sources: paper section 4 and HyperP (arXiv 2603.28743); Muon: Jordan et al. 2024.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from looped.errors import ConfigError

POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
"""Polar Express (arXiv 2505.16932, algorithm 1): step k maps a singular value σ to aσ + bσ³ + cσ⁵,
the odd quintic with the smallest largest distance from 1 on [l_k, u_k], where l_1 = 0.001 and
u_1 = 1. These five steps use safety and cushion 0.02, as in nanochat and modded-nanogpt."""

SAFETY = 1.02
"""Divisor of the singular values before the first step: rounding then leaves none above 1."""

TINY = 1e-12
"""Smallest divisor: the update of a matrix without gradient is 0 instead of NaN."""

CHUNK = 8
"""Matrices per product on a CPU: the operands of more matrices do not fit the cache."""


class MuonH(torch.optim.Optimizer):
    """Sphere-constrained Muon for matrices of one or several shapes.

    Matrices of equal shape are orthogonalised together, in bf16 on a GPU and in fp32 on a CPU.
    If torch.distributed is initialised, the processes divide the matrices of each shape among
    them and gather the results. All processes hold the whole momentum: it depends only on the
    gradients, which they share, so it needs no communication. A checkpoint is therefore complete,
    and any number of processes can resume from it.

    Args:
        named_params: pairs of name and matrix, or groups (dicts) of pairs. The matrices must have
            their initial values, whose norms are stored.
        lr: length of a step relative to the norm of the matrix.
        momentum: μ, the share of the previous momentum in the new one.

    Raises:
        ConfigError: a parameter is not a matrix, or is zero, so that it has no direction.
    """

    def __init__(
        self,
        named_params: Iterable[tuple[str, torch.nn.Parameter]] | Iterable[dict[str, Any]],
        lr: float = 0.014,
        momentum: float = 0.95,
    ):
        super().__init__(named_params, {"lr": lr, "momentum": momentum})
        for group in self.param_groups:
            norms = torch._foreach_norm([p.detach() for p in group["params"]])
            for name, p, norm in zip(group["param_names"], group["params"], norms, strict=True):
                if p.ndim != 2:
                    raise ConfigError(
                        f"{name}: got shape {tuple(p.shape)}, expected a matrix; "
                        "use AdamW for other parameters"
                    )
                if not 0 < norm < torch.inf:
                    raise ConfigError(
                        f"{name}: got norm {norm.item()}, expected a finite positive norm, since "
                        "the matrix keeps it; initialise the matrix first"
                    )
                self.state[p] = {"momentum": torch.zeros_like(p), "norm": norm}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params in _by_shape(group["params"]):
                self._update(params, group["lr"], group["momentum"])
        return loss

    def _update(self, params: list[Tensor], lr: float, momentum: float) -> None:
        """Update matrices of one shape."""
        grads = [p.grad for p in params if p.grad is not None]
        moments = [self.state[p]["momentum"] for p in params]
        norms = [self.state[p]["norm"] for p in params]
        torch._foreach_lerp_(moments, grads, 1 - momentum)
        updates = torch.stack(torch._foreach_lerp(grads, moments, momentum))
        updates = _orthogonalize_shared(updates)
        updates *= (torch.stack(norms) / _norm(updates).squeeze())[:, None, None]
        torch._foreach_add_(params, list(updates.unbind()), alpha=-lr)
        ratios = torch._foreach_div(norms, torch._foreach_norm(params))
        torch._foreach_mul_(params, ratios)


def orthogonalize(stack: Tensor) -> Tensor:
    """Approximate polar factors of matrices [n, rows, cols], by five Polar Express steps.

    Singular values of at least 0.001 of the Frobenius norm end within 0.16 of 1, others lower.
    """
    if stack.shape[-2] > stack.shape[-1]:
        return orthogonalize(stack.mT).mT
    x = stack / (SAFETY * _norm(stack))
    if x.is_cuda:
        x = x.bfloat16()
    for a, b, c in POLAR_EXPRESS:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(stack.dtype)


def _orthogonalize_shared(stack: Tensor) -> Tensor:
    """`orthogonalize`, with the matrices divided among the processes."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return _orthogonalize_(stack)
    n, rows, cols = stack.shape
    ranks = dist.get_world_size()
    share = -(-n // ranks)
    mine = stack.new_zeros(share, rows, cols)  # the last shares may have fewer matrices
    matrices = stack[dist.get_rank() * share :][:share]
    mine[: len(matrices)] = _orthogonalize_(matrices)
    gathered = stack.new_empty(ranks * share, rows, cols)
    dist.all_gather_into_tensor(gathered, mine)
    return gathered[:n]


def _orthogonalize_(stack: Tensor) -> Tensor:
    """`orthogonalize` in place."""
    for chunk in stack.split(len(stack) if stack.is_cuda else CHUNK):
        chunk.copy_(orthogonalize(chunk))
    return stack


def _norm(stack: Tensor) -> Tensor:
    """Frobenius norms [n, 1, 1] of matrices, at least TINY."""
    return torch.linalg.vector_norm(stack, dim=(-2, -1), keepdim=True).clamp_min(TINY)


def _by_shape(params: list[Tensor]) -> Iterable[list[Tensor]]:
    stacks: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for p in params:
        if p.grad is not None:
            stacks[p.shape].append(p)
    return stacks.values()
