"""Compute budgets and tokens from each other, and group achieved FLOPs into isoFLOP cells.

A cell is the set of runs at one nominal budget. Runs are whole numbers of batches, so their
achieved FLOPs scatter slightly around the nominal budget.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from looped.errors import RecordError
from looped.registry.rules import numbers
from looped.registry.schema import BUDGET_TOLERANCE

WIDTH = 1 + 2 * BUDGET_TOLERANCE
"""Largest ratio of the FLOPs in one cell; FLOPs of different cells differ by more."""


def spend(frame: pd.DataFrame, file: Path) -> tuple[pd.DataFrame, list[str]]:
    """The rows with tokens and budgets, each computed from the other if missing, and notes.

    Raises:
        RecordError: tokens that are missing and cannot be computed, or budgets of the file that
            form no cells.
    """
    in_file = "budget" in frame and frame["budget"].notna().any()
    per_token = numbers(frame, "flops_per_token")
    tokens = numbers(frame, "budget") / per_token
    frame, notes = _fill(frame, "n_tokens", tokens, "budget / flops_per_token")
    if "n_tokens" not in frame:
        raise RecordError(
            "no column of the training tokens, and no budget and model to compute them from",
            file=file,
            fix="Name it: --map n_tokens=COLUMN; or the budget, and describe the model (--set)",
        )
    budget = numbers(frame, "n_tokens") * per_token
    frame, more = _fill(frame, "budget", budget, "n_tokens x flops_per_token")
    frame, cells = _in_cells(frame, in_file, file)
    return frame, notes + more + cells


def _fill(
    frame: pd.DataFrame, name: str, values: pd.Series, formula: str
) -> tuple[pd.DataFrame, list[str]]:
    """Fill the missing values of a column; text stays, and `validate` refuses it."""
    present = frame[name] if name in frame else pd.Series(np.nan, index=frame.index)
    filled = present.isna() & values.notna()
    if not filled.any():
        return frame, []
    note = f"computed: {name} = {formula} in {filled.sum()} of {len(frame)} rows"
    return frame.assign(**{name: present.where(~filled, values)}), [note]


def _in_cells(frame: pd.DataFrame, in_file: bool, file: Path) -> tuple[pd.DataFrame, list[str]]:
    """The rows with one nominal budget per cell; without cells, budgets that were computed go."""
    budgets = numbers(frame, "budget").where(lambda budget: budget > 0).dropna().sort_values()
    cell = (budgets / budgets.shift(1) > WIDTH).cumsum()
    scattered = [group for _, group in budgets.groupby(cell) if group.nunique() > 1]
    if not scattered:
        return frame, []
    widest = max(scattered, key=_ratio)
    if _ratio(widest) > WIDTH and in_file:
        raise RecordError(
            f"budgets from {widest.min():.4g} to {widest.max():.4g} FLOPs of {len(widest)} rows "
            f"form ambiguous cells: neighbours lie within {WIDTH - 1:.0%}, but the ends do not",
            file=file,
            fix="Give nominal budgets, the same for all runs of a cell (--map budget=COLUMN), or "
            "none (--map budget=-)",
        )
    if _ratio(widest) > WIDTH:
        note = "left out: budget, since the achieved FLOPs form no cells; give nominal ones"
        return frame.drop(columns="budget"), [note]
    nominal = pd.concat([pd.Series(_nominal(group), group.index) for group in scattered])
    note = (
        f"computed: {len(scattered)} nominal budgets from the FLOPs of {len(nominal)} rows, which "
        f"cluster within {_ratio(widest) - 1:.2%}: "
        f"{', '.join(f'{budget:.6g}' for budget in nominal.unique())}"
    )
    return frame.assign(budget=nominal.reindex(frame.index).fillna(frame["budget"])), [note]


def _ratio(budgets: pd.Series) -> float:
    return float(budgets.max() / budgets.min())


def _nominal(budgets: pd.Series) -> float:
    """Geometric mean of the ends, to three digits, or to six if a run is then too far from it."""
    middle = np.sqrt(budgets.min() * budgets.max())
    rounded = float(f"{middle:.3g}")
    near = ((budgets / rounded - 1).abs() <= BUDGET_TOLERANCE).all()
    return rounded if near else float(f"{middle:.6g}")
