"""Warnings attached to a Δφ, mainly cases where a single φ does not describe all recurrences."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from looped.diagnose.decomposition import CASES
from looped.fitting.fit import fit
from looped.fitting.isoflop import isoflop_minima, loss_gaps
from looped.fitting.result import FitResult
from looped.fitting.summary import residual_summary

CARRIES = 2.0
"""An r carries the misfit if its RMSE is this many times the RMSE of all other runs."""

FEW_CELLS = 10

Pair = Sequence[pd.DataFrame]


def cautions(pair: Pair, fits: Sequence[FitResult]) -> list[str]:
    """Warnings on the two fits of a shift.

    Args:
        pair: runs of baseline and variant, in the same cells.
        fits: their fits, with bootstraps.
    """
    found = []
    for name, runs, fitted in zip(CASES, pair, fits, strict=True):
        own = [*fitted.warnings, *fitted.resampled.warnings, *_on_both_sides(runs)]
        found += [f"{name}: {text}" for text in own]
        found += [f"{name}: {text}" for text in _misfit(runs, fitted, pair, fits)]
    n_cells = fits[0].resampled.n_units
    if fits[0].resampled.method == "block" and n_cells < FEW_CELLS:
        found.append(f"only {n_cells} cells to resample: the intervals are rough")
    return found


def _misfit(
    runs: pd.DataFrame, fitted: FitResult, pair: Pair, fits: Sequence[FitResult]
) -> Iterator[str]:
    """An r whose residuals are far larger than those of all others, and the shift without it."""
    table = residual_summary(runs, fitted).set_index("n_recur")
    for n_recur, row in table.iterrows():
        others = table.drop(index=n_recur)
        rmse = np.sqrt((others["rmse"] ** 2 * others["n_runs"]).sum() / others["n_runs"].sum())
        if row["rmse"] > CARRIES * rmse:
            text = f"r = {n_recur} carries the misfit (RMSE {row['rmse']:.3f} nats, of the others "
            text += f"{rmse:.3f})"
            yield text + (_without(n_recur, pair, fits) if n_recur > 1 and len(others) > 2 else "")


def _without(n_recur: int, pair: Pair, fits: Sequence[FitResult]) -> str:
    before, after = (
        fit(
            runs[runs["n_recur"] != n_recur],
            fitted.law.name,
            fitted.split or "stated",
            starts=fitted.starts,
            seed=fitted.seed,
            delta=fitted.delta,
        ).params["phi"]
        for runs, fitted in zip(pair, fits, strict=True)
    )
    return f"; without it in both, Δφ = {after - before:+.3f} ({before:.3f} to {after:.3f})"


def _on_both_sides(runs: pd.DataFrame) -> Iterator[str]:
    """Some r below the anchor's loss and others above: no single φ fits both (paper section 7)."""
    gaps = loss_gaps(isoflop_minima(runs)).groupby("n_recur")["gap"].mean().dropna()
    below, above = gaps[gaps < 0], gaps[gaps >= 0]
    if len(below) and len(above):
        better = ", ".join(f"r = {r} by {-gap:.3f}" for r, gap in below.items())
        worse = ", ".join(f"r = {r} by {gap:.3f}" for r, gap in above.items())
        yield (
            f"below the r = 1 minima on average: {better} nats; above: {worse}; a single φ "
            "describes neither well"
        )
