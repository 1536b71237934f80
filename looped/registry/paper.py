"""The paper's runs, digitised from its public figure; see `runs/paper/README.md`."""

import pandas as pd

from looped import accounting
from looped.paths import runs_dir
from looped.studies.paper import BATCH_TOKENS, case_config


def paper_runs() -> pd.DataFrame:
    """All 240 digitised runs with their counts, tokens and FLOPs from the accounting."""
    digitised = pd.read_csv(runs_dir() / "paper" / "digitised_runs.csv", keep_default_na=False)
    counted = [
        _counted(row.case, row.n_recur, row.width, row.budget) for row in digitised.itertuples()
    ]
    kept = digitised[["case", "n_recur", "budget", "val_loss", "val_loss_se", "flag"]]
    return kept.join(pd.DataFrame(counted)).assign(source="digitised")


def _counted(case, n_recur, width, budget) -> dict:
    """The figure does not show tokens: they are the whole batches nearest to the budget."""
    config = case_config(case, n_recur, width)
    tokens = accounting.tokens_at_budget(config, budget, BATCH_TOKENS)
    counted = accounting.columns(config) | {"n_tokens": tokens}
    return {name: value for name, value in counted.items() if name != "n_recur"}


def published_minima() -> pd.DataFrame:
    """IsoFLOP minima: case, n_recur, budget, n_params_star, val_loss_star, source."""
    return pd.read_csv(runs_dir() / "paper" / "minima.csv")


def published_counts() -> pd.DataFrame:
    """Published n_recur, width, log_n_params, log_flops_per_token."""
    return pd.read_csv(runs_dir() / "paper" / "published_counts.csv")


def published_claims() -> pd.DataFrame:
    """The paper's numbers as printed (strings, so that their digits are kept)."""
    return pd.read_csv(runs_dir() / "paper" / "claims.csv", dtype=str, keep_default_na=False)


def published_downstream() -> pd.DataFrame:
    """Loss of each task at 2.15e19 FLOPs, nats per token (table 9), with table 8's columns.

    Returns:
        axis, task, samples, shots, type, r1, r2, r4, r8; r1_low and r1_high, the range of r = 1
        over the budgets.
    """
    folder = runs_dir() / "paper"
    losses = pd.read_csv(folder / "downstream.csv")
    return pd.read_csv(folder / "tasks.csv").merge(losses, on=["axis", "task"], validate="1:1")


def published_extrapolation() -> pd.DataFrame:
    """The large pair (table 10): quantity, r1, r4; nats per token."""
    return pd.read_csv(runs_dir() / "paper" / "extrapolation.csv")
