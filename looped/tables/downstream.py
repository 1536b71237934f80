"""Tables of downstream tasks: the paper's printed losses, and primitives that were measured."""

import numpy as np
import pandas as pd

from looped.registry import published
from looped.studies import get_grid

RECURRENCES = {f"r{r}": r for r in (1, 2, 4, 8)}
COLUMNS = list(RECURRENCES)
WIDE = {name: f"r = {r}" for name, r in RECURRENCES.items()}


def task_list(tasks: pd.DataFrame) -> pd.DataFrame:
    """The tasks of `looped.published.downstream`: axis, task, samples, shots, type."""
    return tasks[["axis", "task", "samples", "shots", "type"]]


def task_losses(tasks: pd.DataFrame) -> pd.DataFrame:
    """Printed loss of each task by recurrence, with the range of r = 1 (least, most)."""
    shown = tasks[["axis", "task", *COLUMNS, "r1_low", "r1_high"]]
    return shown.rename(columns=WIDE | {"r1_low": "least", "r1_high": "most"})


def task_gaps(tasks: pd.DataFrame) -> pd.DataFrame:
    """Loss of each task above that of r = 1.

    Returns:
        axis, task, n_recur, gap (nats/token), share (of the range of r = 1 over the budgets).
    """
    known = ["axis", "task", "r1", "r1_low", "r1_high"]
    gaps = tasks.melt(known, COLUMNS[1:], "column", "loss")
    gaps["n_recur"] = gaps["column"].map(RECURRENCES)
    gaps["gap"] = gaps["loss"] - gaps["r1"]
    gaps["share"] = gaps["gap"] / (gaps["r1_high"] - gaps["r1_low"])
    return gaps[["axis", "task", "n_recur", "gap", "share"]]


def order_numbers(tasks: pd.DataFrame) -> dict[str, float | int | str]:
    """Numbers of the tasks whose loss grows with every r, for prose.

    Returns:
        n_ordered of n_knowledge tasks of knowledge; n_others of n_other_tasks elsewhere, with
        their names (others) and the number expected of a random order (by_luck); of the n_rest
        gaps of tasks without this order, the negative ones.
    """
    ordered = tasks[(tasks[COLUMNS].diff(axis=1).iloc[:, 1:] > 0).all(axis=1)]
    others = ordered.loc[ordered["axis"] != "knowledge", "task"]
    gaps = task_gaps(tasks[~tasks["task"].isin(ordered["task"])])["gap"]
    n_other_tasks = int((tasks["axis"] != "knowledge").sum())
    return {
        "n_ordered": len(ordered) - len(others),
        "n_knowledge": len(tasks) - n_other_tasks,
        "n_other_tasks": n_other_tasks,
        "others": " and ".join(others) or "none",
        "n_others": len(others),
        "by_luck": n_other_tasks / 24,
        "negative": int((gaps < 0).sum()),
        "n_rest": len(gaps),
    }


def budget_range() -> tuple[float, float]:
    """Lowest and highest budget of the published minima, FLOPs."""
    budgets = published.minima()["budget"]
    return budgets.min(), budgets.max()


def axis_points(tasks: pd.DataFrame) -> pd.DataFrame:
    """Mean loss of each axis against validation loss, at one budget and for the large pair.

    Returns:
        panel (axis), n_recur, loss, budget (FLOPs), val_loss (nats/token), source.
    """
    means = tasks.groupby("axis", sort=False)[COLUMNS].mean().rename(columns=RECURRENCES)
    pair = _pair()
    large = pair.loc[means.index]
    both = {
        budget_range()[1]: (means, _val_losses()),
        get_grid("paper-extrapolation")[0].flops: (large, pair.loc["validation loss"]),
    }
    return pd.concat(
        [
            losses.rename_axis("panel")
            .melt(var_name="n_recur", value_name="loss", ignore_index=False)
            .reset_index()
            .assign(budget=budget, val_loss=lambda rows, x=val: rows["n_recur"].map(x))
            for budget, (losses, val) in both.items()
        ]
    ).assign(source="published")


def axis_means(tasks: pd.DataFrame) -> pd.DataFrame:
    """Mean loss of each axis by recurrence, and its correlation with the validation loss.

    Returns:
        axis, a column "r = 4" for each recurrence (nats/token), correlation (Pearson, over r).
    """
    means = tasks.groupby("axis", sort=False)[COLUMNS].mean().rename(columns=RECURRENCES)
    correlation = means.T.corrwith(_val_losses())
    shown = means.rename(columns="r = {}".format).assign(correlation=correlation)
    return shown.reset_index()


