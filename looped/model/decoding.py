"""Decoding with a cache of keys and values.

A looped model may keep the keys of fewer recurrences than it runs: recurrence t of a layer reads
and writes slot t mod kept (arXiv 2502.05171, section 6.2), so with kept = 1 a token attends to
what the last recurrence left of the tokens before it. kept = n_recur is exact.

Shapes: B prompts, T time, H heads, K d_head; S slots: prelude, kept times the loop block, coda.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from looped.config import require_whole
from looped.model.looped_lm import LoopedLM


class KVCache:
    """Keys and values of the tokens seen so far, [S, B, T, H, K] each.

    Rows may be of unequal length: `lengths` holds how many tokens of each row count, what lies
    beyond is overwritten by the row's next tokens.

    Args:
        kept: recurrences kept of each layer of the loop; None = all n_recur.

    Raises:
        ValueError: kept outside 1 to n_recur.
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
        like = {"device": model.embed.weight.device, "dtype": model.compute_dtype}
        self.keys, self.values = torch.zeros(shape, **like), torch.zeros(shape, **like)
        self.lengths = torch.zeros(n_rows, dtype=torch.long, device=like["device"])
        self.longest = 0

    @property
    def bytes_per_token(self) -> float:
        """Memory per token of context."""
        _, rows, tokens, _, _ = self.keys.shape
        return (self.keys.nbytes + self.values.nbytes) / (rows * tokens)

    def positions(self, n_new: int):
        """Positions of the next `n_new` tokens of each row, [B, T]."""
        return self.lengths[:, None] + torch.arange(n_new, device=self.lengths.device)

    def slot(self, part: str, index: int, step: int) -> "_Slot":
        """Where layer `index` of a part keeps its keys in recurrence `step`."""
        return _Slot(self, self.first[part] + step % self.kept * self.n_loop + index)

    def advance(self, counts: Sequence[int]) -> None:
        """Count the first `counts` of the tokens just run as seen, one number a row."""
        self.lengths += torch.tensor(counts, device=self.lengths.device)
        self.longest = int(self.lengths.max())


class _Slot:
    """Keys and values of one layer in one recurrence."""

    def __init__(self, cache, index):
        self.cache, self.keys, self.values = cache, cache.keys[index], cache.values[index]

    def attend(self, q_BTHK, k_BTHK, v_BTHK):
        """Store the new keys, and attend to all up to each query's position. Returns o_BTHK."""
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
    """The `n_new` tokens that follow each prompt; prompts may differ in length.

    Args:
        temperature: 0 takes the likeliest token, otherwise logits / temperature are sampled.
        top_k: sample among the k likeliest tokens only.
        kept: recurrences whose keys are kept; None = all, which is exact.
        n_recur: recurrences to run; None = as trained.

    Raises:
        ValueError: an empty prompt, more tokens than the context holds, or an option out of range.
    """
    prompts = [list(prompt) for prompt in prompts]
    _check(model, prompts, n_new, temperature, top_k)
    device = model.embed.weight.device
    lengths = [len(prompt) for prompt in prompts]
    padded = [prompt + [0] * (max(lengths) - len(prompt)) for prompt in prompts]
    rng = torch.Generator().manual_seed(seed)
    cache = KVCache(model, len(prompts), max(lengths) + n_new, kept, n_recur)
    new, tokens_BT = [[] for _ in prompts], torch.tensor(padded, device=device)
    with torch.compiler.set_stance("force_eager"):  # each token would be a new shape to compile
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


def _choose(logits_BV, temperature, top_k, rng):
    if temperature == 0:
        return logits_BV.argmax(dim=-1)
    scaled_BV = logits_BV.cpu() / temperature  # on the CPU, for one stream of random numbers
    if top_k is not None:
        least_B1 = scaled_BV.topk(min(top_k, scaled_BV.shape[-1])).values[:, -1:]
        scaled_BV = scaled_BV.masked_fill(scaled_BV < least_B1, -torch.inf)
    return torch.multinomial(scaled_BV.softmax(dim=-1), 1, generator=rng)[:, 0]


def _check(model, prompts, n_new, temperature, top_k):
    require_whole("n_new", n_new, 1)
    if top_k is not None:
        require_whole("top_k", top_k, 1)
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature: got {temperature!r}, expected a number of at least 0")
    if not prompts or not all(prompts):
        raise ValueError("prompts: expected at least one, each of at least one token")
    config = model.config
    if wrong := [t for prompt in prompts for t in prompt if not 0 <= t < config.n_vocab]:
        raise ValueError(f"prompts: got token {wrong[0]}, expected 0 to {config.n_vocab - 1}")
    longest = max(len(prompt) for prompt in prompts)
    if longest + n_new > config.seq_len:
        raise ValueError(
            f"prompts: {longest} tokens and {n_new} new ones do not fit the context of "
            f"{config.seq_len}; shorten the prompt or ask for fewer"
        )
