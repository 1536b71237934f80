"""Best-fit packing of documents into rows that begin where a document begins.

document   its tokens, with the mark of the beginning (BOS) first
row        seq_len + 1 tokens: seq_len inputs, and the same shifted by one as targets
waiting    documents that have been read and not yet placed: `buffer_docs` of them, or more where
           so many would not fill a row

A row is filled from the left with the longest waiting document that fits the rest of it. When
none fits, the shortest one is cropped to fill it, and what is cropped off is discarded. So every
row is full, and every row begins with a document. This is the packing of the paper's released
code, which has it from nanochat.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

import numpy as np

BUFFER_DOCS = 1000
"""Documents that the paper's code lets wait."""


class BestFitPacker:
    """Packs documents into rows of `row_len` tokens, the earlier of two equal lengths first.

    Attributes:
        discarded: tokens that are in no row: cropped off, or left over after the last row.
    """

    def __init__(self, row_len: int, buffer_docs: int = BUFFER_DOCS):
        if row_len < 2 or buffer_docs < 1:
            raise ValueError(
                f"row_len, buffer_docs: got {row_len}, {buffer_docs}, expected at least 2 and 1"
            )
        self.row_len = row_len
        self.buffer_docs = buffer_docs
        self.discarded = 0
        self._arrived = 0
        self._tokens = 0  # of the waiting documents
        self._docs: dict[int, np.ndarray] = {}
        self._sizes: list[tuple[int, int]] = []  # (length, -arrival), ascending

    @property
    def full(self) -> bool:
        """Whether the next row is to be packed before another document is added."""
        return len(self._docs) >= self.buffer_docs and self._tokens >= self.row_len

    @property
    def waiting(self) -> list[np.ndarray]:
        """The waiting documents in the order of their arrival."""
        return list(self._docs.values())

    def add(self, doc: np.ndarray) -> None:
        """Let a document wait. Raises ValueError for one without tokens."""
        if not len(doc):
            raise ValueError("a document has no tokens; leave it out")
        self._docs[self._arrived] = doc
        insort(self._sizes, (len(doc), -self._arrived))
        self._arrived += 1
        self._tokens += len(doc)

    def row(self) -> np.ndarray | None:
        """The next row; or None, and all that waits is discarded, when it would not be full."""
        parts, room = [], self.row_len
        while room and self._docs:
            fits = bisect_left(self._sizes, (room + 1, -self._arrived))
            doc = self._take(fits - 1 if fits else self._earliest_of_shortest())
            parts.append(doc[:room])
            self.discarded += max(0, len(doc) - room)
            room -= len(parts[-1])
        if not room:
            return np.concatenate(parts)
        self.discarded += self.row_len - room
        return None

    def _earliest_of_shortest(self) -> int:
        return bisect_left(self._sizes, (self._sizes[0][0] + 1, -self._arrived)) - 1

    def _take(self, index: int) -> np.ndarray:
        length, arrival = self._sizes.pop(index)
        self._tokens -= length
        return self._docs.pop(-arrival)


def pack(
    docs: Iterable[np.ndarray], row_len: int, buffer_docs: int = BUFFER_DOCS
) -> Iterator[np.ndarray]:
    """Rows of a stream of documents, the buffer topped up before each row."""
    packer = BestFitPacker(row_len, buffer_docs)
    for doc in docs:
        packer.add(doc)
        while packer.full:
            yield packer.row()
    while (row := packer.row()) is not None:
        yield row
