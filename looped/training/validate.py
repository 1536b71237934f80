"""Validation loss over the whole split, with its standard error over rows."""

import math

import numpy as np
import torch

from looped.training.distributed import Ranks


def to_tokens(rows: np.ndarray, device: torch.device) -> torch.Tensor:
    """Rows of a corpus as the model reads them."""
    return torch.from_numpy(rows.astype(np.int64)).to(device)


@torch.no_grad()
def validate(model, rows, ranks: Ranks, n_recur: int | None = None, batch_rows: int = 8):
    """Mean loss over all rows of a split and its standard error, in fp32.

    Args:
        model: `LoopedLM`, the same on all ranks.
        rows: a split of a corpus; rank k of n evaluates rows k, k + n, ...
        n_recur: recurrences to evaluate with; None = as trained.
        batch_rows: rows in one pass.

    Returns:
        (loss, standard error of the mean over rows), nats per token. All rows have the same
        number of tokens, so the mean over rows is the mean over tokens.
    """
    attention, model.attention = model.attention, "auto"  # most backends have no fp32
    own = np.arange(ranks.rank, len(rows), ranks.world_size)
    losses = torch.zeros(len(rows), dtype=torch.float64, device=ranks.device)
    for start in range(0, len(own), batch_rows):
        index = own[start : start + batch_rows]
        batch = to_tokens(rows.rows(index), ranks.device)
        per_token = model.loss(batch, reduction="none", n_recur=n_recur)
        losses[torch.from_numpy(index).to(ranks.device)] = per_token.double().mean(dim=1)
    model.attention = attention
    losses = ranks.sum(losses)  # every row once, so the same sum whatever the number of ranks
    return losses.mean().item(), losses.std().item() / math.sqrt(len(losses))
