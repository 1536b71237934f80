"""Iso-depth scaling laws of looped language models: runs, accounting, laws, fits, figures.

    import looped
    runs = looped.load_runs("paper")
    fit = looped.fit(runs, law="joint", split="stated")
    looped.figures.isoflop(runs, looped.isoflop_minima(runs))

Data flow: runs (`registry`) with counts (`accounting`) -> table -> law (`laws`) -> fit (`fitting`)
-> claims (`claims`) -> figures (`figures`) -> chapters (`book/`). Imports look left only.
"""

import importlib
from importlib.metadata import version

from looped.accounting import counts
from looped.config import ModelConfig, d_model_of_width, paper_config
from looped.errors import ConfigError, FitError, NoMinimum, RecordError
from looped.fitting.bootstrap import bootstrap
from looped.fitting.fit import fit
from looped.fitting.isoflop import isoflop_minima, loss_gaps, parabola_minimum
from looped.fitting.optimal import (
    compute_optimal,
    equal_loss_n_params,
    exponent,
    exponents,
    power_law_exponents,
    runs_at_width,
    stack_of,
)
from looped.fitting.result import Bootstrap, FitResult, FitStatus
from looped.fitting.sensitivity import profile_phi, propagate_se
from looped.fitting.summary import fit_table, residual_summary
from looped.laws import LAWS
from looped.registry import SOURCES, load_runs
from looped.splits import SPLITS, split_params

__version__ = version("looped")

__all__ = [
    "LAWS",
    "SOURCES",
    "SPLITS",
    "Bootstrap",
    "ConfigError",
    "FitError",
    "FitResult",
    "FitStatus",
    "ModelConfig",
    "NoMinimum",
    "RecordError",
    "bootstrap",
    "compute_optimal",
    "counts",
    "d_model_of_width",
    "equal_loss_n_params",
    "exponent",
    "exponents",
    "figures",
    "fit",
    "fit_table",
    "isoflop_minima",
    "load_runs",
    "loss_gaps",
    "paper_config",
    "parabola_minimum",
    "power_law_exponents",
    "profile_phi",
    "propagate_se",
    "residual_summary",
    "runs_at_width",
    "split_params",
    "stack_of",
]


def __getattr__(name):
    """Load `looped.figures` on first use: the fitting side does not wait for the charts."""
    if name == "figures":
        return importlib.import_module("looped.figures")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
