"""How well a model continues texts: nats per token of the continuation, and whether it is greedy.

Tokens are split as lm-eval splits them: spaces at the end of the context go to the continuation;
context and whole text are encoded, and what the whole text has beyond the context's number of
tokens is the continuation. Where a token spans both, that rule leaves it to the context; a
continuation with no token left is refused. Every text begins with BOS, as every document of a
corpus does. What does not fit the model is cut from the left of the context, after BOS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from looped.data.tokenizer import token_ids
from looped.evaluate.primitives import Example
from looped.model.looped_lm import LoopedLM

Pair = tuple[list[int], list[int]]
"""Tokens of a context, BOS first, and of its continuation."""

BATCH_ROWS = 32


@dataclass(frozen=True)
class Scored:
    """What a model gives to one continuation."""

    nats: np.ndarray  # [T], -log p of each token of the continuation
    greedy: bool  # whether each of them is the likeliest
    n_cut: int  # tokens of the context that were left out, since they did not fit


def encode_pairs(tokenizer, bos: int, examples: Sequence[Example]) -> list[Pair]:
    """Tokens of contexts and continuations.

    Raises:
        ValueError: a continuation that has no token of its own.
    """
    contexts = [example.context.rstrip() for example in examples]
    wholes = [example.context + example.continuation for example in examples]
    encoded = zip(token_ids(tokenizer, contexts), token_ids(tokenizer, wholes), strict=True)
    pairs = [([bos, *context], whole[len(context) :]) for context, whole in encoded]
    for (_, continuation), example in zip(pairs, examples, strict=True):
        if not continuation:
            raise ValueError(
                f"continuation: {example.continuation!r} after {example.context[-20:]!r} has no "
                "token of its own; begin it with a space, or end the context elsewhere"
            )
    return pairs


@torch.no_grad()
def score(
    model: LoopedLM,
    pairs: Sequence[Pair],
    batch_rows: int = BATCH_ROWS,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Scored]:
    """Score continuations, in the precision of the model's weights.

    Args:
        batch_rows: pairs in one pass; the result does not depend on it but for rounding.
        progress: is told how many are done.

    Raises:
        ValueError: an empty context or continuation, or a continuation that does not fit.
    """
    seq_len = model.config.seq_len
    fitted = [_fit(context, continuation, seq_len) for context, continuation in pairs]
    # Rows of like length together, so that little is padded.
    order = sorted(range(len(pairs)), key=lambda i: -sum(map(len, fitted[i])))
    found = [None] * len(pairs)
    for start in range(0, len(order), batch_rows):
        index = order[start : start + batch_rows]
        scored = _score_batch(model, [fitted[i] for i in index])
        for i, (nats, greedy) in zip(index, scored, strict=True):
            found[i] = Scored(nats, greedy, len(pairs[i][0]) - len(fitted[i][0]))
        progress(start + len(index))
    return found


def _fit(context, continuation, seq_len) -> Pair:
    """The pair, with the context cut from the left, after its first token, to seq_len inputs."""
    if not context or not continuation:
        raise ValueError(f"pairs: got {len(context)} and {len(continuation)} tokens, expected some")
    room = seq_len + 1 - len(continuation)
    if room < 1:
        raise ValueError(
            f"continuation: {len(continuation)} tokens do not fit the model's {seq_len}; shorten it"
        )
    if len(context) <= room:
        return context, continuation
    return context[:1] + context[len(context) - room + 1 :], continuation


def _score_batch(model, pairs) -> list[tuple[np.ndarray, bool]]:
    """Rows padded on the right, where causal attention does not look."""
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
