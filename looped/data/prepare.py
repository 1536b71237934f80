"""Prepare a corpus: read a source, tokenise, pack into rows, write shards, and the manifest last.

Validation is prepared first, then training. An interrupted preparation resumes after the last
complete shard and writes the same bytes as an uninterrupted one.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from looped.data.corpus import FORMAT, MANIFEST, TOKENIZER, Corpus, content_sha256, default_folder
from looped.data.packing import BestFitPacker
from looped.data.sources import SOURCES
from looped.data.sources.base import SUBSETS, Source
from looped.data.state import STATE, PreparationState, SubsetState, write_shard
from looped.data.tokenizer import (
    bos_id,
    load_tokenizer,
    token_ids,
    tokenizer_bytes,
    train_tokenizer,
)
from looped.errors import ConfigError, pick
from looped.extras import need
from looped.files import sha256, write_whole

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from tokenizers import Tokenizer

SHARD_ROWS = 8192
BATCH_DOCS = 512
MAX_VOCAB = 2**16  # tokens are stored as uint16
NO_LIMIT = sys.maxsize

log = logging.getLogger(__name__)


def prepare_corpus(
    source: str | Source,
    *,
    seq_len: int | None = None,
    vocab_size: int | None = None,
    n_tokens: int | None = None,
    out: str | Path | None = None,
    shard_rows: int = SHARD_ROWS,
    progress: Callable[[int, int], None] | None = None,
) -> Corpus:
    """A prepared corpus: prepare it, resume its preparation, or open it if it is complete.

    Args:
        source: a name in `SOURCES`, or a source.
        seq_len: inputs of a row, tokens; None: the source's.
        vocab_size: tokens of the tokenizer to train; None: the source's, or those of its
            existing tokenizer.
        n_tokens: tokens for training, rounded up to whole rows; None: the whole source.
        out: folder; None: `default_folder`.
        shard_rows: rows of a shard.
        progress: called after each batch of documents with (done, total), in tokens of packed
            rows: for the validation rows first, then again from 0 for the training rows. `total`
            is an estimate, and 0 while it is unknown. An exception from it stops the
            preparation, which can be resumed.

    Raises:
        ConfigError: an unknown source, contradictory settings, or another corpus in the folder.
        ValueError: a source with too little text, or text that cannot be read.
        OSError: a source that cannot be reached, or that stops responding.
    """
    source = pick("source", source, SOURCES)() if isinstance(source, str) else source
    seq_len = source.seq_len if seq_len is None else seq_len
    if seq_len < 1 or shard_rows < 1 or (n_tokens is not None and n_tokens < 1):
        raise ConfigError(
            f"seq_len, shard_rows, n_tokens: got {seq_len}, {shard_rows}, {n_tokens}, "
            "expected at least 1 each"
        )
    tokenizer = source.tokenizer()
    vocab_size = _vocab_size(source, tokenizer, vocab_size)
    folder = Path(out) if out else default_folder(source.name, vocab_size, seq_len)
    request = {
        "source": source.name,
        "identity": source.identity(),
        "given_tokenizer": sha256(tokenizer_bytes(tokenizer)) if tokenizer else None,
        "vocab_size": vocab_size,
        "seq_len": seq_len,
        "n_tokens": n_tokens,
        "validation_rows": source.validation_rows,
        "shard_rows": shard_rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        if (folder / MANIFEST).is_file():
            corpus = Corpus.open(folder)
            _check_request(folder, corpus.manifest["request"], request)
            return corpus
        state = PreparationState.load(folder) or _begin(source, tokenizer, folder, request)
        _check_request(folder, state.request, request)
        _Preparation(source, folder, state, progress or (lambda done, total: None)).run()
    return Corpus.open(folder)


def _begin(
    source: Source, tokenizer: "Tokenizer | None", folder: Path, request: dict[str, Any]
) -> PreparationState:
    """Write the tokenizer and the first state."""
    if tokenizer is None:
        texts = (document.text for document in source.documents("train"))
        tokenizer = train_tokenizer(texts, request["vocab_size"])
    bos_id(tokenizer)
    data = tokenizer_bytes(tokenizer)
    write_whole(folder / TOKENIZER, data)
    state = PreparationState(request, sha256(data))
    state.save(folder)
    return state


class _Preparation:
    """A running preparation; `state` is what it saves."""

    def __init__(
        self,
        source: Source,
        folder: Path,
        state: PreparationState,
        progress: Callable[[int, int], None],
    ):
        self.source, self.folder, self.state, self.progress = source, folder, state, progress
        self.request = state.request
        self.seq_len, self.shard_rows = self.request["seq_len"], self.request["shard_rows"]
        if sha256(folder / TOKENIZER) != state.tokenizer_sha256:
            raise ConfigError(
                f"{folder / TOKENIZER} has changed since the preparation began; delete the folder"
            )
        self.tokenizer = load_tokenizer(folder / TOKENIZER)
        self.bos = bos_id(self.tokenizer)

    def run(self) -> None:
        """Prepare both subsets, as far as they are missing, and write the manifest."""
        n_tokens = self.request["n_tokens"]
        limits = {
            "validation": self.request["validation_rows"],
            "train": -(-n_tokens // self.seq_len) if n_tokens else NO_LIMIT,
        }
        for name in SUBSETS:
            subset = self.state.subsets[name]
            if not subset.done:
                self._prepare_subset(name, subset, limits[name])
            if not subset.rows:
                raise ValueError(
                    f"the {name} subset of {self.source.name!r} does not fill a row of "
                    f"{self.seq_len + 1} tokens; use more text, or a shorter seq_len"
                )
        self._write_manifest()

    def _prepare_subset(self, name: str, subset: SubsetState, limit: int) -> None:
        """Write the rows of a subset, at most `limit`; save the state after each full shard."""
        state = self.state
        batches = (self._packed_rows if self.source.packed else self._document_rows)(name, subset)
        # A resumed preparation may have all its rows: it must not read, and count, another batch.
        while (missing := limit - subset.rows - len(state.pending)) > 0:
            if (rows := next(batches, None)) is None:
                break
            state.pending += rows[:missing]
            if len(state.pending) >= self.shard_rows:
                while len(state.pending) >= self.shard_rows:
                    self._write_shard(name, subset)
                state.save(self.folder)
            self._report(name, subset, limit)
        if state.pending:
            self._write_shard(name, subset)
        state.waiting, subset.done = [], True
        state.save(self.folder)

    def _report(self, name: str, subset: SubsetState, limit: int) -> None:
        rows = subset.rows + len(self.state.pending)
        share = self.source.share_read(name, subset.place)
        total = min(round(rows / share) if share else NO_LIMIT, limit)
        self.progress(rows * self.seq_len, 0 if total == NO_LIMIT else total * self.seq_len)

    def _write_shard(self, name: str, subset: SubsetState) -> None:
        rows = self.state.pending[: self.shard_rows]
        subset.shards.append(write_shard(self.folder, name, len(subset.shards), rows))
        self.state.pending = self.state.pending[self.shard_rows :]

    def _packed_rows(self, name: str, subset: SubsetState) -> Iterator[list[np.ndarray]]:
        for place, rows in self.source.rows(name, self.seq_len, subset.place):
            if rows.min() < 0 or rows.max() >= self.request["vocab_size"]:
                raise ValueError(
                    f"tokens of {rows.min()} to {rows.max()} in the packed rows, but the tokenizer "
                    f"has {self.request['vocab_size']}; name the one that the rows were made with"
                )
            subset.place = place
            subset.documents += int((rows == self.bos).sum())
            subset.encoded_tokens += rows.size
            yield list(rows.astype(np.uint16))

    def _document_rows(self, name: str, subset: SubsetState) -> Iterator[list[np.ndarray]]:
        """Rows of a batch of documents at a time, and at last those of the waiting documents."""
        packer = BestFitPacker(self.seq_len + 1)
        for doc in self.state.waiting:
            packer.add(doc)
        discarded = subset.discarded_tokens
        documents = self.source.documents(name, subset.place)
        while batch := list(islice(documents, BATCH_DOCS)):
            rows = []
            for ids in token_ids(self.tokenizer, [document.text for document in batch]):
                rows += packer.add(np.array([self.bos, *ids], dtype=np.uint16))
                subset.encoded_tokens += len(ids) + 1
            subset.place = batch[-1].place
            subset.documents += len(batch)
            subset.text_bytes += sum(len(document.text.encode()) for document in batch)
            subset.discarded_tokens = discarded + packer.discarded
            self.state.waiting = packer.waiting
            yield rows
        rows = packer.finish()
        subset.discarded_tokens, self.state.waiting = discarded + packer.discarded, []
        yield rows

    def _write_manifest(self) -> None:
        subsets = self.state.subsets
        tokenizer = {
            "sha256": self.state.tokenizer_sha256,
            "vocab_size": self.request["vocab_size"],
            "bos_id": self.bos,
        }
        shards = {name: subset.shards for name, subset in subsets.items()}
        manifest = {
            "format": FORMAT,
            "source": self.source.name,
            "seq_len": self.seq_len,
            "sha256": content_sha256(tokenizer["sha256"], shards),
            "tokenizer": tokenizer,
            **{name: _counts(subsets[name], self.seq_len) for name in ("train", "validation")},
            "licences": self.source.licences,
            "versions": {name: need(name).__version__ for name in ("numpy", "tokenizers")},
            "request": self.request,
        }
        text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
        write_whole(self.folder / MANIFEST, text)
        (self.folder / STATE).unlink()


def _counts(subset: SubsetState, seq_len: int) -> dict[str, Any]:
    used = subset.rows * (seq_len + 1)
    return {
        "rows": subset.rows,
        "tokens": subset.rows * seq_len,
        "documents": subset.documents,
        "text_bytes": subset.text_bytes or None,
        "encoded_tokens": subset.encoded_tokens,
        "discarded_tokens": subset.discarded_tokens,
        "discarded_share": subset.discarded_tokens / (used + subset.discarded_tokens),
        "shards": subset.shards,
    }


def _vocab_size(source: Source, tokenizer: "Tokenizer | None", requested: int | None) -> int:
    """Vocabulary of the corpus, from the existing tokenizer or for the one to train."""
    size = source.vocab_size if requested is None else requested
    size = tokenizer.get_vocab_size() if tokenizer else size
    if requested not in (None, size):
        raise ConfigError(
            f"vocab_size: got {requested}, but the tokenizer of the source has {size}; leave it out"
        )
    if size > MAX_VOCAB:
        raise ConfigError(
            f"vocab_size: got {size}, expected at most {MAX_VOCAB}, since tokens are stored in "
            "16 bits"
        )
    return size


def _lock(folder: Path) -> "BaseFileLock":
    """Lock of a folder; a second preparation waits for the first."""
    filelock = need("filelock")
    lock = filelock.FileLock(folder / ".lock")
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        log.warning("waiting for another preparation of %s", folder)
        return lock.acquire()


def _check_request(folder: Path, existing: dict[str, Any], request: dict[str, Any]) -> None:
    """Refuse a folder whose corpus was requested differently; the message names the settings."""
    have, want = (
        pd.json_normalize(values).to_dict("records")[0]
        for values in (existing, json.loads(json.dumps(request)))
    )
    if other := [name for name in have | want if have.get(name) != want.get(name)]:
        differ = ", ".join(f"{name} {have.get(name)!r}, not {want.get(name)!r}" for name in other)
        raise ConfigError(
            f"{folder} holds another corpus: {differ}. Delete that folder to prepare it again, or "
            "name another folder"
        )
