"""Which rows a step reads: a function of the step and the seed, whatever the number of ranks.

The rows of epoch e are in the order of a permutation that the seed and e decide. Batches follow
each other without a gap and run over the end of an epoch into the next one.
"""

from functools import lru_cache

import numpy as np


def batch_indices(n_rows: int, batch_rows: int, step: int, seed: int) -> np.ndarray:
    """Rows of the global batch of a step, counted from 0: indices [batch_rows] below n_rows.

    Raises:
        ValueError: no rows, an empty batch, or a negative step or seed.
    """
    if n_rows < 1 or batch_rows < 1 or step < 0 or seed < 0:
        raise ValueError(
            f"n_rows, batch_rows, step, seed: got {n_rows}, {batch_rows}, {step}, {seed}, "
            "expected at least 1, 1, 0, 0"
        )
    first, end = step * batch_rows, (step + 1) * batch_rows
    parts = []
    while first < end:
        epoch, place = divmod(first, n_rows)
        last = min(n_rows, place + end - first)
        parts.append(_epoch_order(n_rows, epoch, seed)[place:last])
        first += last - place
    return np.concatenate(parts)


def rank_part(indices: np.ndarray, rank: int, world_size: int) -> np.ndarray:
    """The contiguous part of a global batch that a rank reads.

    Raises:
        ValueError: a batch that the ranks cannot share equally, or a rank that is none of them.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank: got {rank}, expected 0 to {world_size - 1}")
    if len(indices) % world_size:
        raise ValueError(
            f"batch_rows: got {len(indices)} rows for {world_size} ranks; "
            "use a number of ranks that divides it"
        )
    size = len(indices) // world_size
    return indices[rank * size : (rank + 1) * size]


@lru_cache(maxsize=2)  # the current epoch's, and the next one's across the border
def _epoch_order(n_rows: int, epoch: int, seed: int) -> np.ndarray:
    order = np.random.default_rng([seed, epoch]).permutation(n_rows)
    order.flags.writeable = False
    return order
