"""The move of the compute-optimal width under a change, and its cost at inference."""

from collections.abc import Callable

import pandas as pd

from looped import accounting
from looped.errors import ConfigError
from looped.registry.cells import CELL
from looped.registry.stacks import stack_of

RATIOS = ("d_model", "n_params", "inference_flops_per_token", "kv_cache_bytes_per_token")
"""Of the variant's isoFLOP minimum to the baseline's."""


def width_shift(cells: pd.DataFrame, baseline: pd.DataFrame, variant: pd.DataFrame) -> pd.DataFrame:
    """The variant's isoFLOP minimum over the baseline's, one row a looped cell.

    Args:
        cells: of `at_baseline_optimum`, without refused ones.
        baseline: its runs; its architecture follows from their columns.
        variant: likewise.

    Returns:
        n_recur, budget, the ratios of RATIOS (missing where the accounting does not know the
        architecture), gain (loss at the baseline's width minus that at the variant's own minimum,
        nats per token).
    """
    table = cells[CELL].assign(
        d_model=cells["d_model_star_variant"] / cells["d_model_star_baseline"],
        n_params=cells["n_params_star_variant"] / cells["n_params_star_baseline"],
    )
    for name in RATIOS[2:]:
        count = getattr(accounting, name)
        table[name] = _at_optimum(count, cells, variant, "variant") / _at_optimum(
            count, cells, baseline, "baseline"
        )
    return table.assign(gain=cells["val_loss_variant"] - cells["val_loss_star_variant"])


def _at_optimum(count: Callable, cells: pd.DataFrame, runs: pd.DataFrame, name: str) -> pd.Series:
    """A count per token at each cell's optimal width; missing for an unknown architecture."""
    values = pd.Series(float("nan"), index=cells.index)
    for n_recur, rows in cells.groupby("n_recur"):
        try:
            config = stack_of(runs, n_recur)
        except ConfigError:
            continue
        values[rows.index] = count(config, rows[f"d_model_star_{name}"].to_numpy())
    return values
