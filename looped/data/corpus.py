"""A prepared corpus: a folder with packed rows of tokens, the tokenizer, and a manifest.

corpus.json          manifest; it appears last, so a folder that has it is finished
tokenizer.json       the tokenizer
train-00000.npy      shard: rows [n, seq_len + 1] of uint16, mapped into memory when read
validation-00000.npy held-out shard
"""

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from looped.data.tokenizer import sha256
from looped.extras import need

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MANIFEST = "corpus.json"
TOKENIZER = "tokenizer.json"
FORMAT = 1


def default_folder(source: str, vocab_size: int, seq_len: int) -> Path:
    """Folder of a corpus by its source, vocabulary and row length.

    It is under the environment variable LOOPED_CORPORA, or in the user's cache.
    """
    root = os.environ.get("LOOPED_CORPORA")
    if not root:
        root = Path(need("platformdirs").user_cache_dir("looped")) / "corpora"
    return Path(root).expanduser() / f"{source}-v{vocab_size}-t{seq_len}"


def content_sha256(tokenizer_sha256: str, shards: dict[str, list[dict]]) -> str:
    """Hash of a corpus: over the hashes of its tokenizer and of its shards, in their order."""
    found = [tokenizer_sha256]
    found += [f"{side} {shard['sha256']}" for side in sorted(shards) for shard in shards[side]]
    return sha256("\n".join(found).encode())


@dataclass(frozen=True)
class RowSet:
    """The rows of one side, in shards that are mapped into memory."""

    shards: tuple[np.ndarray, ...]  # each [n, seq_len + 1] of uint16

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.shards else 0

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Rows [n, seq_len + 1] of uint16 at indices [n] from 0 on, in the order asked for."""
        indices = np.asarray(indices, dtype=np.int64)
        if indices.ndim != 1 or not len(indices):
            raise ValueError(f"indices: got shape {indices.shape}, expected a list of rows")
        if indices.min() < 0 or indices.max() >= len(self):
            raise IndexError(
                f"indices: got {indices.min()} to {indices.max()}, expected 0 to {len(self) - 1}"
            )
        where = np.searchsorted(self._ends, indices, side="right")
        found = np.empty((len(indices), self.shards[0].shape[1]), dtype=np.uint16)
        for number in np.unique(where):
            here = where == number
            start = self._ends[number] - len(self.shards[number])
            found[here] = self.shards[number][indices[here] - start]
        return found

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(shard) for shard in self.shards])


@dataclass(frozen=True)
class Corpus:
    """A finished corpus, opened for reading."""

    folder: Path
    manifest: dict
    train: RowSet
    validation: RowSet

    @classmethod
    def open(cls, folder: str | Path) -> "Corpus":
        """Open a folder and check that the manifest's files are there in their sizes.

        Raises:
            FileNotFoundError: nothing there, or a preparation that has not finished.
            ValueError: files that are not those of the manifest.
        """
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            state = "a preparation that has not finished" if folder.is_dir() else "nothing there"
            raise FileNotFoundError(
                f"no corpus in {folder}: {state}. Prepare it, or go on where it stopped: "
                f"looped data prepare --out {folder} ..."
            )
        manifest = _read_manifest(folder)
        if sha256(_read(folder, TOKENIZER)) != manifest["tokenizer"]["sha256"]:
            raise _inconsistent(folder, TOKENIZER, "another tokenizer than the manifest's")
        width = manifest["seq_len"] + 1
        sides = {
            side: RowSet(tuple(_map(folder, shard, width) for shard in manifest[side]["shards"]))
            for side in ("train", "validation")
        }
        return cls(folder=folder, manifest=manifest, **sides)

    def verify(self) -> None:
        """Read every shard and compare its hash. Raises ValueError at the first other one."""
        shards = {side: self.manifest[side]["shards"] for side in ("train", "validation")}
        for shard in (shard for side in shards.values() for shard in side):
            if sha256(_read(self.folder, shard["name"])) != shard["sha256"]:
                raise _inconsistent(self.folder, shard["name"], "its SHA-256 is another")
        if content_sha256(self.tokenizer_sha256, shards) != self.sha256:
            raise _inconsistent(self.folder, MANIFEST, "its SHA-256 is not that of its shards")

    @property
    def source(self) -> str:
        """Name of the source."""
        return self.manifest["source"]

    @property
    def vocab_size(self) -> int:
        """Tokens of the tokenizer."""
        return self.manifest["tokenizer"]["vocab_size"]

    @property
    def bos_id(self) -> int:
        """Token at the beginning of each document."""
        return self.manifest["tokenizer"]["bos_id"]

    @property
    def seq_len(self) -> int:
        """Inputs of a row, one less than its tokens."""
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


def _read_manifest(folder: Path) -> dict:
    try:
        manifest = json.loads(_read(folder, MANIFEST))
        known = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise _inconsistent(folder, MANIFEST, f"no manifest ({error!r})") from error
    if known != FORMAT:
        raise _inconsistent(folder, MANIFEST, f"format {known}, this version reads {FORMAT}")
    return manifest


def _map(folder: Path, shard: dict, width: int) -> np.ndarray:
    try:
        rows = np.load(folder / shard["name"], mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise _inconsistent(folder, shard["name"], str(error)) from error
    if rows.shape != (shard["rows"], width) or rows.dtype != np.uint16:
        expected = f"expected {(shard['rows'], width)} of uint16"
        raise _inconsistent(folder, shard["name"], f"{rows.shape} of {rows.dtype}, {expected}")
    return rows


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _inconsistent(folder, name, str(error)) from error


def _inconsistent(folder, name, problem) -> ValueError:
    return ValueError(
        f"the corpus in {folder} is damaged: {name}: {problem}. "
        f"Delete the folder and prepare it again: looped data prepare --out {folder} ..."
    )
