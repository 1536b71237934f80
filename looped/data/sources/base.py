"""What a source of text is, and how its documents are parted into training and validation.

side   "train" or "validation"
place  (file, number in that file) of a document or row; a preparation goes on after a place
key    name of a document within its source
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SIDES = ("validation", "train")
"""In the order in which they are prepared."""

Rows = np.ndarray
Place = tuple[int, int]
START: Place = (0, -1)
"""The place before the first document."""

VALIDATION_SHARE = 0.03
"""Of the documents of a source that has no validation files of its own."""


class Document(NamedTuple):
    """One text and where it stands."""

    key: str
    text: str
    place: Place


class Source(Protocol):
    """Where texts come from. The same identity gives the same documents in the same order."""

    name: str
    licences: list[dict]  # of each part: what, licence, origin
    seq_len: int  # of the recipe that reads it
    vocab_size: int | None  # of the recipe, where a tokenizer is trained
    validation_rows: int  # at most so many rows are held out

    def identity(self) -> dict:
        """What decides the documents, as plain values: versions, hashes, names of files."""

    def part_read(self, side: str, place: Place) -> float:
        """Roughly what part of a side is read at a place, 0 to 1: tells how long it will take."""

    def tokenizer(self) -> "Tokenizer | None":
        """The tokenizer that comes with the source; None: one is trained on its texts."""


class TextSource(Source, Protocol):
    """A source of documents, which are still to be tokenised and packed."""

    def documents(self, side: str, after: Place = START) -> Iterator[Document]:
        """Documents of one side in their order, from the one after a place."""


@runtime_checkable
class RowSource(Source, Protocol):
    """A source of rows that are already tokenised and packed."""

    def rows(self, side: str, seq_len: int, after: Place = START) -> Iterator[tuple[Place, Rows]]:
        """Blocks of rows [n, seq_len + 1] of one side, each with the place of its last row."""


def side_of(text: str, share: float = VALIDATION_SHARE) -> str:
    """The side of a document, decided by its text alone: identical texts fall on one side."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return "validation" if int.from_bytes(digest[:8], "big") < share * 2**64 else "train"


def after_place(documents: Iterable[Document], after: Place) -> Iterator[Document]:
    """The documents behind a place, of a source that reads from its beginning."""
    return (document for document in documents if document.place > after)
