"""Decoding with a cache of keys and values.

A looped model may cache the keys of fewer recurrences than it runs: recurrence t of a layer reads
and writes slot t mod kept (arXiv 2502.05171, section 6.2). With kept = 1, a token attends to the
last recurrence of the earlier tokens. kept = n_recur is exact.

Shapes: B prompts, T time, H heads, K d_head; S slots: prelude, kept times the loop block, coda.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from looped.config import require_whole
from looped.model.looped_lm import LoopedLM


class KVCache:
    """Keys and values of the tokens so far, [S, B, T, H, K] each.

    Rows may differ in length: `lengths` holds the number of valid tokens of each row. The next
    tokens of a row overwrite what lies beyond.

    Args:
        n_rows: number of prompts.
        n_tokens: largest number of tokens of a row.
        kept: recurrences that each layer of the loop caches; None = all n_recur.
        n_recur: recurrences to run; None = as trained.

    Raises:
        ValueError: kept is not within 1 to n_recur.
    """

    def __init__(
        self,
        model: LoopedLM,
        n_rows: int,
        n_tokens: int,
        kept: int | None = None,
        n_recur: int | None = None,
    ):
        config = model.config
        n_recur = config.n_recur if n_recur is None else n_recur
        self.kept = n_recur if kept is None else kept
        if not 1 <= self.kept <= n_recur:
            raise ValueError(f"kept: got {kept} recurrences, expected 1 to n_recur={n_recur}")
        loop = self.kept * config.n_loop
        self.first = {
            "prelude": 0,
            "loop": config.n_prelude,
            "coda": config.n_prelude + loop,
        }
        self.n_loop = config.n_loop
        n_slots = config.n_prelude + loop + config.n_coda
        shape = (n_slots, n_rows, n_tokens, config.n_heads, config.d_head)
        device, dtype = model.embed.weight.device, model.compute_dtype
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.lengths = torch.zeros(n_rows, dtype=torch.long, device=device)
        self.longest = 0

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token of context."""
        _, rows, tokens, _, _ = self.keys.shape
        return (self.keys.nbytes + self.values.nbytes) / (rows * tokens)

    def positions(self, n_new: int) -> Tensor:
        """Positions [B, T] of the next `n_new` tokens of each row."""
        return self.lengths[:, None] + torch.arange(n_new, device=self.lengths.device)

    def slot(self, part: str, index: int, step: int) -> "Slot":
        """The slot of layer `index` of a part in recurrence `step`."""
        return Slot(self, self.first[part] + step % self.kept * self.n_loop + index)

    def advance(self, counts: Sequence[int]) -> None:
        """Mark the first counts[b] of the new tokens of each row b as valid."""
        self.lengths += torch.tensor(counts, device=self.lengths.device)
        self.longest = int(self.lengths.max())


class Slot:
    """Keys and values of one layer in one recurrence."""

    def __init__(self, cache: KVCache, index: int):
        self.cache, self.keys, self.values = cache, cache.keys[index], cache.values[index]

    def attend(self, q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor) -> Tensor:
        """Store keys and values; o_BTHK attends to all positions up to that of each query."""
        n_new = q_BTHK.shape[1]
        positions_BT = self.cache.positions(n_new)
        rows_B1 = torch.arange(len(positions_BT), device=positions_BT.device)[:, None]
        self.keys[rows_B1, positions_BT] = k_BTHK
        self.values[rows_B1, positions_BT] = v_BTHK
        end = self.cache.longest + n_new
        seen = torch.arange(end, device=positions_BT.device) <= positions_BT[:, :, None]
        o_BHTK = F.scaled_dot_product_attention(
            q_BTHK.transpose(1, 2),
            self.keys[:, :end].transpose(1, 2),
            self.values[:, :end].transpose(1, 2),
            attn_mask=seen[:, None],
        )
        return o_BHTK.transpose(1, 2)


@torch.no_grad()
def generate(
    model: LoopedLM,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
    kept: int | None = None,
    n_recur: int | None = None,
) -> list[list[int]]:
    """The next `n_new` tokens of each prompt; prompts may differ in length.

    Args:
        temperature: 0 takes the most likely token, otherwise logits / temperature are sampled.
        top_k: sample among the k most likely tokens only; None = all.
        seed: seed of the sampling.
        kept: recurrences whose keys are cached; None = all, which is exact.
        n_recur: recurrences to run; None = as trained.

    Raises:
        ValueError: an empty prompt, more tokens than seq_len, or an option out of range.
    """
    rows = [list(prompt) for prompt in prompts]
    _check(model, rows, n_new, temperature, top_k)
    device = model.embed.weight.device
    lengths = [len(row) for row in rows]
    padded = [row + [0] * (max(lengths) - len(row)) for row in rows]
    rng = torch.Generator().manual_seed(seed)
    cache = KVCache(model, len(prompts), max(lengths) + n_new, kept, n_recur)
    new: list[list[int]] = [[] for _ in prompts]
    tokens_BT = torch.tensor(padded, device=device)
    with torch.compiler.set_stance("force_eager"):  # every length would be compiled again
        while len(new[0]) < n_new:
            x_BTD = model.hidden(tokens_BT, n_recur, cache)
            cache.advance(lengths)
            last = torch.tensor(lengths, device=device) - 1
            x_B1D = x_BTD[torch.arange(len(prompts), device=device), last][:, None]
            chosen_B = _choose(model.logits(x_B1D)[:, 0], temperature, top_k, rng)
            for row, token in zip(new, chosen_B.tolist(), strict=True):
                row.append(token)
            lengths, tokens_BT = [1] * len(prompts), chosen_B[:, None].to(device)
    return new


def _choose(
    logits_BV: Tensor, temperature: float, top_k: int | None, rng: torch.Generator
) -> Tensor:
    if temperature == 0:
        return logits_BV.argmax(dim=-1)
    scaled_BV = logits_BV.cpu() / temperature  # on the CPU, for one stream of random numbers
    if top_k is not None:
        least_B1 = scaled_BV.topk(min(top_k, scaled_BV.shape[-1])).values[:, -1:]
        scaled_BV = scaled_BV.masked_fill(scaled_BV < least_B1, -torch.inf)
    return torch.multinomial(scaled_BV.softmax(dim=-1), 1, generator=rng)[:, 0]


def _check(
    model: LoopedLM, prompts: list[list[int]], n_new: int, temperature: float, top_k: int | None
) -> None:
    require_whole("n_new", n_new, 1)
    if top_k is not None:
        require_whole("top_k", top_k, 1)
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature: got {temperature!r}, expected a number of at least 0")
    if not prompts or not all(prompts):
        raise ValueError("prompts: expected one or more prompts of at least one token")
    config = model.config
    if wrong := [t for prompt in prompts for t in prompt if not 0 <= t < config.n_vocab]:
        raise ValueError(f"prompts: got token {wrong[0]}, expected 0 to {config.n_vocab - 1}")
    longest = max(len(prompt) for prompt in prompts)
    if longest + n_new > config.seq_len:
        raise ValueError(
            f"prompts: got {longest} tokens and n_new={n_new}, expected at most "
            f"{config.seq_len} tokens in total; shorten the prompt or reduce n_new"
        )
