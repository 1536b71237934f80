"""No injection: the prelude's output reaches the loop block through the first recurrence only."""

from looped.model.variants.base import VariantModule


class Passthrough(VariantModule):
    """h₀ = e, u_t = h_{t-1} (paper table 5)."""
