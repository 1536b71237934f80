"""Forward passes of the variants, by the names of `looped.variants.VARIANTS`."""

from looped.model.variants.additive import AdditiveInjection
from looped.model.variants.base import VariantModule
from looped.model.variants.hyperconnect import HyperConnections
from looped.model.variants.linear import LinearInjection

VARIANT_CLASSES: dict[str, type[VariantModule]] = {
    "none": VariantModule,
    "linear": LinearInjection,
    "additive": AdditiveInjection,
    "passthrough": VariantModule,
    "hyperconnect": HyperConnections,
}
