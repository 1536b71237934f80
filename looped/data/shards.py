"""Writing a corpus so that an interruption loses at most the shard at hand.

A file is written under a temporary name, brought to the disk, and only then renamed. `State` is
what a preparation needs to go on as if it had not stopped; it is saved in the same way, after the
shards that it names.

pending  rows that are packed and not yet in a shard
waiting  tokenised documents that are not yet in a row
"""

import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from looped.data.sources.base import SIDES, START
from looped.data.tokenizer import sha256
from looped.files import write_whole

PROGRESS = "progress.npz"


@dataclass
class Side:
    """Shards and counts of one side, so far."""

    shards: list[dict] = field(default_factory=list)
    documents: int = 0
    text_bytes: int = 0
    encoded_tokens: int = 0  # of the documents, before packing, with their BOS
    discarded_tokens: int = 0  # of these, in no row
    place: tuple[int, int] = START
    done: bool = False

    @property
    def rows(self) -> int:
        """Rows in shards."""
        return sum(shard["rows"] for shard in self.shards)


@dataclass
class State:
    """A preparation so far: what was asked for, what is on the disk, what is in between."""

    request: dict
    tokenizer_sha256: str
    sides: dict[str, Side] = field(default_factory=lambda: {side: Side() for side in SIDES})
    pending: list[np.ndarray] = field(default_factory=list)  # rows [seq_len + 1]
    waiting: list[np.ndarray] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Replace the saved state by this one."""
        plain = {
            "request": self.request,
            "tokenizer_sha256": self.tokenizer_sha256,
            "sides": {name: asdict(side) for name, side in self.sides.items()},
        }
        buffer = io.BytesIO()
        np.savez(
            buffer,
            plain=np.array(json.dumps(plain)),
            pending=_joined(self.pending),
            pending_lengths=_lengths(self.pending),
            waiting=_joined(self.waiting),
            waiting_lengths=_lengths(self.waiting),
        )
        write_whole(folder / PROGRESS, buffer.getvalue())

    @classmethod
    def load(cls, folder: Path) -> "State | None":
        """The saved state, if there is one."""
        if not (folder / PROGRESS).is_file():
            return None
        with np.load(folder / PROGRESS, allow_pickle=False) as saved:
            plain = json.loads(str(saved["plain"]))
            pending = _parted(saved["pending"], saved["pending_lengths"])
            waiting = _parted(saved["waiting"], saved["waiting_lengths"])
        sides = {
            name: Side(**side | {"place": tuple(side["place"])})
            for name, side in plain["sides"].items()
        }
        return cls(plain["request"], plain["tokenizer_sha256"], sides, pending, waiting)


def write_shard(folder: Path, side: str, number: int, rows: list[np.ndarray]) -> dict:
    """Write rows as a shard: its name, rows and hash, as the manifest has them."""
    buffer = io.BytesIO()
    np.save(buffer, np.stack(rows).astype(np.uint16, casting="safe"))
    data = buffer.getvalue()
    name = f"{side}-{number:05d}.npy"
    write_whole(folder / name, data)
    return {"name": name, "rows": len(rows), "sha256": sha256(data)}


def _joined(arrays):
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.uint16)


def _lengths(arrays):
    return np.array([len(array) for array in arrays], dtype=np.int64)


def _parted(joined, lengths):
    return np.split(joined, np.cumsum(lengths)[:-1]) if len(lengths) else []
