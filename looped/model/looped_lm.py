"""The looped language model: prelude, r times the loop block, coda.

    tokens_BT ─ embed ─ norm ─ prelude ─ e ─┬─ read ─ loop ─ norm ─ write ─┐ ─ coda ─ norm ─ logits
                                            └──────── n_recur times ───────┘

Paper section 3. Shapes: B batch, T time, D d_model, V vocabulary. A row has T + 1 tokens: T inputs
and T targets. Losses are in nats per token.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looped.config import ModelConfig
from looped.errors import ConfigError
from looped.model.attention import choose_backend
from looped.model.layers import Block, Embedding, Matrix, RMSNorm, Rotary, rotary_tables
from looped.model.variants import VARIANT_CLASSES
from looped.variants import VARIANTS

if TYPE_CHECKING:
    from looped.model.decoding import KVCache

GROUPS = ("matrix", "embed", "unembed", "norm", "lanes")
"""Optimiser groups, in the order of `looped.transfer.learning_rates`."""
SOFTCAP = 15.0
UNEMBED_STD = 0.001


class LoopedLM(nn.Module):
    """Decoder-only transformer whose loop block runs `config.n_recur` times.

    Args:
        attention: name of a backend of `looped.model.attention`, or `auto`.
        seed: seed of the initial weights; unused on the meta device.
    """

    def __init__(self, config: ModelConfig, attention: str = "auto", seed: int = 0):
        super().__init__()
        self.config = config
        self.attention = attention
        self.embed = Embedding(config.vocab_size, config.d_model)
        self.norm_embed = RMSNorm(config.d_model)
        self.prelude = nn.ModuleList(Block(config) for _ in range(config.n_prelude))
        self.variant = VARIANT_CLASSES[config.variant](config)
        self.loop = nn.ModuleList(Block(config) for _ in range(config.n_loop))
        self.norm_recur = RMSNorm(config.d_model)
        self.coda = nn.ModuleList(Block(config) for _ in range(config.n_coda))
        self.norm_out = RMSNorm(config.d_model)
        self.unembed = Matrix(config.d_model, config.vocab_size, group="unembed")
        if not self.embed.weight.is_meta:
            self.init_weights(seed)

    def forward(
        self, tokens_BT: Tensor, n_recur: int | None = None, cache: "KVCache | None" = None
    ) -> Tensor:
        """Logits of the next token, logits_BTV in fp32, within ±15; V = config.n_vocab.

        Args:
            n_recur: recurrences to run; None = as trained. Any other number changes the
                architecture.
            cache: keys and values of earlier positions (`looped.model.decoding.KVCache`).

        Raises:
            ConfigError: n_recur differs from the trained one and the variant does not support it.
        """
        return self.logits(self.hidden(tokens_BT, n_recur, cache))

    def hidden(
        self, tokens_BT: Tensor, n_recur: int | None = None, cache: "KVCache | None" = None
    ) -> Tensor:
        """Input x_BTD of the unembedding. Arguments as in `forward`."""
        n_recur, loops = self._recurrences(n_recur), VARIANTS[self.config.variant].loops
        first_with_grad = max(0, n_recur - (self.config.bptt or n_recur))
        backend, rotary = self._backend(), self._rotary(tokens_BT, cache)

        def run(part: str, x_BTD: Tensor, step: int = 0) -> Tensor:
            for index, block in enumerate(getattr(self, part)):
                slot = None if cache is None else cache.slot(part, index, step)
                x_BTD = block(x_BTD, rotary, backend, slot)
            return x_BTD

        e_BTD = run("prelude", self.norm_embed(self.embed(tokens_BT)))
        state = self.variant.start(e_BTD)
        for step in range(n_recur):
            with torch.set_grad_enabled(torch.is_grad_enabled() and step >= first_with_grad):
                u_BTD = self.variant.read(state, e_BTD, step)
                h_BTD = run("loop", u_BTD, step)
                if loops:
                    h_BTD = self.norm_recur(h_BTD)
                state = self.variant.write(state, h_BTD, step)
        x_BTD = run("coda", self.variant.finish(state))
        return self.norm_out(x_BTD if loops else self.norm_recur(x_BTD))

    def logits(self, x_BTD: Tensor) -> Tensor:
        """15 tanh(W x / 15) of the hidden vectors, without the padding of the vocabulary."""
        # Dividing x is cheaper than dividing the logits. The product includes the padding, since
        # GPU kernels are fast for multiples of 64 only.
        scaled_BTV = self.unembed(x_BTD / SOFTCAP)[..., : self.config.n_vocab]
        return SOFTCAP * torch.tanh(scaled_BTV.to(x_BTD.dtype))

    def loss(self, rows_BT1: Tensor, reduction: str = "mean", n_recur: int | None = None) -> Tensor:
        """Cross-entropy of all tokens of a row but the first, in nats per token.

        Args:
            rows_BT1: rows of T + 1 tokens.
            reduction: `mean` over all tokens, or `none` for the loss per token [B, T].
            n_recur: recurrences to run; None = as trained.
        """
        x_BTD = self.hidden(rows_BT1[:, :-1], n_recur)
        targets_BT = rows_BT1[:, 1:].long()
        # Row by row, since the logits of a whole batch would be by far the largest tensors.
        rows = zip(x_BTD, targets_BT, strict=True)
        loss_BT = torch.stack([self.row_loss(x_TD, targets_T) for x_TD, targets_T in rows])
        return loss_BT if reduction == "none" else loss_BT.mean()

    def row_loss(self, x_TD: Tensor, targets_T: Tensor) -> Tensor:
        """Cross-entropy [T] of the targets of one row."""
        return F.cross_entropy(self.logits(x_TD), targets_T, reduction="none")

    @torch.no_grad()
    def init_weights(self, seed: int | torch.Generator = 0) -> None:
        """Draw the initial weights on the CPU, so that they are the same on every device.

            embedding                  normal, std 1
            query, key, value, out     uniform, std 1/√D
            MLP up                     uniform, std 1/√D
            MLP down                   uniform, std 1/√(4 D)
            unembedding                normal, std 0.001
            norms                      1
            injection, lanes           not random, see the variant

        The sphere optimiser keeps every matrix at its initial norm, so no matrix may start at zero
        (paper section 4).
        """
        rng = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        _draw(self.embed.weight, torch.Tensor.normal_, (0.0, 1.0), rng)
        for module in self.modules():
            if isinstance(module, RMSNorm):
                module.scale.fill_(1.0)
            elif isinstance(module, Matrix) and module is not self.unembed:
                limit = math.sqrt(3 / module.weight.shape[1])  # of a uniform with std 1/√fan-in
                _draw(module.weight, torch.Tensor.uniform_, (-limit, limit), rng)
        _draw(self.unembed.weight, torch.Tensor.normal_, (0.0, UNEMBED_STD), rng)
        self.variant.init_weights()

    def parameter_groups(self) -> dict[str, dict[str, nn.Parameter]]:
        """All parameters: optimiser group -> name -> parameter."""
        groups: dict[str, dict[str, nn.Parameter]] = {group: {} for group in GROUPS}
        for path, module in self.named_modules():
            own = dict(module.named_parameters(prefix=path, recurse=False))
            if own:
                groups[module.group].update(own)
        return groups

    def compile_blocks(self, **options: Any) -> None:
        """Compile the layers one by one, so that all layers share one compiled function.

        This saves time in runs of more than a few minutes. Options are those of `torch.compile`.
        """
        for blocks in (self.prelude, self.loop, self.coda):
            for block in blocks:
                block.compile(**options)
        self.row_loss = torch.compile(self.row_loss, **options)  # type: ignore[method-assign]

    @property
    def compute_dtype(self) -> torch.dtype:
        """Precision of keys and values: that of autocast if it is on, else of the parameters."""
        device = self.embed.weight.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
        return self.embed.weight.dtype

    def _backend(self) -> str:
        device = self.embed.weight.device
        return choose_backend(self.attention, device, self.compute_dtype, self.config.d_head)

    def _rotary(self, tokens_BT: Tensor, cache: "KVCache | None") -> Rotary:
        weight, time = self.embed.weight, tokens_BT.shape[1]
        if cache is None:
            positions = torch.arange(time, device=weight.device)
        else:
            positions = cache.positions(time)
        return rotary_tables(positions, self.config.d_head, weight.dtype)

    def _recurrences(self, n_recur: int | None) -> int:
        trained = self.config.n_recur
        if n_recur is None or n_recur == trained:
            return trained
        if not VARIANTS[self.config.variant].any_n_recur:
            raise ConfigError(
                f"n_recur: got {n_recur} for a model with variant {self.config.variant!r} and "
                f"n_recur={trained}, which is defined for the trained n_recur only; use None"
            )
        if n_recur < 1:
            raise ConfigError(f"n_recur: got {n_recur}, expected at least 1")
        return n_recur


def _draw(
    parameter: Tensor,
    distribution: Callable[..., Tensor],
    arguments: tuple[float, float],
    rng: torch.Generator,
) -> None:
    drawn = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
    parameter.copy_(distribution(drawn, *arguments, generator=rng))
