"""Where a change of the loss at equal FLOPs comes from.

In each (budget, r) cell both cases are compared at one width: that of the baseline's isoFLOP
minimum. There the change that was measured (between both parabolas) is the sum of

    tokens     the variant trains on a different D for the same FLOPs
    capacity   its effective parameters differ: by φ, and by the parameters that it stores
    rest       E, A, B, α and β of its fit differ
    misfit     the remainder: neither law is exact

The first three are Shapley values over the orders in which they can be exchanged in the joint law.
No order is preferred, and they add up to the change that the two laws predict. The method belongs
to this project; the paper argues in words (section 6).
"""

import itertools

import numpy as np
import pandas as pd

from looped.errors import NoMinimum
from looped.fitting.isoflop import parabola, parabola_minimum
from looped.fitting.result import FitResult
from looped.laws import get_form
from looped.registry.cells import CELL
from looped.splits import split_params

PARTS = ("tokens", "capacity", "rest")
CASES = ("baseline", "variant")
COUNTS = ("n_params_once", "n_params_rec", "n_params", "n_tokens")
OF_A_CASE = (*COUNTS, "val_loss", "n_params_star", "val_loss_star", "d_model_star")
COMPARED = [
    *CELL,
    "d_model",
    *(f"{column}_{case}" for case in CASES for column in OF_A_CASE),
]


def at_baseline_optimum(baseline: pd.DataFrame, variant: pd.DataFrame, split: str) -> pd.DataFrame:
    """Both cases at the width of the baseline's minimum, one row a looped cell.

    Returns:
        n_recur, budget, d_model (real), and with the suffixes _baseline and _variant:
        n_params_once, n_params_rec (of the split), n_params, n_tokens, val_loss (of the parabola,
        nats per token), and the minimum of each case where its runs bracket it: n_params_star,
        val_loss_star, d_model_star.
        refusal: why a cell has no numbers.
    """
    rows = []
    looped = {cell for cell, _ in baseline.groupby(CELL) if cell[0] > 1}
    for n_recur, budget in sorted(looped):
        row = {"n_recur": n_recur, "budget": budget}
        cells = [
            split_params(runs[(runs["n_recur"] == n_recur) & (runs["budget"] == budget)], split)
            for runs in (baseline, variant)
        ]
        try:
            row |= _compared(*cells) | {"refusal": ""}
        except NoMinimum as refusal:
            row |= {"refusal": str(refusal)}
        rows.append(row)
    return pd.DataFrame(rows, columns=[*COMPARED, "refusal"])


def _compared(baseline: pd.DataFrame, variant: pd.DataFrame) -> dict:
    """Numbers of one cell. Raises NoMinimum where they do not exist."""
    minimum = parabola_minimum(baseline["n_params"], baseline["val_loss"])
    curves = (minimum, parabola(variant["n_params"], variant["val_loss"]))
    width = _width_of(minimum["n_params_star"], baseline)
    narrowest, widest = variant["d_model"].min(), variant["d_model"].max()
    if not narrowest <= width <= widest:
        raise NoMinimum(
            f"the baseline's optimal width {width:.0f} lies outside those of the variant "
            f"({narrowest} to {widest})"
        )
    row = {"d_model": width}
    for name, cell, curve in zip(CASES, (baseline, variant), curves, strict=True):
        at = {column: _at_width(width, cell, column) for column in COUNTS}
        away = np.log(at["n_params"] / curve["n_params_star"])
        at["val_loss"] = curve["val_loss_star"] + curve["curvature"] * away**2
        if cell["n_params"].min() <= curve["n_params_star"] <= cell["n_params"].max():
            at |= {key: curve[key] for key in ("n_params_star", "val_loss_star")}
            at["d_model_star"] = _width_of(curve["n_params_star"], cell)
        row |= {f"{column}_{name}": value for column, value in at.items()}
    return row


