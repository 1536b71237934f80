"""IsoFLOP minima (paper section 4.2): a parabola of the loss in log N through each cell's runs."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from looped.errors import NoMinimum, require
from looped.registry.cells import CELL, cell_numbers

MINIMUM = ("n_params_star", "val_loss_star", "curvature", "n_tokens_star")


def parabola(n_params: ArrayLike, val_loss: ArrayLike) -> dict[str, float]:
    """Least-squares parabola L = L* + curvature (log N - log N*)² through one cell's runs.

    Its vertex may lie outside the runs: see `parabola_minimum`.

    Returns:
        n_params_star, val_loss_star (nats per token) and curvature (nats).

    Raises:
        ValueError: an N that is not positive, or a loss that is not finite.
        NoMinimum: fewer than three widths, or a parabola that opens downwards.
    """
    n_params, loss = np.asarray(n_params, float), np.asarray(val_loss, float)
    if not ((n_params > 0) & np.isfinite(n_params) & np.isfinite(loss)).all():
        raise ValueError(f"expected positive N and finite losses, got {n_params} and {loss}")
    log_n = np.log(n_params)
    widths = len(np.unique(log_n.round(3)))
    if widths < 3:
        raise NoMinimum(f"a parabola needs three widths, got {widths}; add runs to the cell")
    centre = log_n.mean()
    curvature, slope, level = np.polyfit(log_n - centre, loss, 2)
    if curvature <= 0:
        raise NoMinimum(
            f"the parabola opens downwards (curvature {curvature:.3g}); add runs to the cell"
        )
    return {
        "n_params_star": float(np.exp(centre - slope / (2 * curvature))),
        "val_loss_star": float(level - slope**2 / (4 * curvature)),
        "curvature": float(curvature),
    }


def parabola_minimum(n_params: ArrayLike, val_loss: ArrayLike) -> dict[str, float]:
    """The parabola of `parabola`, provided that its vertex lies between the runs.

    Raises:
        ValueError: an N that is not positive, or a loss that is not finite.
        NoMinimum: no parabola, or a vertex outside the range of the runs (the minimum is then not
            bracketed).
    """
    found = parabola(n_params, val_loss)
    vertex, least, most = found["n_params_star"], np.min(n_params), np.max(n_params)
    if not least <= vertex <= most:
        side = "narrower" if vertex < least else "wider"
        raise NoMinimum(
            f"the minimum at N = {vertex:.3g} lies outside the runs ({least:.3g} to {most:.3g}); "
            f"add {side} runs"
        )
    return found


def isoflop_minima(runs: pd.DataFrame) -> pd.DataFrame:
    """The minimum of each (n_recur, budget) cell; where there is none, the reason.

    Returns:
        One row a cell: n_recur, budget, n_runs, n_params_star, val_loss_star, curvature,
        n_tokens_star (the cell's tokens at that size), refusal (why the numbers are missing).

    Raises:
        ValueError: runs without the columns that this needs, or of several cases in a cell.
    """
    cell_numbers(runs)
    require(runs, ["n_params", "n_tokens", "val_loss"], "an isoFLOP minimum")
    rows = []
    for (n_recur, budget), cell in runs.groupby(CELL):
        row = {"n_recur": n_recur, "budget": budget, "n_runs": len(cell)}
        try:
            row |= parabola_minimum(cell["n_params"], cell["val_loss"])
            row |= {"n_tokens_star": _tokens_at(row["n_params_star"], cell), "refusal": ""}
        except NoMinimum as refusal:
            row |= dict.fromkeys(MINIMUM, np.nan) | {"refusal": str(refusal)}
        rows.append(row)
    return pd.DataFrame(rows)


def _tokens_at(n_params: float, cell: pd.DataFrame) -> float:
    """Tokens of a size between the cell's runs, which all spend the same budget."""
    ordered = np.log(cell[["n_params", "n_tokens"]].sort_values("n_params"))
    return float(np.exp(np.interp(np.log(n_params), ordered["n_params"], ordered["n_tokens"])))


def loss_gaps(minima: pd.DataFrame) -> pd.DataFrame:
    """Loss above the r = 1 minimum of the same budget: n_recur, budget, gap (nats per token)."""
    anchor = minima[minima["n_recur"] == 1].set_index("budget")["val_loss_star"]
    looped = minima[minima["n_recur"] > 1]
    gap = looped["val_loss_star"] - looped["budget"].map(anchor)
    return looped[CELL].assign(gap=gap).reset_index(drop=True)
