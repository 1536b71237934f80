"""What a reader of a shift of φ has to know: where one φ for all recurrences is a bad summary."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from looped.diagnose.decomposition import CASES
from looped.fitting.fit import fit
from looped.fitting.isoflop import isoflop_minima, loss_gaps
from looped.fitting.result import FitResult
from looped.fitting.summary import residual_summary

CARRIES = 2.0
"""An r carries the misfit if its RMSE is this many times that of all others together."""

FEW_CELLS = 10


def cautions(pair: tuple[pd.DataFrame, pd.DataFrame], fits: list[FitResult]) -> list[str]:
    """Warnings on both fits of a shift.

    Args:
        pair: runs of baseline and variant, in the same cells.
        fits: their fits, with bootstraps.
    """
    found = []
    for name, runs, fitted in zip(CASES, pair, fits, strict=True):
        own = [*fitted.warnings, *fitted.interval.warnings, *_one_sided(runs)]
        found += [f"{name}: {text}" for text in own]
        found += [f"{name}: {text}" for text in _misfit(runs, fitted, pair, fits)]
    n_cells = fits[0].interval.n_units
    if fits[0].interval.method == "block" and n_cells < FEW_CELLS:
        found.append(f"only {n_cells} cells to resample: the intervals are rough")
    return found


def _misfit(runs, fitted, pair, fits) -> Iterator[str]:
    """An r whose residuals are far larger than those of all others, and the shift without it."""
    table = residual_summary(runs, fitted).set_index("n_recur")
    for n_recur, row in table.iterrows():
        others = table.drop(index=n_recur)
        rmse = np.sqrt((others["rmse"] ** 2 * others["n_runs"]).sum() / others["n_runs"].sum())
        if row["rmse"] > CARRIES * rmse:
            text = f"r = {n_recur} carries the misfit (RMSE {row['rmse']:.3f} nats, of the others "
            text += f"{rmse:.3f})"
            yield text + (_without(n_recur, pair, fits) if n_recur > 1 and len(others) > 2 else "")


def _without(n_recur, pair, fits) -> str:
    before, after = (
        fit(runs[runs["n_recur"] != n_recur], "joint", fitted.split, starts=fitted.starts).params[
            "phi"
        ]
        for runs, fitted in zip(pair, fits, strict=True)
    )
    return f"; without it in both, Δφ = {after - before:+.3f} ({before:.3f} to {after:.3f})"


def _one_sided(runs) -> Iterator[str]:
    """Some r below the anchor's loss and others above: no single φ says that (paper section 7)."""
    gaps = loss_gaps(isoflop_minima(runs)).groupby("n_recur")["gap"].mean().dropna()
    below, above = gaps[gaps < 0], gaps[gaps >= 0]
    if len(below) and len(above):
        better = ", ".join(f"r = {r} by {-gap:.3f}" for r, gap in below.items())
        worse = ", ".join(f"r = {r} by {gap:.3f}" for r, gap in above.items())
        yield (
            f"below the r = 1 minima on average: {better} nats; above: {worse}; a single φ "
            "describes neither well"
        )
