"""Tables of grids: planned runs and their state, injections compared, learning rates swept."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from looped.paths import runs_dir
from looped.registry import published
from looped.registry.cells import pooled_sd
from looped.registry.record import RunRecord, load_records
from looped.spec import RunSpec
from looped.studies import get_grid

RATE_COLUMNS = ["n_recur", "d_model", "n_tokens", "val_loss", "lr"]
RESOLVED = 2.0
"""Standard deviations of a difference beyond which the difference is resolved."""


def records_of(source: str) -> list[RunRecord]:
    """Records of a folder in `runs/`, or of a path; none if the folder holds none yet."""
    return load_records(source) if any((runs_dir() / source).glob("*.json")) else []


def planned_runs(specs: Sequence[RunSpec]) -> pd.DataFrame:
    """Runs of a grid before they are trained, for `budgets`: the columns of `RunSpec.row`."""
    return pd.DataFrame([spec.row() for spec in specs])


def run_states(status: pd.DataFrame) -> pd.DataFrame:
    """Runs of `looped.grid_status` by budget and state.

    Returns:
        budget, state, runs, best, worst (nats/token), tokens_per_second (the median).
    """
    groups = status.groupby(["budget", "state"])
    return groups.agg(
        runs=("run_id", "size"),
        best=("val_loss", "min"),
        worst=("val_loss", "max"),
        tokens_per_second=("tokens_per_second", "median"),
    ).reset_index()


def published_injections() -> pd.DataFrame:
    """Published losses by injection: variant, tokens (M), loss, over (the linear injection)."""
    printed = published.claims().set_index("id")["value"]
    rows = []
    for spec in get_grid("paper-injection"):
        name = spec.model.variant
        loss = float(printed[f"inj_{name}"])
        rows.append({"variant": name, "tokens (M)": spec.train.n_tokens / 1e6, "loss": loss})
    table = pd.DataFrame(rows)
    linear = table.loc[table["variant"] == "linear", "loss"].item()
    return table.assign(over=table["loss"] - linear)


def failed_injection() -> dict[str, float]:
    """Published loss of passthrough (failed), and of a uniform guess (uniform), nats per token."""
    losses = published_injections().set_index("variant")["loss"]
    n_vocab = get_grid("paper-injection")[0].model.n_vocab
    return {"failed": losses["passthrough"], "uniform": float(np.log(n_vocab))}


def injections(records: Sequence[RunRecord], sd: float) -> pd.DataFrame:
    """Measured losses by injection of the grid laptop-injection, missing where not trained.

    Args:
        records: the trained runs.
        sd: standard deviation of the difference of two seeds, nats per token.

    Returns:
        variant, tokens, loss, over (the linear injection), in deviations (over / sd).
    """
    known = {r.run_spec.model.variant: r.result.val_loss for r in records}
    rows = [
        {"variant": spec.model.variant, "tokens": spec.train.n_tokens}
        for spec in get_grid("laptop-injection")
    ]
    table = pd.DataFrame(rows)
    table["loss"] = table["variant"].map(known).astype(float)
    table["over"] = table["loss"] - known.get("linear", np.nan)
    return table.assign(**{"in deviations": table["over"] / sd})


def injection_verdict(table: pd.DataFrame) -> str:
    """Sentences on the order of `injections`, and which of them differ from the linear one."""
    trained = table.dropna(subset="loss").sort_values("loss")["variant"]
    if "linear" not in set(trained):
        return "Their order at laptop scale is not known yet."
    clear = table.loc[table["in deviations"].abs() > RESOLVED, "variant"]
    return (
        f"From the lowest loss to the highest, the order is {', '.join(trained)}. Resolved against "
        f"the linear injection: {', '.join(clear) or 'none'}."
    )


def passthrough_verdict(table: pd.DataFrame, n_vocab: int) -> str:
    """Sentences on the measured passthrough of `injections`, beside a guess among all tokens."""
    losses = table.set_index("variant")["loss"]
    over = losses["passthrough"] - losses["linear"]
    if np.isnan(over):
        return "The laptop's passthrough has not been trained yet."
    return (
        f"The laptop's passthrough ends {over:.2f} nats above the linear injection, at "
        f"{losses['passthrough']:.2f}, where a guess has {np.log(n_vocab):.1f}: it trains, but far "
        "worse. The stack, recipe and scale differ from the paper's and there is one seed, so this "
        "run cannot show what else the paper's failure needs."
    )


def rate_runs(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Runs of a sweep of learning rates: n_recur, d_model, n_tokens, val_loss, lr."""
    rows = [record.row() | {"lr": record.run_spec.train.lr} for record in records]
    return pd.DataFrame(rows, columns=RATE_COLUMNS)


