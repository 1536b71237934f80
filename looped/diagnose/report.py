"""A shift of φ as a sentence, as text, as HTML and as plain values."""

import html as escape
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from looped.diagnose.decomposition import CASES
from looped.diagnose.widths import RATIOS

if TYPE_CHECKING:
    from looped.diagnose.delta import DeltaPhi


def verdict(shift: "DeltaPhi") -> str:
    """One sentence with the kind of the shift and the numbers behind it."""
    low, high = shift.interval
    before, after = (each.params["phi"] for each in shift.fits)
    rises = "rises" if shift.delta_phi > 0 else "falls"
    doubt = "" if shift.resolved else ", so not resolved"
    doubt += "; borderline: another seed may decide" if shift.borderline else ""
    text = (
        f"{shift.kind}: φ {rises} from {before:.3f} to {after:.3f}, Δφ = {shift.delta_phi:+.3f} "
        f"[{low:+.3f}, {high:+.3f}] ({shift.level:.0%}; sign right in {shift.p_sign:.0%} of the "
        f"resamples{doubt})"
    )
    if shift.decomposition.empty:
        return text + "; the parts of the loss change at equal FLOPs could not be separated."
    mean = shift.parts["mean"]
    falls = "falls" if mean["measured"] < 0 else "rises"
    return text + (
        f"; at equal FLOPs and width the loss {falls} by {abs(mean['measured']):.3f} nats: "
        f"tokens {mean['tokens']:+.3f}, capacity {mean['capacity']:+.3f}, other parameters of "
        f"the law {mean['rest']:+.3f}, misfit {mean['misfit']:+.3f}."
    )


def short(shift: "DeltaPhi") -> str:
    """One line: cases, split, shift with its interval."""
    low, high = shift.interval
    names = " to ".join(name or role for name, role in zip(shift.cases, CASES, strict=True))
    return (
        f"<DeltaPhi {names}, split {shift.split}: {shift.delta_phi:+.4f} [{low:+.3f}, {high:+.3f}]>"
    )


def text(shift: "DeltaPhi", warnings: bool = True) -> str:
    """The whole shift: verdict, φ of both cases, parts of the loss change, widths, warnings."""
    lines = [shift.verdict, _settings(shift), "", _table(shift).to_string(index=False)]
    for title, table in _diagnosis(shift):
        lines += ["", title, table.to_string(na_rep="")]
    if warnings:
        lines += ["", *(f"warning: {warning}" for warning in shift.warnings)]
    return "\n".join(lines)


def html(shift: "DeltaPhi") -> str:
    """The whole shift for a notebook: the same content as `text`."""
    tables = [_table(shift).to_html(index=False, border=0)]
    for title, table in _diagnosis(shift):
        tables.append(f"<p>{escape.escape(title)}</p>{table.to_html(na_rep='', border=0)}")
    lines = [_settings(shift), *(f"Warning: {warning}" for warning in shift.warnings)]
    notes = "<br>".join(escape.escape(line) for line in lines)
    return f"<p>{escape.escape(shift.verdict)}</p>{''.join(tables)}<p>{notes}</p>"


def _diagnosis(shift: "DeltaPhi") -> Iterator[tuple[str, pd.DataFrame]]:
    """Titles and tables of the parts of the loss change and of the optimum's move."""
    if shift.decomposition.empty:
        return
    by_r = shift.decomposition.drop(columns=["budget", "d_model"]).groupby("n_recur").mean()
    by_r.index = [f"r = {r}" for r in by_r.index]
    ends = shift.parts[["mean", "low", "high"]].T
    title = "Change of the loss at equal FLOPs and width, nats per token, mean over budgets:"
    yield title, pd.concat([by_r, ends]).map("{:+.4f}".format).replace("+nan", "")
    widths = shift.width_shift.drop(columns="budget").groupby("n_recur").mean().dropna(axis=1)
    widths.index = [f"r = {r}" for r in widths.index]
    title = "Optimum of the variant over that of the baseline (gain: nats per token):"
    yield title, widths.map("{:.4f}".format)


def _table(shift: "DeltaPhi") -> pd.DataFrame:
    rows = [
        (name or role, f"{each.params['phi']:.4f}", *each.resampled.interval("phi"))
        for role, name, each in zip(CASES, shift.cases, shift.fits, strict=True)
    ]
    rows.append(("shift", f"{shift.delta_phi:+.4f}", *shift.interval))
    table = pd.DataFrame(rows, columns=["case", "φ", "low", "high"])
    return table.assign(
        low=table["low"].map("{:.4f}".format), high=table["high"].map("{:.4f}".format)
    )


def _settings(shift: "DeltaPhi") -> str:
    drawn = shift.variant.resampled
    unit = "(budget, r) cells" if drawn.method == "block" else "runs"
    budgets = ", ".join(f"{budget:.3g}" for budget in shift.budgets)
    sources = ", ".join(shift.variant.sources)
    return (
        f"{shift.cases[1]} against {shift.cases[0]}: {sources} runs, split {shift.split}, "
        f"r = {', '.join(map(str, shift.n_recur))} and 1 at {budgets} FLOPs; "
        f"{shift.level:.0%} intervals, paired {drawn.method} bootstrap of {drawn.n_units} {unit}, "
        f"{drawn.resamples} resamples of {drawn.starts} starts, seed {drawn.seed}"
    )


def to_dict(shift: "DeltaPhi") -> dict[str, Any]:
    """Plain values, for JSON."""
    parts, drawn = shift.parts, shift.variant.resampled
    ratios = [name for name in RATIOS if shift.width_shift[name].notna().any()]
    return {
        "delta_phi": shift.delta_phi,
        "interval": list(shift.interval),
        "level": shift.level,
        "phi_baseline": shift.baseline.params["phi"],
        "phi_variant": shift.variant.params["phi"],
        "p_sign": shift.p_sign,
        "decomposition": {
            **parts["mean"].to_dict(),
            "intervals": parts[["low", "high"]].dropna().T.to_dict("list"),
            "cells": records(shift.decomposition),
        },
        "width_shift": {
            **{name: float(shift.width_shift[name].mean()) for name in ratios},
            "cells": records(shift.width_shift),
        },
        "quality": records(shift.quality),
        "kind": shift.kind,
        "verdict": shift.verdict,
        "warnings": list(shift.warnings),
        "cases": list(shift.cases),
        "split": shift.split,
        "budgets": list(shift.budgets),
        "n_recur": list(shift.n_recur),
        "fits": {
            name: {"params": each.params, "n_runs": each.n_runs, "r2": each.r2}
            | {"rmse": each.rmse, "phi_interval": list(each.resampled.interval("phi"))}
            for name, each in zip(CASES, shift.fits, strict=True)
        },
        "resamples": drawn.resamples,
        "method": drawn.method,
        "starts": shift.variant.starts,
        "resample_starts": drawn.starts,
        "seed": shift.variant.seed,
        "versions": shift.variant.versions,
    }


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as dictionaries, with None for a missing value."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")