def correlations(tasks: pd.DataFrame) -> dict[str, float]:
    """Correlation of the mean over the axes (macro), and the two that the paper reports."""
    macro = tasks.groupby("axis")[COLUMNS].mean().mean().rename(RECURRENCES)
    printed = published.claims().set_index("id")["value"]
    reported = {name: float(printed[name]) for name in ("fig13_loss", "fig13_accuracy")}
    return {"macro": macro.corr(_val_losses())} | reported


def large_pair(tasks: pd.DataFrame) -> pd.DataFrame:
    """Losses of the large pair: quantity, r = 1, r = 4, gap (nats/token)."""
    pair = _pair()
    shown = pair.loc[["validation loss", *tasks["axis"].unique()]]
    shown = shown.assign(gap=shown[4] - shown[1])
    return shown.rename(columns={1: "r = 1", 4: "r = 4"}).reset_index()


def large_pair_numbers() -> dict[str, float | str]:
    """Axes with the largest and the smallest gap of the large pair, and its compute (times)."""
    pair = _pair()
    gaps = (pair[4] - pair[1]).drop("validation loss")
    times = get_grid("paper-extrapolation")[0].flops / budget_range()[1]
    return {"largest": gaps.idxmax(), "smallest": gaps.idxmin(), "times": times}


def assignment_guess(tasks: pd.DataFrame) -> dict[str, float | int]:
    """Loss of a guess among the five values of variable assignment, beside the reported losses.

    The values are 1 to 25; a value has one token for the space before it and one for each digit.

    Returns:
        by_token, by_example, by_digit (nats/token: mean over tokens, over examples, and without
        the space); n_above (reported losses above by_token), n_losses, best (the lowest).
    """
    tokens = np.array([1 + len(str(value)) for value in range(1, 26)])
    by_token = np.log(5) / tokens.mean()
    reported = tasks.loc[tasks["task"].str.startswith("VarAssign"), COLUMNS].to_numpy()
    return {
        "by_token": by_token,
        "by_example": np.log(5) * (1 / tokens).mean(),
        "by_digit": np.log(5) / (tokens - 1).mean(),
        "n_above": int((reported > by_token).sum()),
        "n_losses": reported.size,
        "best": reported.min(),
    }


def primitive_losses(measured: pd.DataFrame) -> pd.DataFrame:
    """Losses of `looped.evaluate_checkpoint`: its rows with loss (nats/token), source, panel."""
    rows = measured[measured["metric"] == "loss"].rename(columns={"value": "loss"})
    return rows.assign(source="measured", panel=rows["task"])


def primitives(measured: pd.DataFrame) -> pd.DataFrame:
    """Losses on each primitive over the runs, beside those of a guess.

    Returns:
        task, runs, shots, examples, lowest, highest, largest se, listed, any (nats/token; the
        last two of a guess among the listed and among all answers), best accuracy.
    """
    rows = primitive_losses(measured)
    accuracy = measured[measured["metric"] == "accuracy"].groupby("task")["value"].max()
    summary = rows.groupby("task", sort=False).agg(
        runs=("loss", "size"),
        shots=("n_shots", "max"),
        examples=("n_examples", "max"),
        lowest=("loss", "min"),
        highest=("loss", "max"),
        se=("se", "max"),
        listed=("chance_listed", "mean"),
        any=("chance_any", "mean"),
    )
    summary = summary.join(accuracy.rename("best accuracy")).reset_index()
    return summary.rename(columns={"se": "largest se"})


def primitive_numbers(measured: pd.DataFrame) -> dict[str, float | int]:
    """Numbers of the measured primitives, for prose.

    Returns:
        n_above_chance of n_measured losses; n_models, examples (fewest), best_accuracy and the
        accuracy of a guess on its task (guess), least_val, most_val (nats/token).
    """
    rows = primitive_losses(measured)
    accuracy = measured[measured["metric"] == "accuracy"]
    first = rows.loc[rows["task"] == rows["task"].iloc[0], "val_loss"]
    return {
        "n_above_chance": int((rows["loss"] > rows["chance_any"]).sum()),
        "n_measured": len(rows),
        "n_models": rows["run_id"].nunique(),
        "examples": int(rows["n_examples"].min()),
        "best_accuracy": accuracy["value"].max(),
        "guess": accuracy.loc[accuracy["value"].idxmax(), "chance_any"],
        "least_val": first.min(),
        "most_val": first.max(),
    }


def _val_losses() -> pd.Series:
    """Published validation loss of the baseline's minima at the highest budget, by n_recur."""
    minima = published.minima()
    at = minima[(minima["case"] == "baseline") & (minima["budget"] == minima["budget"].max())]
    return at.set_index("n_recur")["val_loss_star"]


def _pair() -> pd.DataFrame:
    return published.extrapolation().rename(columns=RECURRENCES).set_index("quantity")
