"""Tables of runs: how many, at which widths, their minima, and how far to trust a loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from looped.fitting.isoflop import isoflop_minima
from looped.fitting.result import FitResult
from looped.registry import published
from looped.registry.read import load_runs
from looped.registry.record import RunRecord


def runs_by_case(runs: pd.DataFrame) -> pd.DataFrame:
    """Number of runs of each case: case, and a column "r = 4" for each recurrence."""
    counted = runs.pivot_table(
        index="case", columns="n_recur", values="val_loss", aggfunc="size", fill_value=0, sort=False
    )
    return counted.rename(columns="r = {}".format).reset_index()


def tokens_by_width(runs: pd.DataFrame) -> pd.DataFrame:
    """Training tokens in billions at r = 1: d_model, and a column for each budget (FLOPs)."""
    plain = runs[runs["n_recur"] == 1].assign(billions=lambda table: table["n_tokens"] / 1e9)
    grid = plain.pivot(index="d_model", columns="budget", values="billions")
    return grid.rename(columns="{:.3g}".format).reset_index()


def minima_beside_published(minima: pd.DataFrame) -> pd.DataFrame:
    """IsoFLOP minima of the baseline beside the published ones of the same cells.

    Returns:
        n_recur, budget, n_params_star, N* published, val_loss_star, L* published (nats/token).
    """
    printed = published.minima().query("case == 'baseline'")
    names = {"n_params_star": "N* published", "val_loss_star": "L* published"}
    both = minima.merge(printed.rename(columns=names), on=["n_recur", "budget"])
    return both[["n_recur", "budget", *(n for pair in names.items() for n in pair)]]


def minima_errors(beside: pd.DataFrame) -> dict[str, float]:
    """Largest error of `minima_beside_published`: loss_error (nats), size_error (relative)."""
    size = beside["n_params_star"] / beside["N* published"] - 1
    loss = beside["val_loss_star"] - beside["L* published"]
    return {"loss_error": loss.abs().max(), "size_error": size.abs().max()}


def minima_of_cases(source: str, cases: Sequence[str]) -> pd.DataFrame:
    """IsoFLOP minima of several cases of one source, with the column case."""
    by_case = {case: isoflop_minima(load_runs(source, case=case)) for case in cases}
    return pd.concat(by_case, names=["case"]).reset_index("case").reset_index(drop=True)


def refused(minima: pd.DataFrame) -> pd.DataFrame:
    """Cells whose minimum is not bracketed by runs: case, n_recur, budget, n_runs, refusal."""
    return minima.loc[
        minima["refusal"] != "", ["case", "n_recur", "budget", "n_runs", "refusal"]
    ].reset_index(drop=True)


def reading_errors(runs: pd.DataFrame) -> pd.DataFrame:
    """Reading error of digitised losses by flag: flag, runs, median error, largest error."""
    flagged = runs.assign(flag=runs["flag"].replace("", "none"))
    return flagged.groupby("flag", as_index=False).agg(
        runs=("flag", "size"),
        **{"median error": ("val_loss_se", "median"), "largest error": ("val_loss_se", "max")},
    )


def budgets(runs: pd.DataFrame, minima: pd.DataFrame | None = None) -> pd.DataFrame:
    """Runs of each budget.

    Args:
        runs: budget, n_recur, d_model, n_tokens.
        minima: of `looped.isoflop_minima`; adds the column bracketed, the number of recurrences
            whose minimum lies between two runs.

    Returns:
        budget, runs, r, widths (both as text), fewest tokens, most tokens, bracketed.
    """
    cells = runs.groupby("budget", dropna=False).agg(
        runs=("d_model", "size"),
        r=("n_recur", _listed),
        widths=("d_model", _listed),
        **{"fewest tokens": ("n_tokens", "min"), "most tokens": ("n_tokens", "max")},
    )
    if minima is not None:
        by_budget = minima["refusal"].eq("").groupby(minima["budget"])
        cells["bracketed"] = by_budget.agg(lambda ok: f"{ok.sum()} of {len(ok)}")
    return cells.reset_index()


def gap_numbers(gaps: pd.DataFrame, sd: float) -> dict[str, float | int]:
    """Numbers of the gaps to r = 1, for prose.

    Args:
        gaps: of `looped.loss_gaps`.
        sd: standard deviation of a loss over seeds, nats per token.

    Returns:
        gap_least, gap_most (nats/token), resolved (gaps of more than two sd), n_gaps.
    """
    gap = gaps["gap"].to_numpy()
    resolved = int(np.sum(gap > 2 * sd))
    return {
        "gap_least": gap.min(),
        "gap_most": gap.max(),
        "resolved": resolved,
        "n_gaps": len(gap),
    }


def foreign_file(runs: pd.DataFrame, fit: FitResult, seed: int, sd: float = 1e-3) -> pd.DataFrame:
    """Simulated runs with column names of another project, as an example to ingest.

    Args:
        runs: sizes of the simulated runs.
        fit: the law that gives the losses.
        seed: of the noise.
        sd: standard deviation of the noise, in log loss.

    Returns:
        r, hidden_size, D, eval/loss (nats/token), source, lr; neither parameters nor FLOPs.
    """
    noise = np.random.default_rng(seed).normal(0, sd, len(runs))
    names = {"n_recur": "r", "d_model": "hidden_size", "n_tokens": "D"}
    file = runs[list(names)].rename(columns=names)
    loss = fit.predict(runs) * np.exp(noise)
    return file.assign(**{"eval/loss": loss, "source": "simulated", "lr": 0.014})


def training_results(records: Mapping[int, RunRecord]) -> pd.DataFrame:
    """Results of trained models, one row each.

    Args:
        records: n_recur -> record.

    Returns:
        n_recur, n_tokens, flops, val_loss, val_loss_se (nats/token), tokens_per_second.
    """
    columns = ["n_recur", "n_tokens", "flops", "val_loss", "val_loss_se", "tokens_per_second"]
    rows = [{"n_recur": r} | record.result.model_dump() for r, record in records.items()]
    return pd.DataFrame(rows, columns=columns)


def training_steps(
    records: Mapping[int, RunRecord], metrics: Mapping[int, Sequence[Mapping[str, Any]]]
) -> pd.DataFrame:
    """Steps of trained models with the loss after the last step, one row a step.

    Args:
        records: n_recur -> record.
        metrics: n_recur -> rows of `looped.read_metrics`.

    Returns:
        n_recur, the columns of `metrics`, val_loss, val_loss_se (nats/token).
    """
    losses = training_results(records)[["n_recur", "val_loss", "val_loss_se"]]
    steps = [{"n_recur": r, **step} for r, rows in metrics.items() for step in rows]
    return pd.DataFrame(steps, columns=None if steps else ["n_recur"]).merge(losses, on="n_recur")


def _listed(values: pd.Series) -> str:
    return ", ".join(map(str, sorted(set(values))))
