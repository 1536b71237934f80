"""Prepare a corpus: read a source, tokenise, pack into rows, write shards, and the manifest last.

Validation is prepared first, then training. Preparing again goes on after the last complete
shard, and gives the same bytes as a preparation that was never interrupted.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from looped.data.corpus import FORMAT, MANIFEST, TOKENIZER, Corpus, content_sha256, default_folder
from looped.data.packing import BestFitPacker
from looped.data.shards import PROGRESS, Side, State, write_shard
from looped.data.sources import SOURCES
from looped.data.sources.base import SIDES, RowSource, Source
from looped.data.tokenizer import (
    bos_id,
    load_tokenizer,
    sha256,
    token_ids,
    tokenizer_bytes,
    train_tokenizer,
)
from looped.errors import ConfigError
from looped.extras import need
from looped.files import write_whole

SHARD_ROWS = 8192
BATCH_DOCS = 512
MOST_TOKENS = 2**16  # that uint16 can name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """How far a preparation is: what a progress bar shows."""

    stage: str  # "tokenizer", "validation" or "train"
    tokens: int = 0  # in rows so far
    most_tokens: int | None = None  # expected at the end of the stage; None: not known


def prepare(
    source: str | Source,
    *,
    seq_len: int | None = None,
    vocab_size: int | None = None,
    n_tokens: int | None = None,
    out: str | Path | None = None,
    shard_rows: int = SHARD_ROWS,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Corpus:
    """Prepare a corpus, or go on with one, or open it if it is finished.

    Args:
        source: a name of `SOURCES`, or a source.
        seq_len: tokens that a row predicts; None for the source's.
        vocab_size: of the tokenizer to train; None for the source's, or for a tokenizer that
            is given.
        n_tokens: of training, rounded up to whole rows; None for all that the source has.
        out: folder; None for `default_folder`.
        shard_rows: rows of a shard.
        progress: is told how far it is; what it raises stops the preparation, which can go on.

    Raises:
        ConfigError: settings that exclude each other, or another corpus in the folder.
        OSError: a source that cannot be reached or read on.
    """
    source = _named(source) if isinstance(source, str) else source
    seq_len = source.seq_len if seq_len is None else seq_len
    if seq_len < 1 or shard_rows < 1 or (n_tokens is not None and n_tokens < 1):
        raise ConfigError(
            f"seq_len, shard_rows, n_tokens: got {seq_len}, {shard_rows}, {n_tokens}, "
            "expected at least 1 each"
        )
    given = source.tokenizer()
    vocab_size = _vocab_size(source, given, vocab_size)
    folder = Path(out) if out else default_folder(source.name, vocab_size, seq_len)
    request = {
        "source": source.name,
        "identity": source.identity(),
        "given_tokenizer": sha256(tokenizer_bytes(given)) if given else None,
        "vocab_size": vocab_size,
        "seq_len": seq_len,
        "n_tokens": n_tokens,
        "validation_rows": source.validation_rows,
        "shard_rows": shard_rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder):
        if (folder / MANIFEST).is_file():
            corpus = Corpus.open(folder)
            _same_request(folder, corpus.manifest["request"], request)
            return corpus
        _Preparation(source, given, folder, request, progress).run()
    return Corpus.open(folder)


class _Preparation:
    """One preparation at work; `state` is what is saved of it."""

    def __init__(self, source, given, folder, request, progress):
        self.source, self.folder, self.request = source, folder, request
        self.progress = progress
        self.seq_len, self.shard_rows = request["seq_len"], request["shard_rows"]
        self.state = State.load(folder)
        if self.state is None:
            self._begin(given)
        _same_request(folder, self.state.request, request)
        data = (folder / TOKENIZER).read_bytes()
        if sha256(data) != self.state.tokenizer_sha256:
            raise ConfigError(f"{folder / TOKENIZER} has changed since; delete the folder")
        self.tokenizer = load_tokenizer(folder / TOKENIZER)
        self.bos = bos_id(self.tokenizer)

    def _begin(self, given):
        self.progress(Progress("tokenizer"))
        tokenizer = given or train_tokenizer(
            (document.text for document in self.source.documents("train")),
            self.request["vocab_size"],
        )
        bos_id(tokenizer)
        data = tokenizer_bytes(tokenizer)
        write_whole(self.folder / TOKENIZER, data)
        self.state = State(self.request, sha256(data))
        self.state.save(self.folder)

    def run(self):
        limits = {"validation": self.request["validation_rows"], "train": None}
        if self.request["n_tokens"]:
            limits["train"] = -(-self.request["n_tokens"] // self.seq_len)
        for name in SIDES:
            if not self.state.sides[name].done:
                self._run_side(name, limits[name])
            if not self.state.sides[name].rows:
                raise ValueError(
                    f"the {name} side of {self.source.name!r} does not fill a row of "
                    f"{self.seq_len + 1} tokens; give more text, or a shorter seq_len"
                )
        self._finish()

    def _run_side(self, name, limit):
        """Rows of one side up to a limit, in shards; the state is saved where a shard is full."""
        state, side = self.state, self.state.sides[name]
        left = self._left(side, limit)
        for rows in self._rows(name, side) if left != 0 else ():
            state.pending += rows[:left]
            if len(state.pending) >= self.shard_rows:
                while len(state.pending) >= self.shard_rows:
                    self._write(name, side)
                state.save(self.folder)
            self.progress(self._progress(name, side, limit))
            if (left := self._left(side, limit)) == 0:
                break
        if state.pending:
            self._write(name, side)
        state.waiting, side.done = [], True
        state.save(self.folder)

    def _left(self, side, limit):
        """Rows that are still to be made; None where there is no limit."""
        return None if limit is None else limit - side.rows - len(self.state.pending)

    def _progress(self, name, side, limit):
        made = side.rows + len(self.state.pending)
        part = self.source.part_read(name, side.place)
        most = min(made / part if part else math.inf, math.inf if limit is None else limit)
        most_tokens = None if most == math.inf else round(most * self.seq_len)
        return Progress(name, made * self.seq_len, most_tokens)

    def _write(self, name, side):
        rows = self.state.pending[: self.shard_rows]
        side.shards.append(write_shard(self.folder, name, len(side.shards), rows))
        self.state.pending = self.state.pending[self.shard_rows :]

    def _rows(self, name: str, side: Side) -> Iterator[list[np.ndarray]]:
        if isinstance(self.source, RowSource):
            return self._packed_rows(name, side)
        return self._document_rows(name, side)

    def _packed_rows(self, name, side):
        for place, rows in self.source.rows(name, self.seq_len, side.place):
            if rows.min() < 0 or rows.max() >= self.request["vocab_size"]:
                raise ValueError(
                    f"tokens of {rows.min()} to {rows.max()} in the packed rows, but the tokenizer "
                    f"has {self.request['vocab_size']}; name the one they were made with"
                )
            side.place = place
            side.documents += int((rows == self.bos).sum())
            side.encoded_tokens += rows.size
            yield list(rows.astype(np.uint16))

    def _document_rows(self, name, side):
        """Rows of a side's documents, a batch of documents at a time, and those of the rest."""
        packer = BestFitPacker(self.seq_len + 1)
        for doc in self.state.waiting:
            packer.add(doc)
        before = side.discarded_tokens
        documents = self.source.documents(name, side.place)
        while batch := list(islice(documents, BATCH_DOCS)):
            rows = []
            for ids in token_ids(self.tokenizer, [document.text for document in batch]):
                packer.add(np.array([self.bos, *ids], dtype=np.uint16))
                side.encoded_tokens += len(ids) + 1
                while packer.full:
                    rows.append(packer.row())
            side.place = batch[-1].place
            side.documents += len(batch)
            side.text_bytes += sum(len(document.text.encode()) for document in batch)
            side.discarded_tokens = before + packer.discarded
            self.state.waiting = packer.waiting
            yield rows
        rows = []
        while (row := packer.row()) is not None:
            rows.append(row)
        side.discarded_tokens, self.state.waiting = before + packer.discarded, []
        yield rows

    def _finish(self):
        sides = self.state.sides
        tokenizer = {
            "sha256": self.state.tokenizer_sha256,
            "vocab_size": self.request["vocab_size"],
            "bos_id": self.bos,
        }
        shards = {name: side.shards for name, side in sides.items()}
        manifest = {
            "format": FORMAT,
            "source": self.source.name,
            "seq_len": self.seq_len,
            "sha256": content_sha256(tokenizer["sha256"], shards),
            "tokenizer": tokenizer,
            **{name: _counts(sides[name], self.seq_len) for name in ("train", "validation")},
            "licences": self.source.licences,
            "versions": {name: need(name).__version__ for name in ("numpy", "tokenizers")},
            "request": self.request,
        }
        text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
        write_whole(self.folder / MANIFEST, text.encode())
        (self.folder / PROGRESS).unlink()


