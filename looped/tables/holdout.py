"""Tables of an extrapolation: a pair of large models, and budgets that a fit did not see."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from looped.config import ModelConfig
from looped.fitting.holdout import HoldOut, predict_draws
from looped.fitting.isoflop import loss_gaps
from looped.fitting.result import FitResult
from looped.registry import published
from looped.registry.cells import CELL
from looped.studies import get_grid

GAP = "Gap"


def reported_pair(
    source: str, pair: Sequence[int], d_model: int, n_tokens: int
) -> tuple[float, float, float]:
    """Published losses of a pair of large models and their gap, nats per token.

    Missing (NaN) unless the pair is the paper's, compared with the paper's grid.
    """
    trained = {
        (spec.model.n_recur, spec.model.d_model, spec.train.n_tokens)
        for spec in get_grid("paper-extrapolation")
    }
    if source != "paper" or not {(r, d_model, n_tokens) for r in pair} <= trained:
        return np.nan, np.nan, np.nan
    claims = published.claims().set_index("id")["value"]
    first, second = (float(claims[f"extrap_r{r}"]) for r in pair)
    return first, second, float(claims["extrap_gap"])


def pair_reach(runs: pd.DataFrame, large: pd.DataFrame) -> pd.DataFrame:
    """Sizes of large models beside the largest of a grid at the same r.

    Returns:
        size (N, D, D / N, C), n_recur, pair, largest, ratio.
    """
    sizes = {"n_params": "N", "n_tokens": "D", "per_param": "D / N", "budget": "C (FLOPs)"}
    at, most = (
        each.assign(per_param=each["n_tokens"] / each["n_params"])
        .groupby("n_recur")[list(sizes)]
        .max()
        for each in (large, runs)
    )
    rows = [
        {"size": symbol, "n_recur": r, "pair": at.loc[r, size], "largest": most.loc[r, size]}
        for size, symbol in sizes.items()
        for r in at.index
    ]
    return pd.DataFrame(rows).assign(ratio=lambda t: t["pair"] / t["largest"])


def pair_predictions(
    large: pd.DataFrame,
    joint: Mapping[str, FitResult],
    per_r: Mapping[int, FitResult],
    reported: Sequence[float],
) -> pd.DataFrame:
    """Losses of two large models and their gap by each fit, with intervals.

    Args:
        large: one row a model, in the order of `reported`.
        joint: label -> fit of all recurrences, with its bootstrap.
        per_r: r -> law of that recurrence, with its bootstrap. The two share no parameter, so their
            resamples are independent.
        reported: published loss of both and gap, NaN where there is none.

    Returns:
        fit, quantity, predicted, low, high, reported, off (predicted - reported).
    """
    losses = {
        label: (fit.predict(large), predict_draws(fit, fit.resampled, large))
        for label, fit in joint.items()
    }
    rows = [(per_r[r], large.iloc[[i]]) for i, r in enumerate(large["n_recur"])]
    losses["law per r"] = (
        np.concatenate([fit.predict(row) for fit, row in rows]),
        np.hstack([predict_draws(fit, fit.resampled, row) for fit, row in rows]),
    )
    level = next(iter(joint.values())).resampled
    quantities = [*(f"Loss at r = {r}" for r in large["n_recur"]), GAP]
    tables = []
    for label, (point, draws) in losses.items():
        low, high = level.percentiles(np.column_stack([draws, draws[:, 1] - draws[:, 0]]))
        columns = {"fit": label, "quantity": quantities, "predicted": [*point, point[1] - point[0]]}
        tables.append(pd.DataFrame({**columns, "low": low, "high": high, "reported": reported}))
    table = pd.concat(tables, ignore_index=True)
    return table.assign(off=table["predicted"] - table["reported"])


def pair_table(predictions: pd.DataFrame) -> pd.DataFrame:
    """`pair_predictions` as "2.114 [2.106, 2.121]", one row a fit, and a row of reported values."""
    numbers = predictions[["predicted", "low", "high"]].to_numpy()
    cells = predictions.assign(text=[f"{p:.3f} [{a:.3f}, {b:.3f}]" for p, a, b in numbers])
    wide = cells.pivot(index="fit", columns="quantity", values="text")
    wide = wide.loc[predictions["fit"].unique(), predictions["quantity"].unique()]
    reported = predictions.drop_duplicates("quantity")["reported"]
    if reported.notna().all():
        wide.loc["reported"] = [f"{value:.3f}" for value in reported]
    return wide.rename_axis(columns=None).reset_index()


def pair_numbers(predictions: pd.DataFrame) -> dict[str, float | int | str]:
    """Numbers of `pair_predictions` for prose.

    Returns:
        off_first, off_second, common (mean error of both levels) and outside (reported losses that
        lie outside the interval) of the joint law; gap, gap_off, gap_low, gap_high and side (inside
        or outside its interval); own_gap, own_low, own_high of the laws per r; reported_gap.
    """
    by_fit = predictions.set_index(["fit", "quantity"])
    levels = by_fit.loc["joint law"].drop(GAP)
    gap, own = by_fit.loc[("joint law", GAP)], by_fit.loc[("law per r", GAP)]
    inside = gap["low"] <= gap["reported"] <= gap["high"]
    within = levels["reported"].between(levels["low"], levels["high"])
    return {
        "off_first": levels["off"].iloc[0],
        "off_second": levels["off"].iloc[1],
        "common": levels["off"].mean(),
        "outside": int((~within).sum()),
        "side": "inside" if inside else "outside",
        **{"gap": gap["predicted"], "gap_off": gap["off"], "reported_gap": gap["reported"]},
        **{"gap_low": gap["low"], "gap_high": gap["high"]},
        **{"own_gap": own["predicted"], "own_low": own["low"], "own_high": own["high"]},
    }


def gaps_at_width(runs: pd.DataFrame, fit: FitResult, pair: Sequence[int]) -> pd.DataFrame:
    """Loss of r = pair[1] above r = pair[0] at the same width and budget, and by the law.

    Returns:
        budget, d_model, n_recur (pair[1]), n_tokens (of r = pair[1]), source, gap, law.
    """
    wide = runs.assign(law=fit.predict(runs)).pivot(
        index=["budget", "d_model"], columns="n_recur", values=["val_loss", "law", "n_tokens"]
    )
    gaps = {
        name: wide[column][pair[1]] - wide[column][pair[0]]
        for name, column in {"gap": "val_loss", "law": "law"}.items()
    }
    about = {"n_recur": pair[1], "n_tokens": wide["n_tokens"][pair[1]], "source": fit.sources[0]}
    return pd.DataFrame({**about, **gaps}).dropna().reset_index()


def gap_growth(gaps: pd.DataFrame) -> pd.DataFrame:
    """The gap of each width at its largest budget, beside that at the next smaller one.

    Returns:
        d_model, budget, n_tokens, before (missing at a width with one budget), gap, law.
    """
    ordered = gaps.sort_values("n_tokens")
    ordered = ordered.assign(before=ordered.groupby("d_model")["gap"].shift())
    last = ordered.groupby("d_model").tail(1).sort_values("d_model")
    return last[["d_model", "budget", "n_tokens", "before", "gap", "law"]].reset_index(drop=True)


def held_out_means(held: Mapping[tuple[str, str], pd.DataFrame]) -> pd.DataFrame:
    """Mean residual of each cell that a fit did not see.

    Args:
        held: (label, law) -> runs with residual and held_out, as of `looped.hold_out`.

    Returns:
        fit, law, budget, and a column "r = 4" for each r.
    """
    tables = []
    for (label, law), runs in held.items():
        mean = runs[runs["held_out"]].pivot_table(
            index="budget", columns="n_recur", values="residual"
        )
        mean = mean.rename(columns="r = {}".format).rename_axis(columns=None).reset_index()
        tables.append(
            pd.concat([pd.DataFrame({"fit": label, "law": law}, mean.index), mean], axis=1)
        )
    return pd.concat(tables, ignore_index=True)


def held_out_rmse(held: Mapping[tuple[str, str], pd.DataFrame]) -> pd.DataFrame:
    """RMSE over the runs of each fit and over those held out, and their ratio.

    Returns:
        fit, law, rmse, "held out", times.
    """
    rows = []
    for (label, law), runs in held.items():
        rmse = (runs["residual"] ** 2).groupby(runs["held_out"]).mean() ** 0.5
        rows.append({"fit": label, "law": law, "rmse": rmse[False], "held out": rmse[True]})
    return pd.DataFrame(rows).assign(times=lambda t: t["held out"] / t["rmse"])


def held_out_gaps(
    held: Sequence[HoldOut],
    fit: FitResult,
    stacks: Mapping[int, ModelConfig],
    minima: pd.DataFrame,
) -> pd.DataFrame:
    """Loss above r = 1 at the compute optimum of each budget that a fit did not see.

    Returns:
        fit, budget, n_recur, predicted (by the law without the budget), "fitted to all" (by the
        law of all budgets), parabolas (between the isoFLOP minima; missing where there is none).
    """
    measured = loss_gaps(minima).rename(columns={"gap": "parabolas"})
    tables = []
    for each in held:
        predicted = _gaps(each.fit, stacks, each.budgets).rename(columns={"gap": "predicted"})
        seen = _gaps(fit, stacks, each.budgets).rename(columns={"gap": "fitted to all"})
        both = predicted.merge(seen, on=CELL).merge(measured, on=CELL, how="left")
        tables.append(both.assign(fit=each.label))
    columns = ["fit", "budget", "n_recur", "predicted", "fitted to all", "parabolas"]
    return pd.concat(tables, ignore_index=True)[columns]


def _gaps(
    fit: FitResult, stacks: Mapping[int, ModelConfig], budgets: Sequence[float]
) -> pd.DataFrame:
    return loss_gaps(pd.concat([fit.law.optimal(budgets, stack) for stack in stacks.values()]))


def reach_numbers(reach: pd.DataFrame) -> dict[str, float]:
    """Largest ratio of `pair_reach` in tokens, compute and tokens per parameter, for prose."""
    most = reach.groupby("size")["ratio"].max()
    names = {"beyond_tokens": "D", "beyond_c": "C (FLOPs)", "least_ratio": "D / N"}
    return {name: float(most[size]) for name, size in names.items()}


def growth_numbers(growth: pd.DataFrame, d_model: int, n_tokens: float) -> dict[str, float]:
    """Numbers of `gap_growth` for prose.

    Returns:
        n_widths with two budgets, n_rise (widths whose gap grows), and at width d_model: widest
        (gap), widest_law, times (n_tokens over its tokens); missing where no run has that width.
    """
    step = (growth["gap"] - growth["before"]).dropna()
    at = growth.loc[growth["d_model"] == d_model, ["gap", "law", "n_tokens"]].astype(float).mean()
    wide = {"widest": at["gap"], "widest_law": at["law"], "times": n_tokens / at["n_tokens"]}
    return {"n_widths": len(step), "n_rise": int((step > 0).sum()), **wide}


def held_out_numbers(means: pd.DataFrame, quality: pd.DataFrame) -> dict[str, float]:
    """Numbers of `held_out_means` and `held_out_rmse` for prose.

    Returns:
        n_off (means), n_high (of them, where the law is too high), most (largest such error),
        times_least, times_most (RMSE of held-out over fitted runs).
    """
    off, times = means.filter(like="r =").to_numpy(), quality["times"]
    counts = {"n_off": off.size, "n_high": int((off < 0).sum()), "most": -float(off.min())}
    return counts | {"times_least": times.min(), "times_most": times.max()}


def spread_numbers(fits: pd.DataFrame) -> dict[str, float]:
    """phi_spread, E_step (from the first fit to the second) and phi_width of `fit_table`."""
    return {
        "phi_spread": float(np.ptp(fits["phi"])),
        "E_step": float(fits["E"].diff().iloc[1]),
        "phi_width": float((fits["phi_high"] - fits["phi_low"]).min()),
    }
