"""No injection: the prelude reaches the loop through its first recurrence alone."""

from looped.model.variants.base import Variant


class Passthrough(Variant):
    """h₀ = e, u_t = h_{t-1} (paper appendix, ablation of the injection)."""
