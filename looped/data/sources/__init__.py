"""The sources of text by name. Each entry takes `path` and `tokenizer`."""

from collections.abc import Callable

from looped.data.sources.base import Source
from looped.data.sources.files import OwnText
from looped.data.sources.hub import FineWebEdu, PackedFineWebEdu
from looped.data.sources.laptop import Laptop

SOURCES: dict[str, Callable[..., Source]] = {
    "laptop": Laptop,
    "text": OwnText,
    "fineweb-edu": FineWebEdu,
    "fineweb-edu-packed": PackedFineWebEdu,
}
