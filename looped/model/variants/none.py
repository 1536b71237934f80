"""The plain stack: the loop block runs once, and there is nothing to inject."""

from looped.model.variants.base import Variant


class PlainStack(Variant):
    """h = RMSNorm(Block(e)), n_recur = 1 only."""

    any_n_recur = False
