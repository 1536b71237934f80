"""Best-fit packing of documents into rows; every row begins with the start of a document.

document   its tokens, BOS first
row        seq_len + 1 tokens: seq_len inputs, and the same shifted by one as targets
waiting    documents that have been read and not yet placed: at least `buffer_docs`, and enough
           to fill a row

A row is filled from the left with the longest waiting document that fits into the space left. If
none fits, the shortest document is cropped to fill it, and its remaining tokens are discarded.
Every row is therefore full. This is the packing of the paper's released code, taken from nanochat.
"""

from bisect import bisect_left, insort

import numpy as np

BUFFER_DOCS = 1000
"""Waiting documents in the paper's code."""


class BestFitPacker:
    """Packs documents into rows of `row_len` tokens; of equal lengths, the earlier comes first.

    Attributes:
        discarded: number of tokens in no row: cropped, or left over after the last row.

    Raises:
        ValueError: rows of less than two tokens, or an empty buffer.
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
    def waiting(self) -> list[np.ndarray]:
        """The waiting documents in the order of their arrival."""
        return list(self._docs.values())

    def add(self, doc: np.ndarray) -> list[np.ndarray]:
        """Add a document; the rows that must be packed before the next one is added.

        Raises:
            ValueError: a document without tokens.
        """
        if not len(doc):
            raise ValueError("a document has no tokens; leave it out")
        self._docs[self._arrived] = doc
        insort(self._sizes, (len(doc), -self._arrived))
        self._arrived += 1
        self._tokens += len(doc)
        rows = []
        while len(self._docs) >= self.buffer_docs and self._tokens >= self.row_len:
            rows.append(self._row())
        return rows

    def finish(self) -> list[np.ndarray]:
        """Rows of the waiting documents; tokens that do not fill a row are discarded."""
        rows = []
        while self._tokens >= self.row_len:
            rows.append(self._row())
        self.discarded += self._tokens
        self._docs, self._sizes, self._tokens = {}, [], 0
        return rows

    def _row(self) -> np.ndarray:
        """The next row; the waiting documents must have enough tokens."""
        parts, room = [], self.row_len
        while room:
            fits = bisect_left(self._sizes, (room + 1, -self._arrived))
            doc = self._take(fits - 1 if fits else self._earliest_of_shortest())
            parts.append(doc[:room])
            self.discarded += max(0, len(doc) - room)
            room -= len(parts[-1])
        return np.concatenate(parts)

    def _earliest_of_shortest(self) -> int:
        return bisect_left(self._sizes, (self._sizes[0][0] + 1, -self._arrived)) - 1

    def _take(self, index: int) -> np.ndarray:
        length, arrival = self._sizes.pop(index)
        self._tokens -= length
        return self._docs.pop(-arrival)
