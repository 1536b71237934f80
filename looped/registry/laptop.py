"""Runs trained for this project on the cores of a laptop; see `runs/laptop/README.md`."""

import pandas as pd

from looped.paths import runs_dir
from looped.registry.record import load_records

GRIDS = ("laptop", "laptop-tbptt", "laptop-hyperconnect")
"""Grids of this source: the baseline, and the case studies that use its r = 1 runs."""


def laptop_runs() -> pd.DataFrame:
    """The recorded runs of the laptop's baseline grid and of its case studies."""
    folders = [runs_dir() / name for name in GRIDS]
    records = [record for folder in folders if folder.is_dir() for record in load_records(folder)]
    return pd.DataFrame([record.row() for record in records])


def laptop_primitives() -> pd.DataFrame:
    """Loss and accuracy of laptop runs on synthetic tasks: rows of `looped.evaluate_checkpoint`."""
    return pd.read_csv(runs_dir() / "laptop-primitives" / "results.csv")
