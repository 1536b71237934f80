"""`delta_phi`: does a change make the loop better, or does it only buy tokens? (paper section 6)"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

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
from looped.diagnose.widths import RATIOS, width_shift
from looped.fitting.bootstrap import bootstrap
from looped.fitting.fit import fit
from looped.fitting.result import Bootstrap, FitResult, FitStatus
from looped.fitting.summary import residual_summary

SIDES = {
    (True, True): "both",
    (True, False): "architecture-side",
    (False, True): "training-side",
    (False, False): "not resolved",
}
"""(Δφ is resolved, tokens move the loss by more than the laws' misfit) -> kind of the verdict."""


UNSURE = 0.15
"""Monte Carlo error of an end, as a share of the interval, from which on it is warned of."""

UNUSABLE = (FitStatus.AT_BOUND, FitStatus.NOT_IDENTIFIED)


@dataclass(frozen=True, kw_only=True)
class DeltaPhi:
    """The shift of φ between two cases and what it means. Losses in nats per token."""

    baseline: FitResult  # with its bootstrap
    variant: FitResult  # with its bootstrap, of the same resampled cells
    cases: tuple[str, str]
    budgets: tuple[float, ...]  # FLOPs
    n_recur: tuple[int, ...]  # the looped ones
    decomposition: pd.DataFrame  # of `looped.diagnose.decomposition.decompose`
    part_draws: pd.DataFrame  # mean over cells of tokens, capacity, rest in each resample
    width_shift: pd.DataFrame  # of `looped.diagnose.widths.width_shift`
    quality: pd.DataFrame  # residuals of both fits by r
    warnings: tuple[str, ...]

    @property
    def delta_phi(self) -> float:
        """φ of the variant minus φ of the baseline."""
        return self.variant.params["phi"] - self.baseline.params["phi"]

    @property
    def draws(self) -> np.ndarray:
        """The shift in each paired resample."""
        pair = (self.variant.interval, self.baseline.interval)
        ours, theirs = (np.asarray(each.draws["phi"]) for each in pair)
        return ours - theirs

    @property
    def resampled(self) -> Bootstrap:
        """The paired bootstrap of the shift, as a bootstrap of one parameter, delta_phi."""
        return replace(self.variant.interval, draws={"delta_phi": self.draws.tolist()})

    @property
    def level(self) -> float:
        """Of every interval here."""
        return self.variant.interval.level

    @property
    def interval(self) -> tuple[float, float]:
        """Percentile interval of the shift."""
        return self.resampled.interval("delta_phi")

    @property
    def edge_error(self) -> float:
        """Monte Carlo error of the interval's ends, the larger, from the number of resamples."""
        return self.resampled.edge_error("delta_phi")

    @property
    def hangs_on_seed(self) -> bool:
        """Whether the interval's nearer end is as near to 0 as two of its Monte Carlo errors."""
        ends = zip(self.interval, self.resampled.edge_errors("delta_phi"), strict=True)
        end, error = min(ends, key=lambda pair: abs(pair[0]))
        return abs(end) < 2 * error

    @property
    def p_sign(self) -> float:
        """Share of the resamples in which the shift has the sign of the estimate."""
        return float((np.sign(self.draws) == np.sign(self.delta_phi)).mean())

    @property
    def parts(self) -> pd.DataFrame:
        """Mean of each part of the loss change over the cells, with its interval.

        Returns:
            part (the index: measured, tokens, capacity, rest, misfit), mean, from, to; the ends are
            missing for what the resamples of the fits do not move.
        """
        if self.decomposition.empty:
            return pd.DataFrame(columns=["mean", "from", "to"], dtype=float)
        means = self.decomposition[["measured", *PARTS, "misfit"]].mean()
        ends = {name: self.resampled.percentiles(self.part_draws[name]) for name in PARTS}
        missing = (np.nan, np.nan)
        rows = {name: (mean, *ends.get(name, missing)) for name, mean in means.items()}
        return pd.DataFrame(rows, index=["mean", "from", "to"]).T.rename_axis("part")

    @property
    def resolved(self) -> bool:
        """Whether the interval of the shift excludes 0."""
        low, high = self.interval
        return low > 0 or high < 0

    @property
    def kind(self) -> str:
        """architecture-side, training-side, both, or not resolved.

        The training side counts if tokens move the loss by more than the worse fit's RMSE, and
        their interval excludes 0. A fit at its bounds, or that is not identified, resolves nothing.
        """
        if any(each.status in UNUSABLE for each in (self.baseline, self.variant)):
            return SIDES[False, False]
        trains = False
        if not self.decomposition.empty:
            tokens = self.parts.loc["tokens"]
            misfit = max(self.baseline.rmse, self.variant.rmse)
            trains = abs(tokens["mean"]) > misfit and tokens["from"] * tokens["to"] > 0
        return SIDES[self.resolved, trains]

    @property
    def verdict(self) -> str:
        """One sentence, with the numbers that it rests on."""
        low, high = self.interval
        before, after = (each.params["phi"] for each in (self.baseline, self.variant))
        rises = "rises" if self.delta_phi > 0 else "falls"
        doubt = "" if self.resolved else ", so not resolved"
        doubt += "; borderline: another seed may decide" if self.hangs_on_seed else ""
        text = (
            f"{self.kind}: φ {rises} from {before:.3f} to {after:.3f}, Δφ = {self.delta_phi:+.3f} "
            f"[{low:+.3f}, {high:+.3f}] ({self.level:.0%}; sign right in {self.p_sign:.0%} of the "
            f"resamples{doubt})"
        )
        if self.decomposition.empty:
            return text + "; what moves the loss at equal FLOPs could not be told apart."
        mean = self.parts["mean"]
        falls = "falls" if mean["measured"] < 0 else "rises"
        return text + (
            f"; at equal FLOPs and width the loss {falls} by {abs(mean['measured']):.3f} nats: "
            f"tokens {mean['tokens']:+.3f}, capacity {mean['capacity']:+.3f}, other parameters of "
            f"the law {mean['rest']:+.3f}, misfit {mean['misfit']:+.3f}."
        )

    def to_dict(self) -> dict:
        """Plain values, for JSON."""
        parts = self.parts
        ratios = [name for name in RATIOS if self.width_shift[name].notna().any()]
        return {
            "delta_phi": self.delta_phi,
            "interval": list(self.interval),
            "level": self.level,
            "phi_baseline": self.baseline.params["phi"],
            "phi_variant": self.variant.params["phi"],
            "p_sign": self.p_sign,
            "decomposition": {
                **parts["mean"].to_dict(),
                "intervals": parts[["from", "to"]].dropna().T.to_dict("list"),
                "cells": _rows(self.decomposition),
            },
            "width_shift": {
                **{name: float(self.width_shift[name].mean()) for name in ratios},
                "cells": _rows(self.width_shift),
            },
            "quality": _rows(self.quality),
            "kind": self.kind,
            "verdict": self.verdict,
            "warnings": list(self.warnings),
            "cases": list(self.cases),
            "split": self.variant.split,
            "budgets": list(self.budgets),
            "n_recur": list(self.n_recur),
            "fits": {
                name: {"params": each.params, "n_runs": each.n_runs, "r2": each.r2}
                | {"rmse": each.rmse, "phi_interval": list(each.interval.interval("phi"))}
                for name, each in zip(CASES, (self.baseline, self.variant), strict=True)
            },
            "resamples": self.variant.interval.resamples,
            "method": self.variant.interval.method,
            "starts": self.variant.starts,
            "resample_starts": self.variant.interval.starts,
            "seed": self.variant.seed,
            "versions": self.variant.versions,
        }


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
    progress: Callable[[int], None] | None = None,
) -> DeltaPhi:
    """The shift of φ from one case to another, its interval, and what moves the loss.

    Both are fitted in the (budget, r) cells that they share, with the same r = 1 runs. The
    bootstrap is paired: a resample draws the same cells for both fits.

    Args:
        baseline: table of its runs, with r = 1.
        variant: table of its runs; without r = 1 it takes the baseline's.
        budgets: FLOPs; None for all that both have.
        split: what counts as recurring (`looped.splits`).
        resamples: of the paired bootstrap.
        method: block; or iid, which draws the runs of each case on their own, for comparison.
        level: of the intervals.
        starts: of both fits.
        resample_starts: of each resample's refits.
        seed: of starts and resampling.
        progress: called with the number of refits that are newly done, of 2 x resamples.

    Raises:
        ValueError: cases that cannot be compared (no shared cell, other anchor), or that cannot be
            fitted.
        FitError: no start reached a finite objective.
    """
    ours, theirs, notes = paired(baseline, variant, budgets)
    fits = []
    for runs in (ours, theirs):
        fitted = fit(runs, "joint", split, starts=starts, seed=seed)
        drawn = bootstrap(
            runs,
            fitted,
            resamples=resamples,
            method=method,
            level=level,
            starts=resample_starts,
            seed=seed,  # the same cells in both: their numbers and count are the same
            progress=progress,
        )
        fits.append(fitted.with_interval(drawn))
    cells, refused = _cells(ours, theirs, split)
    found = DeltaPhi(
        baseline=fits[0],
        variant=fits[1],
        cases=(case_name(ours), case_name(theirs)),
        budgets=tuple(sorted(ours["budget"].unique().tolist())),
        n_recur=tuple(sorted(set(ours["n_recur"].astype(int)) - {1})),
        decomposition=decompose(cells, *fits),
        part_draws=mean_part_draws(cells, *fits),
        width_shift=width_shift(cells, ours, theirs),
        quality=_quality((ours, theirs), fits),
        warnings=(*notes, *refused, *cautions((ours, theirs), fits)),
    )
    return replace(found, warnings=(*found.warnings, *_borderline(found)))


