"""Tables of fits: beside published values, by recurrence, by split, and in parameters."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from looped.config import ModelConfig
from looped.diagnose.equivalence import break_even_phi, equivalence, matched_losses
from looped.fitting.result import Bootstrap, FitResult
from looped.fitting.summary import fit_table
from looped.laws.law import Law
from looped.laws.optimal import exponents, power_law_exponents
from looped.registry import published
from looped.registry.cells import CELL
from looped.splits import SPLITS

FITTED = ["phi", "alpha", "beta", "E", "r2", "rmse"]


def by_recurrence(cells: pd.DataFrame, value: str) -> pd.DataFrame:
    """One value of each (n_recur, budget) cell: budget, and a column "r = 4" for each r."""
    wide = cells.pivot(index="budget", columns="n_recur", values=value)
    return wide.rename(columns="r = {}".format).rename_axis(columns=None).reset_index()


def mean_residuals(runs: pd.DataFrame, fit: FitResult) -> pd.DataFrame:
    """Mean residual (actual - predicted) of each cell: n_recur, budget, residual."""
    return runs.assign(residual=fit.residuals).groupby(CELL)["residual"].mean().reset_index()


def beside_published(fits: Mapping[str, FitResult], studies: Mapping[str, str]) -> pd.DataFrame:
    """Each fit with the published values of the same study in the row below it.

    Args:
        fits: label -> fit.
        studies: label -> name of the study in the ids of the claims, as low4 in phi_low4.

    Returns:
        fit (label, or "published"), n_runs, phi, alpha, beta, E, r2, rmse.
    """
    printed = published.claims().set_index("id")["value"]
    rows = []
    for (_, fitted), study in zip(fit_table(dict(fits)).iterrows(), studies.values(), strict=True):
        if f"phi_{study}" not in printed:
            raise ValueError(f"study: got {study!r}, but no claim has the id phi_{study}")
        claims = {name: float(printed.get(f"{name}_{study}", "nan")) for name in FITTED}
        rows += [fitted[["fit", "n_runs", *FITTED]].to_dict(), {"fit": "published", **claims}]
    return pd.DataFrame(rows).astype({"n_runs": "Int64"})


def beside_minima(
    minima: pd.DataFrame, law: Law, stacks: Mapping[int, ModelConfig]
) -> pd.DataFrame:
    """Compute-optimal sizes of a law beside the minima of the isoFLOP parabolas.

    Args:
        minima: of `looped.isoflop_minima`.
        law: the law.
        stacks: r -> architecture.

    Returns:
        n_recur, budget, ratio (N* of the law over that of the parabola), difference (L* of the law
        minus that of the parabola).
    """
    budgets = sorted(minima["budget"].unique())
    optimal = pd.concat([law.optimal(budgets, stack) for stack in stacks.values()])
    both = minima.merge(optimal, on=CELL, suffixes=("", "_law"))
    return both[CELL].assign(
        ratio=both["n_params_star_law"] / both["n_params_star"],
        difference=both["val_loss_star_law"] - both["val_loss_star"],
    )


def bootstraps(resampled: Mapping[str, Bootstrap]) -> pd.DataFrame:
    """Intervals of φ by the unit that is resampled.

    Returns:
        resampled (the key), units, phi_low, phi_high, edge_error (Monte Carlo error of the ends),
        at 0, at 1 (resamples that reach the value), missed (resamples whose starts missed).
    """
    rows = []
    for label, each in resampled.items():
        low, high = each.interval("phi")
        row = {"resampled": label, "units": each.n_units, "phi_low": low, "phi_high": high}
        row |= {"edge_error": each.edge_error("phi"), "at 0": each.touched(0)}
        rows.append(row | {"at 1": each.touched(1), "missed": each.refits_worse})
    return pd.DataFrame(rows)


def exponents_by_method(
    fits: Mapping[int, FitResult],
    stacks: Mapping[int, ModelConfig],
    runs: pd.DataFrame,
    optimal: pd.DataFrame,
    minima: pd.DataFrame,
) -> pd.DataFrame:
    """Exponents of N* and D* in C by three methods, one row a recurrence.

    Args:
        fits: r -> law of that recurrence.
        stacks: r -> architecture.
        runs: the fitted runs, whose widths the power law F = k N^κ is fitted over.
        optimal: of `Law.optimal`, concatenated over r.
        minima: of `looped.isoflop_minima`.

    Returns:
        n_recur, kappa, and N* and D* by "power law", "exact" and "parabolas".
    """
    widths = runs.groupby("n_recur")["d_model"]
    power = pd.DataFrame(
        {r: power_law_exponents(fit.law, stacks[r], widths.get_group(r)) for r, fit in fits.items()}
    ).T
    methods = {"power law": power, "exact": exponents(optimal), "parabolas": exponents(minima)}
    columns = {
        f"{symbol} {method}": found[size]
        for symbol, size in {"N*": "n_params_star", "D*": "n_tokens_star"}.items()
        for method, found in methods.items()
    }
    table = pd.DataFrame({"kappa": power["kappa"], **columns})
    return table.rename_axis("n_recur").reset_index()


def gap_fall(gaps: pd.DataFrame) -> pd.Series:
    """Relative fall of the gap to r = 1 from the lowest budget to the highest, by n_recur."""
    ends = gaps.dropna().sort_values("budget").groupby("n_recur")["gap"].agg(["first", "last"])
    return 1 - ends["last"] / ends["first"]


def phi_by_split(splits: pd.DataFrame) -> pd.DataFrame:
    """φ of each study under each split, from `looped.split_table`: study, n_runs, published, ..."""
    phis = splits.pivot(index="study", columns="split", values="phi")[list(SPLITS)]
    studies = splits.drop_duplicates("study")[["study", "n_runs", "printed"]]
    return studies.rename(columns={"printed": "published"}).merge(phis, on="study")


def shift_by_split(splits: pd.DataFrame) -> pd.DataFrame:
    """Shift of φ of both case studies by split: split, truncated BPTT, hyperconnections."""
    phi = splits.pivot(index="split", columns="study", values="phi").loc[list(SPLITS)]
    shift = phi.sub(phi["four lower budgets"], axis=0)
    return shift[["truncated BPTT", "hyperconnections"]].rename_axis(columns=None).reset_index()


def split_summary(splits: pd.DataFrame) -> dict[str, float | int | str]:
    """Numbers of `looped.split_table` for prose.

    Returns:
        fitted_hits and stated_hits (published φ that the split reproduces), n_studies, r2_spread
        (largest difference of R² between splits), best (split with the lowest Huber sum, with the
        number of studies), spread_phi (of the four lower budgets), spread_truncated, spread_hyper.
    """
    hits = splits.groupby("split")["reproduced"].sum()
    best = splits.loc[splits.groupby("study")["objective"].idxmin(), "split"].value_counts()
    shift = shift_by_split(splits).set_index("split")
    spread = shift.max() - shift.min()
    low4 = splits.loc[splits["study"] == "four lower budgets", "phi"]
    return {
        "fitted_hits": int(hits["fitted"]),
        "stated_hits": int(hits["stated"]),
        "n_studies": splits["study"].nunique(),
        "r2_spread": float(splits.groupby("study")["r2"].agg(np.ptp).max()),
        "best": ", ".join(f"{name} in {count}" for name, count in best.items()),
        "spread_phi": float(low4.max() - low4.min()),
        "spread_truncated": float(spread["truncated BPTT"]),
        "spread_hyper": float(spread["hyperconnections"]),
    }


def equivalents(fits: Mapping[str, FitResult], config: ModelConfig) -> pd.DataFrame:
    """Parameters (millions) of a looped model and of its plain equivalents, one row a split.

    Args:
        fits: split -> fit with its bootstrap.
        config: the looped model.

    Returns:
        split, unique, equal in loss, low, high, equal in cost.
    """
    columns = {
        "unique": "n_params",
        "equal in loss": "n_params_effective",
        "low": "n_params_effective_low",
        "high": "n_params_effective_high",
        "equal in cost": "n_params_equal_cost",
    }
    found = pd.DataFrame([equivalence(fit, config) for fit in fits.values()]) / 1e6
    table = pd.DataFrame({heading: found[name] for heading, name in columns.items()})
    table.insert(0, "split", list(fits))
    return table


def matched(fit: FitResult | Law, config: ModelConfig, budget: float) -> pd.DataFrame:
    """A looped model against plain ones that match it, as ratios plain over looped.

    Returns:
        matched, d_model_looped, d_model_plain, N ratio, D ratio, memory ratio, difference (loss of
        the looped model minus that of the plain one); see `looped.matched_losses`.
    """
    table = matched_losses(fit, config, budget)
    ratios = {"N ratio": "n_params", "D ratio": "n_tokens", "memory ratio": "memory"}
    shown = table[["matched", "d_model_looped", "d_model_plain"]].assign(
        **{name: table[f"{key}_plain"] / table[f"{key}_looped"] for name, key in ratios.items()}
    )
    return shown.assign(difference=table["difference"])


def break_even(
    fit: FitResult | Law, stacks: Mapping[tuple[str, int], ModelConfig], budget: float
) -> pd.DataFrame:
    """φ at which each looped stack equals its plain counterpart: case, and a column for each r.

    Args:
        stacks: (case, r) -> architecture.
        budget: training FLOPs.
    """
    rows = [
        {"case": case, "r": f"r = {r}", "phi": break_even_phi(fit, config, budget)}
        for (case, r), config in stacks.items()
    ]
    wide = pd.DataFrame(rows).pivot(index="case", columns="r", values="phi")
    return wide.rename_axis(columns=None).reset_index()