def _width_of(n_params: float, cell: pd.DataFrame) -> float:
    return _smooth(n_params, cell["n_params"], cell["d_model"])


def _at_width(width: float, cell: pd.DataFrame, column: str) -> float:
    return _smooth(width, cell["d_model"], cell[column])


def _smooth(at: float, x: pd.Series, y: pd.Series) -> float:
    """y at x = at, by a parabola in the logarithms: counts and tokens are smooth in the width."""
    if not y.any():
        return 0.0  # a model may have all its parameters in the loop
    log_x, log_y = np.log(x.to_numpy(float)), np.log(y.to_numpy(float))
    centre = log_x.mean()
    return float(np.exp(np.polyval(np.polyfit(log_x - centre, log_y, 2), np.log(at) - centre)))


def decompose(cells: pd.DataFrame, baseline: FitResult, variant: FitResult) -> pd.DataFrame:
    """The measured change of the loss in each cell as a sum of its parts, nats per token.

    Args:
        cells: of `at_baseline_optimum`, without refused ones.
        baseline: joint fit of the baseline.
        variant: joint fit of the variant.

    Returns:
        n_recur, budget, d_model, measured, tokens, capacity, rest, misfit; negative = lower loss.
    """
    parts = _parts(cells, baseline.law.theta[None], variant.law.theta[None])[:, 0]
    measured = cells["val_loss_variant"] - cells["val_loss_baseline"]
    by_part = dict(zip(PARTS, parts, strict=True))
    table = cells[[*CELL, "d_model"]].assign(measured=measured, **by_part)
    return table.assign(misfit=measured - parts.sum(axis=0))


def mean_part_draws(cells: pd.DataFrame, baseline: FitResult, variant: FitResult) -> pd.DataFrame:
    """Mean over the cells of each part, in each of the paired resamples of both fits."""
    if cells.empty:
        return pd.DataFrame(columns=PARTS, dtype=float)
    thetas = [fit.resampled_theta() for fit in (baseline, variant)]
    return pd.DataFrame(dict(zip(PARTS, _parts(cells, *thetas).mean(axis=2), strict=True)))


def _parts(cells: pd.DataFrame, baseline: np.ndarray, variant: np.ndarray) -> np.ndarray:
    """Each part in each cell, [3, S, cells], from coordinates [S, p] of both fits."""
    loss = {
        state: _loss(cells, baseline, variant, *state)
        for state in itertools.product((0, 1), repeat=len(PARTS))
    }
    # Shapley weight by the number of the two others that are exchanged before
    weights = {0: 1 / 3, 1: 1 / 6, 2: 1 / 3}
    parts = []
    for player in range(len(PARTS)):
        before = [state for state in loss if state[player] == 0]
        after = [(*state[:player], 1, *state[player + 1 :]) for state in before]
        changes = [
            weights[sum(b)] * (loss[a] - loss[b]) for a, b in zip(after, before, strict=True)
        ]
        parts.append(np.sum(changes, axis=0))
    return np.stack(parts)


def _loss(
    cells: pd.DataFrame,
    baseline: np.ndarray,
    variant: np.ndarray,
    tokens: int,
    capacity: int,
    rest: int,
) -> np.ndarray:
    """Loss [S, cells] with tokens, capacity and the rest of the baseline (0) or the variant (1)."""
    form = get_form("joint")
    theta = np.array((baseline, variant)[rest])
    phi = form.index("phi")
    theta[:, phi] = (baseline, variant)[capacity][:, phi]
    rows = pd.DataFrame(
        {
            "n_params_once": cells[f"n_params_once_{CASES[capacity]}"],
            "n_params_rec": cells[f"n_params_rec_{CASES[capacity]}"],
            "n_recur": cells["n_recur"],
            "n_tokens": cells[f"n_tokens_{CASES[tokens]}"],
        }
    )
    return np.exp(form.predict(theta, form.design(rows)).log_loss)