def _borderline(found: DeltaPhi) -> list[str]:
    """Says so if the number of resamples is too small for what is read off the interval."""
    low, high = found.interval
    errors = found.resampled.edge_errors("delta_phi")
    notes = []
    if found.hangs_on_seed:
        notes.append(
            f"an end of the interval of Δφ, known to ±{errors[0]:.3f} and ±{errors[1]:.3f}, is as "
            "near to 0 as its Monte Carlo error: another seed may decide whether it is resolved; "
            "give more resamples"
        )
    if max(errors) > UNSURE * (high - low):
        notes.append(
            f"the ends of the interval of Δφ are known to ±{errors[0]:.2f} and ±{errors[1]:.2f} "
            "only: some resamples do not hold φ; more resamples, and first of all more budgets"
        )
    return notes


def _cells(baseline, variant, split) -> tuple[pd.DataFrame, list[str]]:
    """The cells that can be compared at one width, and why others cannot."""
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


def _quality(pair, fits) -> pd.DataFrame:
    """Residuals of both fits by r: case, n_recur, n_runs, mean, max_abs, rmse."""
    tables = [
        residual_summary(runs, each).assign(case=name)
        for name, runs, each in zip(CASES, pair, fits, strict=True)
    ]
    return pd.concat(tables, ignore_index=True)


def _rows(frame: pd.DataFrame) -> list[dict]:
    return frame.astype(object).where(frame.notna(), None).to_dict("records")
