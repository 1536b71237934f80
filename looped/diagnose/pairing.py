"""Two comparable cases, with the same (budget, r) cells and the same r = 1 runs, or a refusal."""

from collections.abc import Sequence

import pandas as pd

from looped.registry.cells import CELL, cell_numbers

ANCHOR = ["budget", "n_params", "n_tokens", "val_loss"]
"""Columns in which the r = 1 runs of both cases have to agree."""


def paired(
    baseline: pd.DataFrame, variant: pd.DataFrame, budgets: Sequence[float] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """The runs of both cases in the cells that they share, and notes on the runs left out.

    A variant without r = 1 runs takes those of the baseline: both φ then have the same anchor.

    Raises:
        ValueError: no looped cell in common, a budget that one case lacks, different r = 1
            runs, or runs without budget and r.
    """
    for runs in (baseline, variant):
        cell_numbers(runs)
    if not (variant["n_recur"] == 1).any():
        variant = pd.concat([baseline[baseline["n_recur"] == 1], variant])
    if budgets is not None:
        baseline, variant = (_at(runs, budgets) for runs in (baseline, variant))
    shared = set.intersection(
        *(set(map(tuple, runs[CELL].to_numpy())) for runs in (baseline, variant))
    )
    if not any(n_recur > 1 for n_recur, _ in shared):
        raise ValueError(
            f"the cases share no (budget, r) cell with r > 1: the baseline has {_cells(baseline)}, "
            f"the variant {_cells(variant)}; train both at the same r and the same nominal "
            "(planned, not spent) budgets"
        )
    # an anchor at a budget without looped cells would move A, B and E and say nothing about φ
    looped_at = {budget for n_recur, budget in shared if n_recur > 1}
    kept = {cell for cell in shared if cell[1] in looped_at}
    pair = [_keep(runs, kept) for runs in (baseline, variant)]
    _require_one_anchor(*pair)
    notes = [
        f"{name}: {dropped} runs in cells that the other case lacks are left out"
        for name, runs, left in zip(("baseline", "variant"), (baseline, variant), pair, strict=True)
        if (dropped := len(runs) - len(left))
    ]
    return *pair, notes


def _at(runs: pd.DataFrame, budgets: Sequence[float]) -> pd.DataFrame:
    absent = sorted(set(budgets) - set(runs["budget"]))
    if absent:
        raise ValueError(
            f"budgets: got {absent}, which case {case_name(runs)!r} does not have; it has "
            f"{sorted(runs['budget'].unique().tolist())}: choose shared ones"
        )
    return runs[runs["budget"].isin(budgets)]


def _keep(runs: pd.DataFrame, cells: set) -> pd.DataFrame:
    inside = [tuple(cell) in cells for cell in runs[CELL].to_numpy()]
    return runs[inside].reset_index(drop=True)


def _require_one_anchor(baseline: pd.DataFrame, variant: pd.DataFrame) -> None:
    anchors = [
        runs.loc[runs["n_recur"] == 1, ANCHOR].sort_values(ANCHOR).reset_index(drop=True)
        for runs in (baseline, variant)
    ]
    if anchors[0].empty:
        raise ValueError(
            "no r = 1 runs at the shared budgets: φ has no non-looped anchor; add them to the "
            "baseline"
        )
    if not anchors[0].equals(anchors[1]):
        raise ValueError(
            f"the cases have different r = 1 runs ({len(anchors[0])} and {len(anchors[1])}): a "
            "shift of φ between two anchors has no meaning; give both the same r = 1 runs, or "
            "leave out those of the variant"
        )


def _cells(runs: pd.DataFrame) -> str:
    looped = runs[runs["n_recur"] > 1]
    if looped.empty:
        return "none"
    budgets = [f"{budget:.3g}" for budget in sorted(looped["budget"].unique())]
    shown = ", ".join(budgets[:6]) + (f", ... ({len(budgets)})" if len(budgets) > 6 else "")
    return f"r = {sorted(looped['n_recur'].unique().tolist())} at [{shown}] FLOPs"


def case_name(runs: pd.DataFrame) -> str:
    """Name of the case of the looped runs; empty where the table has none."""
    looped = runs[runs["n_recur"] > 1]
    return " and ".join(sorted(looped["case"].unique())) if "case" in runs else ""
