"""Writing a corpus so that an interruption loses at most the shard that is being filled.

`PreparationState` is everything that a preparation needs in order to resume with the same result.
It is saved atomically, after the shards that it names.

pending  packed rows that are not yet in a shard
waiting  tokenised documents that are not yet in a row
"""

import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from looped.data.sources.base import START, SUBSETS
from looped.files import sha256, write_whole

STATE = "state.npz"


@dataclass
class SubsetState:
    """Shards and counts of one subset so far."""

    shards: list[dict[str, Any]] = field(default_factory=list)
    documents: int = 0
    text_bytes: int = 0
    encoded_tokens: int = 0  # of the documents, before packing, with BOS
    discarded_tokens: int = 0  # of these, in no row
    place: tuple[int, int] = START
    done: bool = False

    @property
    def rows(self) -> int:
        """Number of rows in shards."""
        return sum(shard["rows"] for shard in self.shards)


@dataclass
class PreparationState:
    """A preparation so far: its request, what is on disk, and what is still in memory."""

    request: dict[str, Any]
    tokenizer_sha256: str
    subsets: dict[str, SubsetState] = field(
        default_factory=lambda: {name: SubsetState() for name in SUBSETS}
    )
    pending: list[np.ndarray] = field(default_factory=list)  # rows [seq_len + 1]
    waiting: list[np.ndarray] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Replace the saved state."""
        plain = {
            "request": self.request,
            "tokenizer_sha256": self.tokenizer_sha256,
            "subsets": {name: asdict(subset) for name, subset in self.subsets.items()},
        }
        buffer = io.BytesIO()
        np.savez(
            buffer,
            plain=np.array(json.dumps(plain)),
            pending=np.array(self.pending, dtype=np.uint16),
            waiting=np.concatenate([np.empty(0, dtype=np.uint16), *self.waiting]),
            waiting_lengths=np.array([len(doc) for doc in self.waiting], dtype=np.int64),
        )
        write_whole(folder / STATE, buffer.getvalue())

    @classmethod
    def load(cls, folder: Path) -> "PreparationState | None":
        """The saved state; None if there is none."""
        if not (folder / STATE).is_file():
            return None
        with np.load(folder / STATE, allow_pickle=False) as saved:
            plain = json.loads(str(saved["plain"]))
            pending = list(saved["pending"])
            waiting = np.split(saved["waiting"], np.cumsum(saved["waiting_lengths"]))[:-1]
        subsets = {
            name: SubsetState(**values | {"place": tuple(values["place"])})
            for name, values in plain["subsets"].items()
        }
        return cls(plain["request"], plain["tokenizer_sha256"], subsets, pending, waiting)


def write_shard(folder: Path, subset: str, number: int, rows: list[np.ndarray]) -> dict[str, Any]:
    """Write rows as a shard; its entry in the manifest: name, rows and hash."""
    buffer = io.BytesIO()
    np.save(buffer, np.stack(rows).astype(np.uint16, casting="safe"))
    data = buffer.getvalue()
    name = f"{subset}-{number:05d}.npy"
    write_whole(folder / name, data)
    return {"name": name, "rows": len(rows), "sha256": sha256(data)}
