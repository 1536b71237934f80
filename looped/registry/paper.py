"""The paper's runs, digitised from its public figure; see `runs/paper/README.md`."""

import math
from typing import Any

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
    printed = digitised[["case", "n_recur", "budget", "val_loss", "val_loss_se", "flag"]]
    return printed.join(pd.DataFrame(counted)).assign(source="digitised")


def case_config(case: str, n_recur: int, width: int) -> ModelConfig:
    """Architecture of one run; truncation cuts all but the last ceil(r / 2) recurrences (§ 6)."""
    d_model = d_model_of_width(width)
    if n_recur == 1:
        return paper_config(d_model, 1)
    if case == "truncated_bptt":
        return paper_config(d_model, n_recur, bptt=math.ceil(n_recur / 2))
    return paper_config(d_model, n_recur, "hyperconnect" if case == "hyperconnections" else None)


def _counted(case: str, n_recur: int, width: int, budget: float) -> dict[str, Any]:
    """Counts of one run. Its tokens, which the figure does not show, are the whole batches nearest
    to the budget.
    """
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
