"""A source of text, and how its documents are divided into training and validation.

subset  "train" or "validation"
place   (file, index in that file) of a document or row; a preparation resumes after a place
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from looped.data.tokenizer import load_tokenizer
from looped.files import sha256

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SUBSETS = ("validation", "train")
"""In the order in which they are prepared."""

Place = tuple[int, int]
START: Place = (0, -1)
"""The place before the first document."""

VALIDATION_SHARE = 0.03
"""Share of the documents for validation, in a source without validation files."""


class Document(NamedTuple):
    """One text and its place in the source."""

    text: str
    place: Place


class Source:
    """Where texts come from. The same `identity` gives the same documents in the same order.

    A source implements `documents`, or `rows` if its rows are already tokenised and `packed`.
    """

    name: str
    licences: Sequence[dict[str, str]]  # of each component: what, licence, origin
    packed = False
    seq_len = 256  # of the recipe that reads the source
    vocab_size = 2048  # of the recipe, if a tokenizer is trained
    validation_rows = 1024  # validation ends after this number of rows
    _tokenizer: str | Path | None = None

    def identity(self) -> dict[str, Any]:
        """Everything that determines the documents, as plain values: versions, hashes, names."""
        raise NotImplementedError

    def share_read(self, subset: str, place: Place) -> float:
        """Approximate share of a subset that lies before a place, 0 to 1; for progress bars."""
        raise NotImplementedError

    def tokenizer(self) -> "Tokenizer | None":
        """The tokenizer of the source; None: one is trained on its texts."""
        return load_tokenizer(self._tokenizer) if self._tokenizer else None

    def documents(self, subset: str, after: Place = START) -> Iterator[Document]:
        """Documents of a subset in order, starting after a place."""
        raise NotImplementedError

    def rows(
        self, subset: str, seq_len: int, after: Place = START
    ) -> Iterator[tuple[Place, np.ndarray]]:
        """Blocks of rows [n, seq_len + 1] of a subset, each with the place of its last row."""
        raise NotImplementedError


def subset_of(text: str, share: float = VALIDATION_SHARE) -> str:
    """The subset of a document. It depends on the text only: duplicates are in the same subset."""
    digest = sha256(text.encode("utf-8", "surrogatepass"))
    return "validation" if int(digest[:16], 16) < share * 2**64 else "train"


def after_place(documents: Iterable[Document], after: Place) -> Iterator[Document]:
    """The documents after a place, for a source that is read from its beginning."""
    return (document for document in documents if document.place > after)
