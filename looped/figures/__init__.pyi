# The public names: each is imported on first use, and an editor completes it from here.

from .architecture import schematic as schematic
from .counts import params_by_section as params_by_section
from .counts import recurrence_ratios as recurrence_ratios
from .downstream import task_gaps as task_gaps
from .downstream import task_losses as task_losses
from .holdout import gaps_at_width as gaps_at_width
from .holdout import held_out_residuals as held_out_residuals
from .holdout import prediction_intervals as prediction_intervals
from .isoflop_curves import isoflop as isoflop
from .optima import frontier as frontier
from .optima import gaps as gaps
from .optima import optimal_sizes as optimal_sizes
from .phi import bootstrap_histogram as bootstrap_histogram
from .phi import profile as profile
from .phi import split_phi as split_phi
from .quality import predicted_actual as predicted_actual
from .quality import residuals as residuals
from .render import enable_book_renderer as enable_book_renderer
from .shift import loss_change as loss_change
from .shift import phi_pairs as phi_pairs
from .slider import phi_slider as phi_slider
from .tables import glue as glue
from .tables import note as note
from .tables import table as table
from .training import rate_sweep as rate_sweep
from .training import training_curves as training_curves
