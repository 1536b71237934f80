"""`looped.train`: from a spec to a record.

The folder of a run:

    spec.json      the spec
    metrics.jsonl  one line per step (`looped.training.metrics`)
    checkpoints/   the newest checkpoints (`looped.training.checkpoint`)
    RUN_ID.json    the record of the finished run
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from looped.config import require_whole
from looped.data.corpus import Corpus, default_folder
from looped.errors import ConfigError
from looped.files import write_whole
from looped.registry.record import RunRecord, is_record, read_record, write_record
from looped.spec import RunSpec
from looped.training.checkpoint import list_checkpoints
from looped.training.distributed import connected
from looped.training.names import LOCK, SPEC
from looped.training.trainer import Trainer

PACKED = "-packed"
"""Suffix of the name of a source whose rows are already packed."""

LOCK_SECONDS = 2.0
"""Lock timeout: status checks take the lock briefly."""

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
    progress: Callable[[int, int], None] | None = None,
    trackers: Sequence[str] = (),
) -> RunRecord:
    """Train the model of a spec, or resume where an earlier call stopped, and return the record.

    A run that has a record is not trained again. Under torchrun, all processes call this function
    and share each batch. The arguments after `workdir` change the speed and what is shown, not the
    result. On one CPU process, a run that was stopped and resumed is bitwise equal to an
    uninterrupted run.

    Args:
        spec: model, training settings, number of tokens and name of the corpus.
        workdir: folder of this run; it is created if it does not exist.
        corpus: a prepared corpus or its folder; None for the default folder of `spec.corpus`.
        device: auto, cpu, cuda or cuda:N. On a card, matrix products run in bf16.
        attention: auto, or the name of a backend of `looped.model.attention`.
        compile: compile each block, which saves time in runs of more than a few minutes.
        micro_rows: rows per forward and backward pass; gradients add up over a batch. None for
            about 2,048 tokens on a CPU and 16,384 on a card.
        checkpoint_every: steps between checkpoints; None for about five minutes.
        keep: number of checkpoints to keep.
        progress: called with the number of finished steps and the number of all steps. None for
            20 log lines (logger `looped`, level INFO).
        trackers: names of experiment trackers: tensorboard, wandb.

    Raises:
        ConfigError: contradictory settings, or a folder of another run.
        TrainingError: loss or gradient is not finite; no record is written.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after a checkpoint.
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
            logger.info("%s exists already", recorded)
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
        ConfigError: another corpus, rows of another length, or tokens outside the vocabulary.
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
            f"{corpus.vocab_size}, expected seq_len={model.seq_len} and at most {model.n_vocab} "
            "tokens, the model's; prepare the corpus with these sizes"
        )
    same = source in (corpus.source, corpus.source.removesuffix(PACKED))
    if not same or not corpus.sha256.startswith(digest):
        raise ConfigError(
            f"corpus: got {corpus.source}@{corpus.sha256[:12]} in {corpus.folder}, expected "
            f"{spec.corpus!r} of the spec; give the folder of that corpus"
        )
    return corpus


def _claim(run: Path, spec: RunSpec) -> None:
    """Write the spec into the folder, unless the folder has results of another run.

    Raises:
        ConfigError: the folder has checkpoints or the record of another run.
    """
    path, text = run / SPEC, json.dumps(spec.to_dict(), indent=2) + "\n"
    if path.is_file() and path.read_text() != text:
        if list_checkpoints(run) or any(is_record(file) for file in run.glob("*.json")):
            raise ConfigError(
                f"workdir: {run} has results of another run than {spec.run_id}; "
                "use one folder per run"
            )
    write_whole(path, text)


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    run.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(run / LOCK, timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise ConfigError(f"workdir: another process is training in {run}; wait for it") from None
