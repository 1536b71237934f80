"""The plain stack: the loop block runs once, and there is nothing to inject."""

from looped.model.variants.base import Variant


class PlainStack(Variant):
    """One residual stream through all layers, normed once after the last; n_recur = 1 only.

    That the stack has prelude, loop and coda is a matter of counting (section 3.3).
    """

    loops = False

    any_n_recur = False
