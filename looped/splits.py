"""Splits: conventions for which parameters count as recurring, N = N_once + N_rec.

φ depends on the split while the quality of the fit does not, so every fit names its split.

    stated   the paper's text (section 3.2): the injection runs r times and is part of N_rec. The
             default. It uses the counts of the table, so it fits any architecture.
    once     the injection counts once, in N_once.
    none     the injection is left out.
    fitted   for each width, the least-squares fit of N(r) = N_once + n_block / r over
             r = 1, 2, 4, 8, on the counts with linear injection, whatever the variant. The
             published φ follow from this split.

All parts but the injection have exactly the form N_once + n_block / r. So `fitted` is `stated` with
the injection, which exists for r > 1 only, projected onto the two shapes 1 and 1 / r.
"""

import numpy as np
import pandas as pd

from looped.errors import pick, require
from looped.variants import n_params_injection

SPLITS = ("stated", "fitted", "once", "none")
FITTED_RECURRENCES = np.array([1, 2, 4, 8])
"""Recurrences of the paper's grid, over which `fitted` takes its least squares."""


def split_params(runs: pd.DataFrame, split: str = "stated") -> pd.DataFrame:
    """The runs with n_params_once and n_params_rec counted by `split`.

    Args:
        runs: the table of runs, with n_params_once and n_params_rec of split `stated`.

    Raises:
        ConfigError: an unknown split, or a split that needs the size of an injection whose variant
            is not in `looped.variants.VARIANTS`.
        ValueError: the split needs d_model and variant, and a run lacks one of them.
    """
    if pick("split", split, SPLITS) == "stated":
        return runs
    injection = _injection(runs, split)
    once, rec, n_recur, d_model = (
        runs[name].to_numpy(float)
        for name in ("n_params_once", "n_params_rec", "n_recur", "d_model")
    )
    rec = rec - injection
    if split == "once":
        once = once + injection
    if split == "fitted":
        linear = n_params_injection("linear", d_model)
        constant, per_block = _injection_projection()
        once, rec = once + constant * linear, rec + per_block * linear / n_recur
    return runs.assign(n_params_once=once, n_params_rec=rec)


def _injection(runs: pd.DataFrame, split: str) -> np.ndarray:
    """Parameters [n] of the injection of each run."""
    remedy = "use split='stated', which takes the counts of the table"
    try:
        require(runs, ["d_model", "variant"], f"split {split!r}")
        return n_params_injection(runs["variant"].to_numpy(), runs["d_model"].to_numpy(float))
    except ValueError as error:
        raise type(error)(f"{error}. Split {split!r} moves the injection: {remedy}") from None


def _injection_projection() -> tuple[float, float]:
    """Coefficients of 1 and 1 / r that best describe 'one injection if r > 1'."""
    shapes = np.stack([np.ones(4), 1 / FITTED_RECURRENCES], axis=1)
    present = (FITTED_RECURRENCES > 1).astype(float)
    constant, per_block = np.linalg.lstsq(shapes, present, rcond=None)[0]
    return constant, per_block
