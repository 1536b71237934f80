"""Validation loss over the whole validation split, with its standard error over rows."""

import math
from typing import Protocol

import numpy as np
import torch

from looped.model.looped_lm import LoopedLM
from looped.training.distributed import Ranks


class Rows(Protocol):
    """A split of a corpus: rows of equal length."""

    def __len__(self) -> int: ...
    def rows(self, index: np.ndarray) -> np.ndarray: ...


def to_tokens(rows: np.ndarray, device: torch.device) -> torch.Tensor:
    """Rows of a corpus as model input: int64 on the device."""
    return torch.from_numpy(rows.astype(np.int64)).to(device)


@torch.no_grad()
def validate(
    model: LoopedLM, rows: Rows, ranks: Ranks, n_recur: int | None = None, batch_rows: int = 8
) -> tuple[float, float]:
    """Mean loss over all rows of a split and its standard error, in fp32.

    Args:
        model: the same weights on all ranks.
        rows: a split of a corpus; rank k of n evaluates rows k, k + n, ...
        n_recur: recurrences to run; None = as trained.
        batch_rows: rows per pass.

    Returns:
        (loss, standard error of the mean over rows), nats per token. All rows have the same
        number of tokens, so the mean over rows is the mean over tokens.
    """
    attention, model.attention = model.attention, "auto"  # most backends do not support fp32
    own = np.arange(ranks.rank, len(rows), ranks.world_size)
    losses = torch.zeros(len(rows), dtype=torch.float64, device=ranks.device)
    for start in range(0, len(own), batch_rows):
        index = own[start : start + batch_rows]
        batch = to_tokens(rows.rows(index), ranks.device)
        per_token = model.loss(batch, reduction="none", n_recur=n_recur)
        losses[torch.from_numpy(index).to(ranks.device)] = per_token.double().mean(dim=1)
    model.attention = attention
    losses = ranks.sum(losses)  # one rank per row, so the sum does not depend on the ranks
    return losses.mean().item(), losses.std().item() / math.sqrt(len(losses))
