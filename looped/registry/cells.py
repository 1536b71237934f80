"""Cells of a table of runs, (n_recur, budget), and the noise between seeds."""

import numpy as np
import pandas as pd

from looped.errors import require

CELL = ["n_recur", "budget"]


def cell_numbers(runs: pd.DataFrame) -> np.ndarray:
    """For each run, the number of its (n_recur, budget) cell, [n].

    Raises:
        ValueError: a run without either, or a cell that holds the runs of several cases.
    """
    require(runs, CELL, "an isoFLOP cell")
    if "case" in runs and (runs.groupby(CELL)["case"].nunique() > 1).any():
        raise ValueError("a cell holds the runs of several cases; choose one case")
    return runs.groupby(CELL).ngroup().to_numpy()


def seed_noise(runs: pd.DataFrame, repeated: pd.DataFrame) -> pd.DataFrame:
    """How far runs of one spec lie apart that differ in their seed, one row a spec.

    Args:
        runs: table of runs.
        repeated: further seeds of some of them.

    Returns:
        budget, n_recur, d_model, seeds (how many), mean and sd of val_loss (nats per token); specs
        of a single seed are left out.
    """
    key = ["budget", "n_recur", "d_model"]
    both = pd.concat([runs.merge(repeated[key].drop_duplicates(), on=key), repeated])
    found = both.groupby(key)["val_loss"].agg(seeds="size", mean="mean", sd="std").reset_index()
    return found[found["seeds"] > 1].reset_index(drop=True)


def pooled_sd(noise: pd.DataFrame) -> float:
    """One standard deviation of all specs of `seed_noise`, weighted by degrees of freedom."""
    return float(np.sqrt(np.average(noise["sd"] ** 2, weights=noise["seeds"] - 1)))
