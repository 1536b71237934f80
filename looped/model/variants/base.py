"""Forward pass of a variant: how a recurrence reads the state and how it writes the state.

    e_BTD    output of the prelude, the same for every recurrence
    state    tensor that is carried from one recurrence to the next
    u_BTD    input of the loop block
    h_BTD    RMSNorm of the loop block's output

The model calls start, then n_recur times read, loop block and write, and finally finish. The counts
of a variant and what it supports are in `looped.variants`.
"""

from torch import Tensor, nn

from looped.config import ModelConfig


class VariantModule(nn.Module):
    """The plain loop, h₀ = e and u_t = h_{t-1}. Subclasses override what differs.

    It is also the forward pass of `none`, where n_recur is 1, and of `passthrough` (paper table 5).
    """

    group = "matrix"  # optimiser group of the variant's parameters

    def __init__(self, config: ModelConfig):
        super().__init__()

    def init_weights(self) -> None:
        """Set the variant's parameters to their initial values, which are not random."""

    def start(self, e_BTD: Tensor) -> Tensor:
        """State before the first recurrence."""
        return e_BTD

    def read(self, state: Tensor, e_BTD: Tensor, step: int) -> Tensor:
        """Input u_BTD of the loop block in recurrence `step`, counted from 0."""
        return state

    def write(self, state: Tensor, h_BTD: Tensor, step: int) -> Tensor:
        """State after recurrence `step`."""
        return h_BTD

    def finish(self, state: Tensor) -> Tensor:
        """Input x_BTD of the coda."""
        return state