def rate_regret(sweep: pd.DataFrame) -> pd.DataFrame:
    """Loss above that of the best rate for the same r: lr, and a column "r = 4" for each r."""
    losses = sweep.pivot(index="lr", columns="n_recur", values="val_loss")
    return (losses - losses.min()).rename(columns="r = {}".format).reset_index()


def shared_rate(sweep: pd.DataFrame) -> tuple[float, float]:
    """Rate with the smallest worst regret over r, and that regret in nats per token."""
    worst = rate_regret(sweep).set_index("lr").max(axis=1)
    return float(worst.idxmin()), float(worst.min())


def best_rates(sweep: pd.DataFrame) -> str:
    """Best rate of each recurrence in words: "0.01 at r = 1, 0.02 at r = 4"."""
    best = sweep.loc[sweep.groupby("n_recur")["val_loss"].idxmin()]
    return ", ".join(f"{run.lr:g} at r = {run.n_recur}" for run in best.itertuples())


def rate_panels(home: pd.DataFrame, away: pd.DataFrame) -> pd.DataFrame:
    """Sweeps at the reference and elsewhere, with a panel for each width and horizon.

    Args:
        home: sweep at the reference; only the recurrences of laptop-lr-transfer are used.
        away: sweeps at other widths and horizons; may be empty.

    Returns:
        The rows of both with panel, and is_away, false for the rows of `home`.
    """
    kept = {spec.model.n_recur for spec in get_grid("laptop-lr-transfer")}
    home = home[home["n_recur"].isin(kept)].assign(is_away=False)
    parts = [home, away.assign(is_away=True)] if len(away) else [home]
    both = pd.concat(parts, ignore_index=True)
    millions = (both["n_tokens"] / 1e6).map("{:.2g}M tokens".format)
    return both.assign(panel="d_model = " + both["d_model"].astype(str) + ", " + millions)


def rate_transfer(panels: pd.DataFrame, rate: float, sd: float) -> pd.DataFrame:
    """Best rate of each sweep, and the regret of one rate that all share.

    Args:
        panels: of `rate_panels`.
        rate: the shared rate.
        sd: standard deviation of the difference of two seeds, nats per token.

    Returns:
        panel, n_recur, best rate, loss, regret (nats/token), in deviations (regret / sd).
    """
    at = panels.groupby(["panel", "n_recur"], sort=False)
    best = panels.loc[at["val_loss"].idxmin(), ["panel", "n_recur", "lr", "val_loss"]]
    shared = panels.loc[panels["lr"] == rate, ["panel", "n_recur", "val_loss"]]
    table = best.merge(shared, on=["panel", "n_recur"], how="left", suffixes=("", "_shared"))
    regret = table.pop("val_loss_shared") - table["val_loss"]
    table = table.rename(columns={"lr": "best rate", "val_loss": "loss"})
    return table.assign(regret=regret, **{"in deviations": regret / sd})


def transfer_verdict(panels: pd.DataFrame, rate: float) -> str:
    """Sentence on the sweeps away from the reference, or that there are none yet."""
    names = panels.loc[panels["is_away"], "panel"]
    table = rate_transfer(panels, rate, 1.0)
    apart = table.loc[table["panel"].isin(set(names)), "regret"]
    if apart.empty:
        return (
            "The sweeps at another width and horizon have not been trained yet, so only the "
            "reference is shown; the command looped grid launch laptop-lr-transfer trains them."
        )
    return (
        f"Away from the reference, {rate:g} is the best of the three rates in "
        f"{int((apart == 0).sum())} of {len(apart)} sweeps; the largest regret is "
        f"{apart.max():.3f} nats."
    )


def noise_numbers(noise: pd.DataFrame) -> dict[str, float | int]:
    """Numbers of `looped.seed_noise`, for prose.

    Returns:
        sd, sd_two (standard deviation over seeds, and of the difference of two runs, nats/token),
        n_cells, df (degrees of freedom).
    """
    sd = pooled_sd(noise)
    df = int((noise["seeds"] - 1).sum())
    return {"sd": sd, "sd_two": 2**0.5 * sd, "n_cells": len(noise), "df": df}
