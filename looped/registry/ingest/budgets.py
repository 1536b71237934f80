"""Budgets and tokens from each other, and the budget cells that isoFLOP curves stand on.

A cell holds the runs of one nominal budget. Runs are a whole number of batches long, so that their
achieved FLOPs scatter a little around it.
"""

import numpy as np
import pandas as pd

from looped.errors import RecordError
from looped.registry.ingest.checks import numbers
from looped.registry.schema import BUDGET_TOLERANCE

WIDTH = 1 + 2 * BUDGET_TOLERANCE
"""Largest over smallest FLOPs of one cell; cells lie further apart than this."""


def spend(frame: pd.DataFrame, file) -> tuple[pd.DataFrame, list[str]]:
    """The rows with tokens and budgets where one follows from the other, and what was computed.

    Raises:
        RecordError: no tokens and nothing that they follow from; or budgets of the file that form
            no cells.
    """
    given = "budget" in frame and frame["budget"].notna().any()
    per_token = numbers(frame, "flops_per_token")
    notes = []
    frame = _fill(
        frame, "n_tokens", numbers(frame, "budget") / per_token, "budget / flops_per_token", notes
    )
    if "n_tokens" not in frame:
        raise RecordError(
            "no column of the training tokens, and no budget and model to compute them from",
            file=file,
            fix="Name it: --map n_tokens=COLUMN; or the budget, and describe the model (--set)",
        )
    tokens = numbers(frame, "n_tokens")
    frame = _fill(frame, "budget", tokens * per_token, "n_tokens x flops_per_token", notes)
    return _in_cells(frame, given, file, notes), notes


def _fill(frame, name, values, how, notes) -> pd.DataFrame:
    """Fill in a column where it is missing; a value that is no number is left to be refused."""
    present = frame[name] if name in frame else pd.Series(np.nan, index=frame.index)
    filled = present.isna() & values.notna()
    if not filled.any():
        return frame
    notes.append(f"computed: {name} = {how} in {filled.sum()} of {len(frame)} rows")
    return frame.assign(**{name: present.where(~filled, values)})


def _in_cells(frame, given, file, notes) -> pd.DataFrame:
    budgets = numbers(frame, "budget").where(lambda budget: budget > 0).dropna().sort_values()
    cells = (budgets / budgets.shift(1) > WIDTH).cumsum()
    scattered = [group for _, group in budgets.groupby(cells) if group.nunique() > 1]
    if not scattered:
        return frame
    wide = next((group for group in scattered if group.max() / group.min() > WIDTH), None)
    if wide is not None and given:
        raise RecordError(
            f"budgets from {wide.min():.4g} to {wide.max():.4g} FLOPs of {len(wide)} rows lie "
            f"within {WIDTH - 1:.0%} of the next, and span more: which form a cell is ambiguous",
            file=file,
            fix="Give nominal budgets, the same for all runs of a cell (--map budget=COLUMN), or "
            "none (--map budget=-)",
        )
    if wide is not None:
        notes.append("left out: budget, since the achieved FLOPs form no cells; give nominal ones")
        return frame.drop(columns="budget")
    nominal = pd.concat([pd.Series(_nominal(group), group.index) for group in scattered])
    notes.append(
        f"computed: {len(scattered)} nominal budgets from the FLOPs of {len(nominal)} rows, which "
        f"cluster within {_spread(scattered):.2%}: "
        f"{', '.join(f'{budget:.6g}' for budget in nominal.unique())}"
    )
    return frame.assign(budget=nominal.reindex(frame.index).fillna(frame["budget"]))


def _nominal(group) -> float:
    """The middle in logarithm to three digits, or to six where a run would be too far from it."""
    middle = np.sqrt(group.min() * group.max())
    rounded = float(f"{middle:.3g}")
    near = ((group / rounded - 1).abs() <= BUDGET_TOLERANCE).all()
    return rounded if near else float(f"{middle:.6g}")


def _spread(groups) -> float:
    return max(group.max() / group.min() - 1 for group in groups)
