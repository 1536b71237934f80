"""A prepared corpus: a folder with packed rows of tokens, the tokenizer, and a manifest.

corpus.json           manifest; it is written last, so a folder that has it is complete
tokenizer.json        the tokenizer
train-00000.npy       shard: rows [n, seq_len + 1] of uint16, memory-mapped
validation-00000.npy  held-out shard
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from looped.extras import need
from looped.files import sha256

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MANIFEST = "corpus.json"
TOKENIZER = "tokenizer.json"
FORMAT = 1


def default_folder(source: str, vocab_size: int, seq_len: int) -> Path:
    """Default folder of a corpus with this source, vocabulary and row length.

    It is in the folder of the environment variable LOOPED_CORPORA, or in the user's cache.
    """
    root = os.environ.get("LOOPED_CORPORA")
    if not root:
        root = f"{need('platformdirs').user_cache_dir('looped')}/corpora"
    return Path(root).expanduser() / f"{source}-v{vocab_size}-t{seq_len}"


def content_sha256(tokenizer_sha256: str, shards: dict[str, list[dict[str, Any]]]) -> str:
    """Hash of a corpus: over the hashes of its tokenizer and of its shards, in order."""
    lines = [f"{name} {shard['sha256']}" for name in sorted(shards) for shard in shards[name]]
    return sha256("\n".join([tokenizer_sha256, *lines]))


@dataclass(frozen=True)
class RowSet:
    """The rows of one subset, in memory-mapped shards."""

    shards: tuple[np.ndarray, ...]  # each [n, seq_len + 1] of uint16

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.shards else 0

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Rows [n, seq_len + 1] of uint16 at indices [n], counted from 0, in the given order.

        Raises:
            ValueError: indices that are empty or not one-dimensional.
            IndexError: an index out of range.
        """
        indices = np.asarray(indices, dtype=np.int64)
        if indices.ndim != 1 or not len(indices):
            raise ValueError(f"indices: got shape {indices.shape}, expected a list of rows")
        if indices.min() < 0 or indices.max() >= len(self):
            raise IndexError(
                f"indices: got {indices.min()} to {indices.max()}, expected 0 to {len(self) - 1}"
            )
        where = np.searchsorted(self._ends, indices, side="right")
        rows = np.empty((len(indices), self.shards[0].shape[1]), dtype=np.uint16)
        for number in np.unique(where):
            here = where == number
            start = self._ends[number] - len(self.shards[number])
            rows[here] = self.shards[number][indices[here] - start]
        return rows

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(shard) for shard in self.shards])


@dataclass(frozen=True)
class Corpus:
    """A complete corpus, opened for reading.

    Attributes:
        folder: where it is.
        manifest: content of `corpus.json`: counts, hashes, licences, and the request.
        train: rows for training.
        validation: rows that are held out.
    """

    folder: Path
    manifest: dict[str, Any]
    train: RowSet
    validation: RowSet

    @classmethod
    def open(cls, folder: str | Path) -> "Corpus":
        """The corpus in a folder; checks that all files exist and have the expected shapes.

        Raises:
            FileNotFoundError: no such folder, or its preparation has not finished.
            ValueError: files that differ from the manifest.
        """
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            state = "its preparation has not finished" if folder.is_dir() else "no such folder"
            raise FileNotFoundError(
                f"no corpus in {folder}: {state}. Prepare it, or resume its preparation: "
                f"looped data prepare --out {folder} ..."
            )
        with _reading(folder, MANIFEST) as path:
            manifest = json.loads(path.read_bytes())
            if manifest["format"] != FORMAT:
                raise ValueError(f"format {manifest['format']}, this version reads {FORMAT}")
        with _reading(folder, TOKENIZER) as path:
            if sha256(path) != manifest["tokenizer"]["sha256"]:
                raise ValueError("not the tokenizer of the manifest")
        width = manifest["seq_len"] + 1
        train, validation = (
            RowSet(tuple(_map(folder, shard, width) for shard in manifest[name]["shards"]))
            for name in ("train", "validation")
        )
        return cls(folder=folder, manifest=manifest, train=train, validation=validation)

    def verify(self) -> None:
        """Read every shard and compare its hash.

        Raises:
            ValueError: the first shard with another hash, or an inconsistent manifest.
        """
        shards = {name: self.manifest[name]["shards"] for name in ("train", "validation")}
        for shard in shards["train"] + shards["validation"]:
            with _reading(self.folder, shard["name"]) as path:
                if sha256(path) != shard["sha256"]:
                    raise ValueError("checksum mismatch")
        with _reading(self.folder, MANIFEST):
            if content_sha256(self.tokenizer_sha256, shards) != self.sha256:
                raise ValueError("checksum mismatch with its shards")

    @property
    def source(self) -> str:
        """Name of the source."""
        return self.manifest["source"]

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the tokenizer."""
        return self.manifest["tokenizer"]["vocab_size"]

    @property
    def bos_id(self) -> int:
        """Token that begins each document."""
        return self.manifest["tokenizer"]["bos_id"]

    @property
    def seq_len(self) -> int:
        """Inputs of a row: one less than its tokens."""
        return self.manifest["seq_len"]

    @property
    def sha256(self) -> str:
        """Hash of the tokenizer and all rows."""
        return self.manifest["sha256"]

    @property
    def tokenizer_sha256(self) -> str:
        """Hash of the tokenizer's file."""
        return self.manifest["tokenizer"]["sha256"]

    def tokenizer(self) -> "Tokenizer":
        """The tokenizer, from its file."""
        return need("tokenizers").Tokenizer.from_file(str(self.folder / TOKENIZER))


def _map(folder: Path, shard: dict[str, Any], width: int) -> np.ndarray:
    with _reading(folder, shard["name"]) as path:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        if rows.shape != (shard["rows"], width) or rows.dtype != np.uint16:
            expected = f"expected {(shard['rows'], width)} of uint16"
            raise ValueError(f"{rows.shape} of {rows.dtype}, {expected}")
    return rows


@contextmanager
def _reading(folder: Path, name: str) -> Iterator[Path]:
    """Path of a file of a corpus; an error while it is read says that the corpus is damaged."""
    try:
        yield folder / name
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"no field {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"the corpus in {folder} is damaged: {name}: {problem}. "
            f"Delete the folder and prepare it again: looped data prepare --out {folder} ..."
        ) from error
