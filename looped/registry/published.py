"""The paper's published numbers (arXiv 2604.21106 v3), as tables; public as `looped.published`.

Files and sources: `runs/paper/README.md`.
"""

import pandas as pd

from looped.paths import runs_dir


def claims() -> pd.DataFrame:
    """The numbers of the paper's text, tables and figures, one row a claim.

    Returns:
        id, section, quantity, value, low, high, unit, source, kind; all as text, so that value, low
        and high keep their printed digits.
    """
    return pd.read_csv(runs_dir() / "paper" / "claims.csv", dtype=str, keep_default_na=False)


def minima() -> pd.DataFrame:
    """IsoFLOP minima of the three cases (the paper's figure of the isoFLOP curves).

    Returns:
        case, n_recur, budget (FLOPs), n_params_star, val_loss_star (nats per token), source.
    """
    return pd.read_csv(runs_dir() / "paper" / "minima.csv")


def counts() -> pd.DataFrame:
    """Parameters and FLOPs of each recurrence and width.

    Returns:
        n_recur, width, log_n_params, log_flops_per_token (natural logarithms).
    """
    return pd.read_csv(runs_dir() / "paper" / "published_counts.csv")


def downstream() -> pd.DataFrame:
    """Loss on each downstream task at 2.15e19 FLOPs, nats per token (tables 8 and 9).

    Returns:
        axis, task, samples, shots, type; r1, r2, r4, r8: the loss at each recurrence; r1_low and
        r1_high: the range of r = 1 over the budgets.
    """
    folder = runs_dir() / "paper"
    losses = pd.read_csv(folder / "downstream.csv")
    return pd.read_csv(folder / "tasks.csv").merge(losses, on=["axis", "task"], validate="1:1")


def extrapolation() -> pd.DataFrame:
    """Losses of the pair of large models (table 10), nats per token: quantity, r1, r4."""
    return pd.read_csv(runs_dir() / "paper" / "extrapolation.csv")
