"""Numbers of the main result in words, and φ on the laptop beside φ on the paper's runs."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from looped.accounting import counts
from looped.config import ModelConfig
from looped.diagnose.equivalence import equivalence
from looped.fitting.bootstrap import bootstrap
from looped.fitting.fit import fit
from looped.fitting.result import Bootstrap, FitResult
from looped.fitting.summary import fit_table

Fits = Mapping[tuple[str, str], FitResult]
"""Fits with an interval, by (description of the runs, split)."""


def answer(fitted: FitResult, resampled: Bootstrap, **settings: int) -> dict[str, Any]:
    """Numbers of a fit of φ and its interval, and `settings`, for prose.

    `level` and `arrived` are in percent; `gain` is 4^φ; `touched` counts resamples at φ = 0 or 1.
    """
    low, high = resampled.interval("phi")
    return {
        **settings,
        "phi": fitted.params["phi"],
        "low": low,
        "high": high,
        "level": 100 * resampled.level,
        "edge": resampled.edge_error("phi"),
        "touched": resampled.touched(0) + resampled.touched(1),
        "gain": 4 ** fitted.params["phi"],
        "r2": fitted.r2,
        "n_runs": fitted.n_runs,
        "source": fitted.sources[0],
        "arrived": 100 * fitted.starts_at_optimum,
    }


def answer_sizes(fitted: FitResult, looped: ModelConfig, plain: ModelConfig) -> dict[str, float]:
    """Parameters: unique and equivalent of a looped model (millions), of a plain one (billions)."""
    return {
        "unique": counts(looped)["n_params"] / 1e6,
        "plain": counts(plain)["n_params"] / 1e9,
        "equivalent": equivalence(fitted, looped)["n_params_effective"] / 1e6,
    }


def fits_by_source(
    sources: Mapping[str, pd.DataFrame],
    splits: Iterable[str],
    fitting: Mapping[str, Any],
    drawing: Mapping[str, Any],
) -> Fits:
    """Fits of the joint law, with intervals, by (description of the runs, split).

    Args:
        sources: description -> table of runs.
        splits: conventions of what recurs; a repeated one counts once.
        fitting: settings of `looped.fit`.
        drawing: settings of `looped.bootstrap`.
    """
    fits = {}
    for source, runs in sources.items():
        for split in dict.fromkeys(splits):
            one = fit(runs, "joint", split, **fitting)
            fits[source, split] = one.with_interval(bootstrap(runs, one, **drawing))
    return fits


def laptop_phi(fits: Fits) -> pd.DataFrame:
    """Fits side by side: runs, split, number, phi with its interval, r2, rmse, E, alpha, beta."""
    rows = fit_table({f"{runs} ({split})": fit for (runs, split), fit in fits.items()})
    rows = rows.assign(runs=[runs for runs, _ in fits])
    names = ["phi", "phi_low", "phi_high", "r2", "rmse", "E", "alpha", "beta"]
    return rows[["runs", "split", "n_runs", *names]].rename(columns={"n_runs": "number of runs"})


def laptop_numbers(
    fits: Fits, split: str, here: pd.DataFrame, paper: pd.DataFrame
) -> dict[str, float | int]:
    """Numbers of the laptop's φ beside the paper's, for prose.

    Returns:
        phi, low, high, width (of the interval), n_runs, n_cells, rmse (nats/token) of the laptop;
        paper_phi, paper_width; ratio (of the lowest budgets).
    """
    mine, other = (fits[source, split] for source in dict.fromkeys(runs for runs, _ in fits))
    assert mine.interval is not None
    assert other.interval is not None
    low, high = mine.interval.interval("phi")
    paper_low, paper_high = other.interval.interval("phi")
    return {
        "phi": mine.params["phi"],
        "low": low,
        "high": high,
        "width": high - low,
        "n_runs": mine.n_runs,
        "n_cells": mine.interval.n_units,
        "rmse": mine.rmse,
        "paper_phi": other.params["phi"],
        "paper_width": paper_high - paper_low,
        "ratio": paper["budget"].min() / here["budget"].min(),
    }


def farthest(residuals: pd.DataFrame) -> dict[str, float | int]:
    """Recurrence (off_r) with the largest mean residual (off, nats/token)."""
    row = residuals.loc[residuals["mean"].abs().idxmax()]
    return {"off_r": int(row["n_recur"]), "off": row["mean"]}