def _counts(side: Side, seq_len: int) -> dict:
    used = side.rows * (seq_len + 1)
    return {
        "rows": side.rows,
        "tokens": side.rows * seq_len,
        "documents": side.documents,
        "text_bytes": side.text_bytes or None,
        "encoded_tokens": side.encoded_tokens,
        "discarded_tokens": side.discarded_tokens,
        "discarded_share": side.discarded_tokens / (used + side.discarded_tokens),
        "shards": side.shards,
    }


def _named(name: str) -> Source:
    if name not in SOURCES:
        raise ConfigError(f"source: got {name!r}, expected one of {', '.join(SOURCES)}")
    return SOURCES[name]()


def _vocab_size(source, given, asked: int | None) -> int:
    found = given.get_vocab_size() if given else source.vocab_size if asked is None else asked
    if given and asked not in (None, found):
        raise ConfigError(
            f"vocab_size: got {asked}, but the tokenizer that is given has {found}; leave it out"
        )
    if found > MOST_TOKENS:
        raise ConfigError(
            f"vocab_size: got {found}, expected at most {MOST_TOKENS}, since tokens are stored "
            "in 16 bits"
        )
    return found


def _only_one(folder: Path):
    """Lock of a folder: a second preparation waits for the first."""
    filelock = need("filelock")
    lock = filelock.FileLock(folder / ".lock")
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        log.warning("waiting for another preparation of %s", folder)
        return lock.acquire()


def _same_request(folder: Path, there: dict, asked: dict) -> None:
    have, want = _leaves(there), _leaves(json.loads(json.dumps(asked)))
    other = [name for name in {**have, **want} if have.get(name) != want.get(name)]
    if other:
        differ = ", ".join(f"{name} {have.get(name)!r}, not {want.get(name)!r}" for name in other)
        raise ConfigError(
            f"{folder} holds another corpus: {differ}. Delete that folder to prepare it again, or "
            "name another one"
        )


def _leaves(values: dict, prefix: str = "") -> dict:
    """The values at the ends of nested dictionaries, by their path."""
    found = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        found |= _leaves(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found
