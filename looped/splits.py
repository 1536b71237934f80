"""What counts as recurring: conventions that divide N into N_once and N_rec.

φ depends on this choice at equal fit quality, so every fit names the split that it used.

    stated   the paper's text (section 3.2): the linear injection (2 d²) runs r times, in N_rec.
             Any architecture can follow it; the default.
    once     the injection counts once, in N_once.
    none     the injection is left out.
    fitted   per width, the least squares of N(r) = N_once + n_block / r over r = 1, 2, 4, 8, on
             the linear-injection counts whatever the variant. The published φ follow from it.

Since every part but the injection is exactly of the form N_once + n_block / r, `fitted` is
`stated` with the injection, present for r > 1 only, projected onto the two shapes 1 and 1 / r.
"""

import numpy as np
import pandas as pd

from looped.accounting import n_params_injection

SPLITS = ("stated", "fitted", "once", "none")
FITTED_RECURRENCES = np.array([1, 2, 4, 8])
"""The recurrences of the paper's grid, over which `fitted` takes its least squares."""


def split_params(runs: pd.DataFrame, split: str = "stated") -> pd.DataFrame:
    """The runs with n_params_once and n_params_rec counted by the convention `split`.

    Raises:
        ValueError: an unknown split, or one that needs d_model and variant where they are missing.
    """
    if split not in SPLITS:
        raise ValueError(f"split: got {split!r}, expected one of {SPLITS}")
    if split == "stated":
        return runs
    _require_injection(runs, split)
    once, rec, n_recur = (
        runs[name].to_numpy(float) for name in ("n_params_once", "n_params_rec", "n_recur")
    )
    injection = n_params_injection(runs["variant"].to_numpy(), runs["d_model"].to_numpy(float))
    rec = rec - injection
    if split == "once":
        once = once + injection
    if split == "fitted":
        linear = n_params_injection("linear", runs["d_model"].to_numpy(float))
        constant, per_block = _injection_projection()
        once, rec = once + constant * linear, rec + per_block * linear / n_recur
    return runs.assign(n_params_once=once, n_params_rec=rec)


def _injection_projection() -> tuple[float, float]:
    """Coefficients of 1 and 1 / r that best describe 'one injection if r > 1'."""
    shapes = np.stack([np.ones(4), 1 / FITTED_RECURRENCES], axis=1)
    present = (FITTED_RECURRENCES > 1).astype(float)
    return tuple(np.linalg.lstsq(shapes, present, rcond=None)[0])


def _require_injection(runs, split):
    missing = [
        name for name in ("d_model", "variant") if name not in runs or runs[name].isna().any()
    ]
    if missing:
        raise ValueError(
            f"split {split!r} moves the injection, so it needs {missing} of every run; "
            "add them or use split='stated'"
        )
