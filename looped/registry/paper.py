"""The paper's runs, digitised from its public figure; see `runs/paper/README.md`."""

import math

import pandas as pd

from looped import accounting
from looped.config import ModelConfig, d_model_of_width, paper_config
from looped.paths import runs_dir
from looped.registry.schema import STACK


def paper_runs() -> pd.DataFrame:
    """All 240 digitised runs with their counts, tokens and FLOPs from the accounting."""
    digitised = pd.read_csv(runs_dir() / "paper" / "digitised_runs.csv", keep_default_na=False)
    counted = [
        _counted(row.case, row.n_recur, row.width, row.budget) for row in digitised.itertuples()
    ]
    kept = digitised[["case", "n_recur", "budget", "val_loss", "val_loss_se", "flag"]]
    return kept.join(pd.DataFrame(counted)).assign(source="digitised")


def case_config(case: str, n_recur: int, width: int) -> ModelConfig:
    """Architecture of one run: truncation keeps the last ceil(r / 2) recurrences (section 6)."""
    d_model = d_model_of_width(width)
    if n_recur == 1:
        return paper_config(d_model, 1)
    if case == "truncated_bptt":
        return paper_config(d_model, n_recur, bptt=math.ceil(n_recur / 2))
    return paper_config(d_model, n_recur, "hyperconnect" if case == "hyperconnections" else None)


def _counted(case, n_recur, width, budget) -> dict:
    """The figure does not show tokens: they are the whole batches nearest to the budget."""
    config = case_config(case, n_recur, width)
    return {
        "d_model": config.d_model,
        "variant": config.variant,
        "bptt": config.bptt,
        "n_params_once": accounting.n_params_once(config),
        "n_params_rec": accounting.n_params_rec(config),
        "n_tokens": accounting.tokens_at_budget(config, budget),
        "flops_per_token": accounting.flops_per_token(config),
        **{name: getattr(config, name) for name in STACK},
    }


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
