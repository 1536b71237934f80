"""The plain stack: the loop block runs once, without injection."""

from looped.model.variants.base import VariantModule


class PlainStack(VariantModule):
    """One residual stream through all layers, normalised once after the last; n_recur = 1 only.

    The division into prelude, loop block and coda only serves the counts (section 3.3).
    """
