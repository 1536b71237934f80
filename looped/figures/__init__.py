"""Charts and tables of the book: one function a figure, one look, no fit and no file access."""

from looped.figures import render
from looped.figures.architecture import schematic, training_curves
from looped.figures.counts import params_by_section, recurrence_ratios
from looped.figures.downstream import task_gaps, task_losses
from looped.figures.holdout import gaps_at_width, held_out_residuals, prediction_intervals
from looped.figures.isoflop_curves import isoflop
from looped.figures.optima import frontier, gaps, optimal_sizes
from looped.figures.phi import bootstrap_histogram, profile, split_phi
from looped.figures.quality import predicted_actual, residuals
from looped.figures.rates import rate_sweep
from looped.figures.shift import loss_change, phi_pairs
from looped.figures.slider import phi_slider
from looped.figures.tables import glue, note, table

__all__ = [
    "bootstrap_histogram",
    "frontier",
    "gaps",
    "gaps_at_width",
    "glue",
    "held_out_residuals",
    "isoflop",
    "loss_change",
    "note",
    "optimal_sizes",
    "params_by_section",
    "phi_pairs",
    "phi_slider",
    "predicted_actual",
    "prediction_intervals",
    "profile",
    "rate_sweep",
    "recurrence_ratios",
    "residuals",
    "schematic",
    "split_phi",
    "table",
    "task_gaps",
    "task_losses",
    "training_curves",
]

render.enable()
