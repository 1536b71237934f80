"""Runs trained for this project on a laptop's cores; see `runs/laptop/README.md`."""

import pandas as pd

from looped.paths import runs_dir
from looped.registry.record import read_records

GRIDS = ("laptop", "laptop-tbptt", "laptop-hyperconnect")
"""Grids that are one source: the baseline, and the case studies that share its anchor."""


def laptop_runs() -> pd.DataFrame:
    """The recorded runs of the laptop grid and of its case studies."""
    folders = [runs_dir() / name for name in GRIDS]
    return pd.concat([read_records(folder) for folder in folders if folder.is_dir()])


def laptop_primitives() -> pd.DataFrame:
    """Loss and accuracy of laptop runs on synthetic tasks: rows of `looped.evaluate_checkpoint`."""
    return pd.read_csv(runs_dir() / "laptop-primitives" / "results.csv")
