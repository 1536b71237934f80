"""Loss of continuations in nats per token, and whether greedy decoding gives them.

Tokens are split as in lm-eval. Spaces at the end of the context belong to the continuation. The
context and the whole text are encoded separately; the continuation is the tokens of the whole text
after as many tokens as the context has. A token that spans both therefore belongs to the context;
a continuation without any token is refused. Every text begins with BOS, like every document of a
corpus. A context that is too long for the model is cut from the left, after BOS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from looped.data.tokenizer import token_ids
from looped.evaluate.primitives import Example
from looped.model.looped_lm import LoopedLM

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Pair = tuple[list[int], list[int]]
"""Tokens of a context, BOS first, and of its continuation."""

BATCH_ROWS = 32


@dataclass(frozen=True)
class Scored:
    """Score of one continuation."""

    nats: np.ndarray  # [T], -log p of each token of the continuation
    greedy: bool  # whether every token is the most likely one
    n_cut: int  # tokens of the context that were cut because they did not fit


def encode_pairs(tokenizer: "Tokenizer", bos: int, examples: Sequence[Example]) -> list[Pair]:
    """Tokens of contexts and continuations.

    Args:
        bos: id of the token that begins every text.

    Raises:
        ValueError: a continuation without any token, since its tokens all span the context too.
    """
    contexts = [example.context.rstrip() for example in examples]
    wholes = [example.context + example.continuation for example in examples]
    encoded = zip(token_ids(tokenizer, contexts), token_ids(tokenizer, wholes), strict=True)
    pairs = [([bos, *context], whole[len(context) :]) for context, whole in encoded]
    for (_, continuation), example in zip(pairs, examples, strict=True):
        if not continuation:
            raise ValueError(
                f"continuation: {example.continuation!r} after {example.context[-20:]!r} has no "
                "token that is not part of the context; begin it with a space, or end the context "
                "elsewhere"
            )
    return pairs


@torch.no_grad()
def score(
    model: LoopedLM,
    pairs: Sequence[Pair],
    batch_rows: int = BATCH_ROWS,
    progress: Callable[[int, int], None] | None = None,
) -> list[Scored]:
    """Scores of continuations, computed in the precision of the model's weights.

    Args:
        batch_rows: pairs in one pass; it affects the result only by rounding.
        progress: called after each pass with (done, total), in pairs.

    Raises:
        ValueError: an empty context or continuation, or a continuation that does not fit.
    """
    seq_len = model.config.seq_len
    fitted = [_fit(context, continuation, seq_len) for context, continuation in pairs]
    # Batches of rows of similar length need little padding.
    order = sorted(range(len(pairs)), key=lambda i: -sum(map(len, fitted[i])))
    scores: dict[int, Scored] = {}
    for start in range(0, len(order), batch_rows):
        index = order[start : start + batch_rows]
        scored = _score_batch(model, [fitted[i] for i in index])
        for i, (nats, greedy) in zip(index, scored, strict=True):
            scores[i] = Scored(nats, greedy, len(pairs[i][0]) - len(fitted[i][0]))
        if progress:
            progress(len(scores), len(pairs))
    return [scores[i] for i in range(len(pairs))]


def _fit(context: list[int], continuation: list[int], seq_len: int) -> Pair:
    """The pair, its context cut from the left, after its first token, to seq_len inputs."""
    if not context or not continuation:
        raise ValueError(
            f"pairs: got {len(context)} and {len(continuation)} tokens, expected at least 1 each"
        )
    room = seq_len + 1 - len(continuation)
    if room < 1:
        raise ValueError(
            f"continuation: {len(continuation)} tokens do not fit the model's {seq_len}; shorten it"
        )
    if len(context) <= room:
        return context, continuation
    return context[:1] + context[len(context) - room + 1 :], continuation


def _score_batch(model: LoopedLM, pairs: list[Pair]) -> list[tuple[np.ndarray, bool]]:
    """Losses and greedy flags; rows are padded on the right, which causal attention ignores."""
    rows = [(context + continuation)[:-1] for context, continuation in pairs]
    longest = max(map(len, rows))
    device = model.embed.weight.device
    tokens_BT = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=device)
    scored = []
    for x_TD, (context, continuation) in zip(model.hidden(tokens_BT), pairs, strict=True):
        first = len(context) - 1
        logits_TV = model.logits(x_TD[first : first + len(continuation)])
        targets_T1 = torch.tensor(continuation, device=device)[:, None]
        log_p = logits_TV.log_softmax(dim=-1)
        nats = -log_p.gather(1, targets_T1)[:, 0]
        greedy = bool((log_p.argmax(dim=-1) == targets_T1[:, 0]).all())
        scored.append((nats.double().cpu().numpy(), greedy))
    return scored
