"""MuonH: Muon whose matrices stay on the sphere on which they started ("Muon-Hyperball").

    G            gradient of a matrix W
    M            momentum, M <- μ M + (1 - μ) G, with μ = 0.95
    U            update, the polar factor of (1 - μ) G + μ M (Nesterov): all directions of the
                 matrix at equal length
    ρ            ‖W‖ (Frobenius) at the start of training

    W <- W - lr ρ U / ‖U‖,  then  W <- ρ W / ‖W‖

The rate is thus the size of a step relative to the matrix, whatever its shape. Weight decay only
changes ‖W‖, which the projection undoes, so there is none. Sources: paper section 4 and HyperP
(arXiv 2603.28743); Muon: Jordan et al. 2024.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist

from looped.errors import ConfigError

POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
"""Polar Express (arXiv 2505.16932, algorithm 1): step k maps a singular value σ to aσ + bσ³ + cσ⁵,
the odd quintic that is closest to 1 on all of [l_k, u_k], where l_1 = 0.001, u_1 = 1. These are
the five steps with safety and cushion 0.02, as nanochat and modded-nanogpt use them."""

SAFETY = 1.02
"""Divides the singular values before the first step, so that rounding leaves none above 1."""

TINY = 1e-12
"""Least norm that is divided by: a matrix without gradient gets no update rather than NaN."""

CHUNK = 8
"""Matrices in one product on a CPU, where the operands of more leave the cache."""


class MuonH(torch.optim.Optimizer):
    """Sphere-constrained Muon for matrices of one or several shapes.

    Matrices of equal shape are orthogonalised together, in bf16 on a GPU and in fp32 on a CPU.
    If torch.distributed is initialised, each process orthogonalises its share of every shape and
    gathers the others'. Momentum is kept by all processes: it follows from the gradients, which
    they share anyway, so that it needs no communication and a checkpoint holds all of it,
    whatever the number of processes that go on from there.

    Args:
        named_params: pairs of name and matrix, or groups (dicts) of them. The matrices are
            initialised: their norms are taken here.
        lr: length of a step relative to the norm of the matrix.
        momentum: μ, share of the past in the momentum.

    Raises:
        ConfigError: a parameter that is no matrix, or that is zero, so that it has no direction.
    """

    def __init__(
        self,
        named_params: Iterable[tuple[str, torch.nn.Parameter]],
        lr: float = 0.014,
        momentum: float = 0.95,
    ):
        super().__init__(list(named_params), {"lr": lr, "momentum": momentum})
        for group in self.param_groups:
            norms = torch._foreach_norm([p.detach() for p in group["params"]])
            for name, p, norm in zip(group["param_names"], group["params"], norms, strict=True):
                if p.ndim != 2:
                    raise ConfigError(
                        f"{name}: got shape {tuple(p.shape)}, expected a matrix; "
                        "leave other parameters to AdamW"
                    )
                if not 0 < norm < torch.inf:
                    raise ConfigError(
                        f"{name}: got norm {norm.item()}, expected a finite positive one, since "
                        "the matrix is kept at that norm; initialise it first"
                    )
                self.state[p] = {"momentum": torch.zeros_like(p), "norm": norm}

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every matrix that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params in _by_shape(group["params"]):
                self._update(params, group["lr"], group["momentum"])
        return loss

    def _update(self, params, lr, momentum):
        """Step of matrices of one shape."""
        grads = [p.grad for p in params]
        moments = [self.state[p]["momentum"] for p in params]
        norms = [self.state[p]["norm"] for p in params]
        torch._foreach_lerp_(moments, grads, 1 - momentum)
        updates = torch.stack(torch._foreach_lerp(grads, moments, momentum))
        updates = _orthogonalize_shared(updates)
        updates *= (torch.stack(norms) / _norm(updates).squeeze())[:, None, None]
        torch._foreach_add_(params, list(updates.unbind()), alpha=-lr)
        ratios = torch._foreach_div(norms, torch._foreach_norm(params))
        torch._foreach_mul_(params, ratios)


def orthogonalize(stack: torch.Tensor) -> torch.Tensor:
    """Polar factors, up to the accuracy of five Polar Express steps, of matrices [n, rows, cols].

    Singular values from 0.001 of the Frobenius norm on end within 0.16 of 1, smaller ones lower.
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


def _orthogonalize_shared(stack):
    """`orthogonalize`, with the matrices divided among the processes."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return _orthogonalize_(stack)
    n, rows, cols = stack.shape
    ranks = dist.get_world_size()
    share = -(-n // ranks)
    mine = stack.new_zeros(share, rows, cols)  # the last shares may be short of matrices
    given = stack[dist.get_rank() * share :][:share]
    mine[: len(given)] = _orthogonalize_(given)
    gathered = stack.new_empty(ranks * share, rows, cols)
    dist.all_gather_into_tensor(gathered, mine)
    return gathered[:n]


def _orthogonalize_(stack):
    """`orthogonalize` in place."""
    for chunk in stack.split(len(stack) if stack.is_cuda else CHUNK):
        chunk.copy_(orthogonalize(chunk))
    return stack


def _norm(stack):
    """Frobenius norms [n, 1, 1] of matrices, none of them zero."""
    return torch.linalg.vector_norm(stack, dim=(-2, -1), keepdim=True).clamp_min(TINY)


def _by_shape(params):
    stacks = defaultdict(list)
    for p in params:
        if p.grad is not None:
            stacks[p.shape].append(p)
    return stacks.values()
