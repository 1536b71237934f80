"""The paper's runs, digitised from its public figure; see `runs/paper/README.md`."""

from typing import Any

import pandas as pd

from looped import accounting
from looped.paths import runs_dir
from looped.studies.paper import BATCH_TOKENS, case_config


def paper_runs() -> pd.DataFrame:
    """All 240 digitised runs with their counts, tokens and FLOPs from the accounting."""
    digitised = pd.read_csv(runs_dir() / "paper" / "digitised_runs.csv", keep_default_na=False)
    counted = [
        _counted(run.case, run.n_recur, run.width, run.budget) for run in digitised.itertuples()
    ]
    printed = digitised[["case", "budget", "val_loss", "val_loss_se", "flag"]]
    return printed.join(pd.DataFrame(counted)).assign(source="digitised")


def _counted(case: str, n_recur: int, width: int, budget: float) -> dict[str, Any]:
    """Architecture and counts of one run, and its tokens: whole batches nearest to the budget.

    The figure does not show tokens.
    """
    config = case_config(case, n_recur, width)
    tokens = accounting.tokens_at_budget(config, budget, BATCH_TOKENS)
    return accounting.columns(config) | {"n_tokens": tokens}
