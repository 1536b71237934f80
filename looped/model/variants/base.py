"""What the model asks of a variant: how a recurrence reads the state and how it writes to it.

    e_BTD    output of the prelude, the same for every recurrence
    state    what is carried from one recurrence to the next
    u_BTD    input of the loop block
    h_BTD    RMSNorm of the loop block's output

The model computes start, then n_recur times read, loop block, write, and at last finish.
"""

from torch import nn

from looped.config import ModelConfig


class Variant(nn.Module):
    """The plain loop: h₀ = e, u_t = h_{t-1}. Variants replace what they do otherwise."""

    group = "matrix"  # optimiser group of the variant's own parameters
    loops = True  # else nothing comes back, and the norm of a recurrence follows the last layer
    any_n_recur = True  # whether it is defined for another number of recurrences than trained

    def __init__(self, config: ModelConfig):
        super().__init__()

    def init_weights(self) -> None:
        """Set the variant's parameters to their start, which is never random."""

    def start(self, e_BTD):
        """State before the first recurrence."""
        return e_BTD

    def read(self, state, e_BTD, step: int):
        """Input u_BTD of the loop block in recurrence `step`, counted from 0."""
        return state

    def write(self, state, h_BTD, step: int):
        """State after recurrence `step`."""
        return h_BTD

    def finish(self, state):
        """Input x_BTD of the coda."""
        return state
