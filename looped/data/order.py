"""The rows that a step reads: a function of step and seed, independent of the number of ranks.

Each epoch reads the rows in the order of a permutation that depends on seed and epoch. Batches
follow each other without a gap; a batch can contain the end of one epoch and the start of the next.
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
    indices = []
    while first < end:
        epoch, start = divmod(first, n_rows)
        stop = min(n_rows, start + end - first)
        indices.append(_epoch_order(n_rows, epoch, seed)[start:stop])
        first += stop - start
    return np.concatenate(indices)


def rank_part(indices: np.ndarray, rank: int, world_size: int) -> np.ndarray:
    """The contiguous part of a global batch that a rank reads.

    Raises:
        ValueError: a batch that the ranks cannot share equally, or a rank out of range.
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


@lru_cache(maxsize=2)  # of the current epoch, and of the next one for a batch that spans both
def _epoch_order(n_rows: int, epoch: int, seed: int) -> np.ndarray:
    order = np.random.default_rng([seed, epoch]).permutation(n_rows)
    order.flags.writeable = False
    return order
