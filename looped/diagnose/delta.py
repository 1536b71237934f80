"""`delta_phi`: does a change improve the loop, or does it only buy tokens? (paper section 6)"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from looped.diagnose import report
from looped.diagnose.cautions import cautions
from looped.diagnose.decomposition import (
    CASES,
    COMPARED,
    PARTS,
    at_baseline_optimum,
    decompose,
    mean_part_draws,
)
from looped.diagnose.pairing import case_name, paired
from looped.diagnose.widths import width_shift
from looped.fitting.bootstrap import bootstrap
from looped.fitting.fit import fit
from looped.fitting.result import Bootstrap, FitResult, FitStatus
from looped.fitting.summary import residual_summary

KINDS = {
    (True, True): "both",
    (True, False): "architecture-side",
    (False, True): "training-side",
    (False, False): "not resolved",
}
"""(Δφ is resolved, tokens move the loss by more than the laws' misfit) -> kind of the verdict."""

UNSURE = 0.15
"""Warn when an interval end's Monte Carlo error exceeds this share of the interval's width."""

UNUSABLE = (FitStatus.AT_BOUND, FitStatus.NOT_IDENTIFIED)


@dataclass(frozen=True, kw_only=True, repr=False)
class DeltaPhi:
    """The shift of φ between two cases and its meaning. Losses in nats per token.

    The interval is there from the start; decomposition, width shift, residuals and warnings are
    computed on first use.
    """

    baseline: FitResult  # with its bootstrap
    variant: FitResult  # with its bootstrap, of the same resampled cells
    runs: tuple[pd.DataFrame, pd.DataFrame] = field(compare=False)  # of both, in the same cells
    notes: tuple[str, ...]  # runs that were left out

    @property
    def fits(self) -> tuple[FitResult, FitResult]:
        """Baseline and variant."""
        return self.baseline, self.variant

    @property
    def cases(self) -> tuple[str, str]:
        """Names of both cases."""
        return case_name(self.runs[0]), case_name(self.runs[1])

    @property
    def split(self) -> str | None:
        """What counts as recurring in both fits."""
        return self.variant.split

    @property
    def budgets(self) -> tuple[float, ...]:
        """Budgets of the compared cells, FLOPs."""
        return tuple(sorted(self.runs[0]["budget"].unique().tolist()))

    @property
    def n_recur(self) -> tuple[int, ...]:
        """The looped r of the compared cells."""
        return tuple(sorted(set(self.runs[0]["n_recur"].astype(int)) - {1}))

    @property
    def delta_phi(self) -> float:
        """φ of the variant minus φ of the baseline."""
        return self.variant.params["phi"] - self.baseline.params["phi"]

    @property
    def draws(self) -> np.ndarray:
        """The shift in each paired resample."""
        baseline_phi, variant_phi = (np.asarray(f.resampled.draws["phi"]) for f in self.fits)
        return variant_phi - baseline_phi

    @cached_property
    def resampled(self) -> Bootstrap:
        """The paired bootstrap of the shift, as a bootstrap of one parameter, delta_phi."""
        return replace(self.variant.resampled, draws={"delta_phi": self.draws.tolist()})

    @property
    def level(self) -> float:
        """Level of every interval of this result."""
        return self.variant.resampled.level

    @property
    def interval(self) -> tuple[float, float]:
        """Percentile interval of the shift."""
        return self.resampled.interval("delta_phi")

    @cached_property
    def edge_errors(self) -> tuple[float, float]:
        """Monte Carlo errors of the interval's two ends, from the number of resamples."""
        return self.resampled.edge_errors("delta_phi")

    @property
    def edge_error(self) -> float:
        """The larger of both."""
        return max(self.edge_errors)

    @property
    def borderline(self) -> bool:
        """True if the end closest to 0 is within two Monte Carlo errors of 0.

        Another seed could then change whether the shift is resolved.
        """
        ends = zip(self.interval, self.edge_errors, strict=True)
        end, error = min(ends, key=lambda pair: abs(pair[0]))
        return abs(end) < 2 * error

    @property
    def p_sign(self) -> float:
        """Share of the resamples in which the shift has the sign of the estimate."""
        return float((np.sign(self.draws) == np.sign(self.delta_phi)).mean())

    @property
    def resolved(self) -> bool:
        """Whether the interval of the shift excludes 0."""
        low, high = self.interval
        return low > 0 or high < 0

    @cached_property
    def _compared(self) -> tuple[pd.DataFrame, list[str]]:
        return _cells(*self.runs, self.split or "stated")

    @cached_property
    def decomposition(self) -> pd.DataFrame:
        """Parts of the loss change in each cell (`looped.diagnose.decomposition.decompose`)."""
        return decompose(self._compared[0], *self.fits)

    @cached_property
    def part_draws(self) -> pd.DataFrame:
        """Mean over cells of tokens, capacity and rest in each resample."""
        return mean_part_draws(self._compared[0], *self.fits)

    @cached_property
    def width_shift(self) -> pd.DataFrame:
        """The variant's isoFLOP minima over the baseline's (`looped.diagnose.widths`)."""
        return width_shift(self._compared[0], *self.runs)

    @cached_property
    def quality(self) -> pd.DataFrame:
        """Residuals of both fits by r: case, n_recur, n_runs, mean, max_abs, rmse."""
        tables = [
            residual_summary(runs, each).assign(case=name)
            for name, runs, each in zip(CASES, self.runs, self.fits, strict=True)
        ]
        return pd.concat(tables, ignore_index=True)

    @cached_property
    def parts(self) -> pd.DataFrame:
        """Mean of each part of the loss change over the cells, with its interval.

        Returns:
            part (the index: measured, tokens, capacity, rest, misfit), mean, low, high; the ends
            are missing for parts that the resamples of the fits do not move.
        """
        if self.decomposition.empty:
            return pd.DataFrame(columns=["mean", "low", "high"], dtype=float)
        means = self.decomposition[["measured", *PARTS, "misfit"]].mean()
        ends = {name: self.resampled.percentiles(self.part_draws[name]) for name in PARTS}
        missing = (np.nan, np.nan)
        rows = {name: (mean, *ends.get(name, missing)) for name, mean in means.items()}
        return pd.DataFrame(rows, index=["mean", "low", "high"]).T.rename_axis("part")

    @property
    def kind(self) -> str:
        """architecture-side, training-side, both, or not resolved.

        The training counts if tokens move the loss by more than the worse fit's RMSE, and their
        interval excludes 0. A fit at its bounds, or one that is not identified, resolves nothing.
        """
        if any(each.status in UNUSABLE for each in self.fits):
            return KINDS[False, False]
        trains = False
        if not self.decomposition.empty:
            tokens = self.parts.loc["tokens"]
            misfit = max(each.rmse for each in self.fits)
            trains = abs(tokens["mean"]) > misfit and tokens["low"] * tokens["high"] > 0
        return KINDS[self.resolved, trains]

    @property
    def verdict(self) -> str:
        """One sentence with the kind of the shift and the numbers behind it."""
        return report.verdict(self)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Cases where the shift, its interval or a single φ is a poor summary."""
        refused = self._compared[1]
        return (*self.notes, *refused, *cautions(self.runs, self.fits), *_monte_carlo(self))

    def summary(self, warnings: bool = True) -> str:
        """The shift as text: verdict, values with intervals, parts, warnings."""
        return report.text(self, warnings)

    def _repr_html_(self) -> str:
        return report.html(self)

    def __repr__(self) -> str:
        return report.short(self)

    def to_dict(self) -> dict:
        """Plain values, for JSON."""
        return report.to_dict(self)


def delta_phi(
    baseline: pd.DataFrame,
    variant: pd.DataFrame,
    *,
    budgets: Sequence[float] | None = None,
    split: str = "stated",
    resamples: int = 2000,
    method: str = "block",
    level: float = 0.95,
    starts: int = 200,
    resample_starts: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> DeltaPhi:
    """The shift of φ from one case to another, with its paired interval.

    Both are fitted in the (budget, r) cells that they share, with the same r = 1 runs. The
    bootstrap is paired: a resample draws the same cells for both fits.

    Args:
        baseline: table of its runs, with r = 1.
        variant: table of its runs; without r = 1 it takes the baseline's.
        budgets: FLOPs; None for all that both have.
        split: what counts as recurring (`looped.splits`).
        resamples: of the paired bootstrap.
        method: block; or iid, which draws the runs of each case separately, for comparison.
        level: of the intervals.
        starts: of both fits.
        resample_starts: of the refits of each resample.
        seed: of starts and resampling.
        progress: called with the number of finished refits and their total, 2 x resamples.

    Raises:
        ValueError: cases that cannot be compared (no shared cell, different anchors) or fitted.
        FitError: no start reached a finite objective.
    """
    *pair, notes = paired(baseline, variant, budgets)
    fits = []
    for i, runs in enumerate(pair):
        fitted = fit(runs, "joint", split, starts=starts, seed=seed)
        drawn = bootstrap(
            runs,
            fitted,
            resamples=resamples,
            method=method,
            level=level,
            starts=resample_starts,
            seed=seed,  # the same cells in both: their numbers and count are the same
            progress=_second_half(progress, i),
        )
        fits.append(fitted.with_interval(drawn))
    return DeltaPhi(baseline=fits[0], variant=fits[1], runs=(pair[0], pair[1]), notes=tuple(notes))


def _second_half(
    progress: Callable[[int, int], None] | None, finished: int
) -> Callable[[int, int], None] | None:
    """Progress of one of two bootstraps as progress of both."""
    if progress is None:
        return None
    return lambda done, total: progress(done + finished * total, 2 * total)


def _monte_carlo(shift: DeltaPhi) -> list[str]:
    """Warnings where the number of resamples is too small for the interval's ends."""
    low, high = shift.interval
    errors = shift.edge_errors
    notes = []
    if shift.borderline:
        notes.append(
            f"an end of the interval of Δφ (Monte Carlo errors ±{errors[0]:.3f} and "
            f"±{errors[1]:.3f}) is within two Monte Carlo errors of 0: another seed could change "
            "whether the shift is resolved; use more resamples"
        )
    if max(errors) > UNSURE * (high - low):
        notes.append(
            f"the ends of the interval of Δφ have Monte Carlo errors of ±{errors[0]:.2f} and "
            f"±{errors[1]:.2f}: some resamples do not determine φ; use more resamples, and above "
            "all more budgets"
        )
    return notes


def _cells(
    baseline: pd.DataFrame, variant: pd.DataFrame, split: str
) -> tuple[pd.DataFrame, list[str]]:
    """The cells that can be compared at one width, and the reasons why others cannot."""
    if any("d_model" not in runs or runs["d_model"].isna().any() for runs in (baseline, variant)):
        empty = pd.DataFrame(columns=COMPARED, dtype=float)
        return empty, ["no decomposition and no width shift: they need d_model of every run"]
    cells = at_baseline_optimum(baseline, variant, split)
    refused = cells[cells["refusal"] != ""]
    notes = [
        f"r = {cell.n_recur}, {cell.budget:.3g} FLOPs is left out of the decomposition: "
        f"{cell.refusal}"
        for cell in refused.itertuples()
    ]
    return cells.drop(index=refused.index).drop(columns="refusal").reset_index(drop=True), notes
