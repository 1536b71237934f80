"""Iso-depth scaling laws of looped language models: runs, accounting, laws, fits, figures.

    import looped
    runs = looped.load_runs("paper")
    fit = looped.fit(runs, law="joint", split="stated")
    looped.figures.isoflop(runs, looped.isoflop_minima(runs))

    spec = looped.laptop_run(d_model=64, n_recur=4)
    record = looped.train(spec, "work/first")

Data flow: spec (`spec`, `recipes`) -> run (`data`, `model`, `training`) -> record (`registry`) with
counts (`accounting`) -> table -> law (`laws`) -> fit (`fitting`) -> shift of φ (`diagnose`) ->
claims (`claims`) -> figures (`figures`) -> chapters (`book/`). Imports look left only.
"""

import importlib
from importlib.metadata import version

from looped.accounting import counts
from looped.config import ModelConfig, d_model_of_width, paper_config
from looped.diagnose.delta import DeltaPhi, delta_phi
from looped.diagnose.equivalence import break_even_phi, equivalence, matched_losses
from looped.diagnose.plan import Plan, plan
from looped.errors import ConfigError, FitError, NoMinimum, RecordError, TrainingError
from looped.extras import missing_packages
from looped.fitting.bootstrap import bootstrap
from looped.fitting.fit import fit
from looped.fitting.holdout import HoldOut, hold_out, predict_draws, predict_interval
from looped.fitting.isoflop import isoflop_minima, loss_gaps, parabola_minimum
from looped.fitting.optimal import (
    compute_optimal,
    exponent,
    exponents,
    power_law_exponents,
    runs_at_width,
    stack_of,
)
from looped.fitting.result import Bootstrap, FitResult, FitStatus
from looped.fitting.sensitivity import profile_phi, propagate_se
from looped.fitting.summary import fit_table, pooled_sd, residual_summary, seed_noise
from looped.grids import GRIDS, get_grid
from looped.laws import LAWS
from looped.recipes import RECIPES, laptop_run, paper_run
from looped.registry import SOURCES, load_runs
from looped.registry.ingest import ingest
from looped.registry.record import RunRecord, load_records, read_record
from looped.spec import RunSpec, TrainConfig
from looped.splits import SPLITS, split_params

__version__ = version("looped")

__all__ = [
    "GRIDS",
    "LAWS",
    "RECIPES",
    "SOURCES",
    "SPLITS",
    "Bootstrap",
    "ConfigError",
    "DeltaPhi",
    "FitError",
    "FitResult",
    "FitStatus",
    "HoldOut",
    "ModelConfig",
    "NoMinimum",
    "Plan",
    "RecordError",
    "RunRecord",
    "RunSpec",
    "TrainConfig",
    "TrainingError",
    "bootstrap",
    "break_even_phi",
    "compute_optimal",
    "counts",
    "d_model_of_width",
    "delta_phi",
    "equivalence",
    "exponent",
    "exponents",
    "figures",
    "fit",
    "fit_table",
    "get_grid",
    "hold_out",
    "ingest",
    "isoflop_minima",
    "laptop_run",
    "load_records",
    "load_runs",
    "loss_gaps",
    "matched_losses",
    "missing_packages",
    "paper_config",
    "paper_run",
    "parabola_minimum",
    "plan",
    "pooled_sd",
    "power_law_exponents",
    "predict_draws",
    "predict_interval",
    "profile_phi",
    "propagate_se",
    "read_record",
    "residual_summary",
    "runs_at_width",
    "seed_noise",
    "split_params",
    "stack_of",
]


_ON_FIRST_USE = {  # and, but for the figures, not part of `import *`
    "figures": ("looped.figures", None),  # the fitting side does not wait for the charts
    "train": ("looped.training.loop", "train"),  # nor for torch, which it does not need
    "prepare_corpus": ("looped.data.prepare", "prepare"),
    "Corpus": ("looped.data.corpus", "Corpus"),
    "load_trained": ("looped.training.checkpoint", "load_trained"),
    "launch": ("looped.launching.engine", "launch"),
    "Engine": ("looped.launching.engine", "Engine"),
    "TrainOptions": ("looped.launching.job", "TrainOptions"),
    "grid_status": ("looped.launching.folder", "grid_status"),
    "collect": ("looped.launching.collect", "collect"),
    "generate": ("looped.model.decoding", "generate"),
    "evaluate_checkpoint": ("looped.evaluate.checkpoint", "evaluate_checkpoint"),
    "read_metrics": ("looped.training.metrics", "read_metrics"),
}


def __getattr__(name):
    """Load on first use what needs an extra or takes long."""
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ON_FIRST_USE[name]
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("looped"):
            raise
        raise ModuleNotFoundError(
            f"looped.{name} needs {error.name}: pip install 'looped[train]'", name=error.name
        ) from None
    return getattr(loaded, attribute) if attribute else loaded
