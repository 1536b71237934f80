"""`looped.train`: from a spec to a record.

A run works in a folder of its own:

    spec.json      what is trained
    metrics.jsonl  one line a step (`looped.training.metrics`)
    checkpoints/   the newest few (`looped.training.checkpoint`)
    RUN_ID.json    the record, once the run has finished
"""

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from looped.config import require_whole
from looped.data.corpus import Corpus, default_folder
from looped.errors import ConfigError
from looped.files import write_whole
from looped.registry.record import RunRecord, is_record, read_record, write_record
from looped.spec import RunSpec
from looped.training.checkpoint import steps
from looped.training.distributed import connected
from looped.training.names import LOCK, SPEC
from looped.training.trainer import Trainer

PACKED = "-packed"
"""What a source of rows that are packed already adds to the name of the text."""

LOCK_SECONDS = 2.0
"""Wait for a lock: who only looks whether a run is held holds it for a moment."""

logger = logging.getLogger("looped")


def train(
    spec: RunSpec,
    workdir: str | Path,
    *,
    corpus: Corpus | str | Path | None = None,
    device: str = "auto",
    attention: str = "auto",
    compile: bool = False,
    micro_rows: int | None = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    progress: bool | None = None,
    trackers: Sequence[str] = (),
) -> RunRecord:
    """Train a model as its spec says, or go on where an earlier call stopped.

    A recorded run is not run again: its record is returned. Started by torchrun, every process
    calls this and takes its share of each batch. The arguments after `workdir` change how fast the
    result comes and what is shown; on one CPU process a run that was stopped and resumed ends
    with the same bits as one that was not.

    Args:
        spec: what to train, on how many tokens of which corpus.
        workdir: folder of this run alone; made if it is not there.
        corpus: a prepared corpus or its folder; None for the default folder of `spec.corpus`.
        device: auto, cpu, cuda or cuda:N. On a card matrix products run in bf16.
        attention: auto, or a name of `looped.model.attention`.
        compile: compile each block (pays on runs of more than a few minutes).
        micro_rows: rows of one pass forward and backward; the gradients of a batch add up.
        checkpoint_every: steps between checkpoints; None for about every five minutes.
        keep: checkpoints that stay.
        progress: True for a bar, False for silence; None for a bar on a terminal, else log lines.
        trackers: tensorboard, wandb.

    Raises:
        ConfigError: settings that do not go together, or a folder of another run.
        TrainingError: loss or gradient is no longer finite; no record is written.
        KeyboardInterrupt: stopped by Ctrl-C or SIGTERM, after a checkpoint.
    """
    require_whole("keep", keep, 1)
    if checkpoint_every is not None:
        require_whole("checkpoint_every", checkpoint_every, 1)
    run = Path(workdir)
    with connected(device) as ranks, ExitStack() as stack:
        if ranks.is_first:
            stack.enter_context(_locked(run))
            _claim(run, spec)
        ranks.wait()
        recorded = run / f"{spec.run_id}.json"
        if recorded.is_file():
            logger.info("%s is recorded already", recorded)
            return read_record(recorded)
        corpus = open_corpus(spec, corpus)
        trainer = Trainer(spec, run, corpus, ranks, attention, compile, micro_rows, keep)
        trainer.run_steps(checkpoint_every, progress, trackers)
        losses = trainer.validate()
        if ranks.is_first:
            write_record(trainer.record(*losses), run)
        ranks.wait()
        return read_record(recorded)


def open_corpus(spec: RunSpec, corpus: Corpus | str | Path | None) -> Corpus:
    """The prepared corpus of a run, checked against its spec.

    Raises:
        ConfigError: another corpus, rows of another length, or tokens that the model lacks.
    """
    model = spec.model
    source, _, digest = spec.corpus.partition("@")
    if corpus is None:
        corpus = default_folder(source, model.n_vocab, model.seq_len)
    if not isinstance(corpus, Corpus):
        corpus = Corpus.open(corpus)
    if corpus.seq_len != model.seq_len or corpus.vocab_size > model.n_vocab:
        raise ConfigError(
            f"corpus: got rows of {corpus.seq_len} tokens and a vocabulary of "
            f"{corpus.vocab_size}; the model has seq_len={model.seq_len}, {model.n_vocab} tokens; "
            "prepare the corpus for it"
        )
    same = source in (corpus.source, corpus.source.removesuffix(PACKED))
    if not same or not corpus.sha256.startswith(digest):
        raise ConfigError(
            f"corpus: {corpus.folder} holds {corpus.source}@{corpus.sha256[:12]}, the spec says "
            f"{spec.corpus!r}; name the one that is meant"
        )
    return corpus


def _claim(run: Path, spec: RunSpec) -> None:
    """Write the spec into the folder, unless another run has got somewhere in it.

    Raises:
        ConfigError: the folder holds checkpoints or the record of another run.
    """
    path = run / SPEC
    if path.is_file() and path.read_text() != _spec_text(spec):
        if steps(run) or any(is_record(file) for file in run.glob("*.json")):
            raise ConfigError(
                f"workdir: {run} is of another run than {spec.run_id}; "
                "give every run a folder of its own"
            )
    write_whole(path, _spec_text(spec))


def _spec_text(spec: RunSpec) -> str:
    return json.dumps(spec.to_dict(), indent=2) + "\n"


@contextmanager
def _locked(run: Path):
    run.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(run / LOCK, timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise ConfigError(f"workdir: another process is training in {run}; wait for it") from None
