"""Checkpoints of a run: the newest few, each either complete or absent.

RUN/checkpoints/step-00000100/model.safetensors   weights, fp32
                              optimizer.pt        state of the optimisers, tensors only
                              state.json          step, corpus, seconds, number of resumptions
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from looped.errors import ConfigError, TrainingError
from looped.files import sync
from looped.model.looped_lm import LoopedLM
from looped.spec import RunSpec
from looped.training.names import CHECKPOINTS, SPEC
from looped.training.optimizers import Optimizers

_WEIGHTS, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.pt", "state.json"


@dataclass
class State:
    """Position of a run."""

    corpus_sha256: str
    step: int = 0  # optimiser steps so far; it determines the position in the data
    seconds: float = 0.0  # training time without validation
    resumed: int = 0  # number of resumptions
    stretches: list[dict[str, Any]] = field(default_factory=list)  # `registry.record.Segment`s


def save(
    run: Path, state: State, model: LoopedLM, optimizer_state: dict[str, Any], keep: int
) -> Path:
    """Write a complete checkpoint, then delete all but the newest `keep`.

    Raises:
        TrainingError: writing failed; the earlier checkpoints remain.
    """
    folder = run / CHECKPOINTS
    final = folder / f"step-{state.step:08d}"
    partial = folder / f".{final.name}.partial"
    for left in folder.glob(".*.partial"):  # of a process that was killed while writing
        shutil.rmtree(left)
    partial.mkdir(parents=True)
    try:
        save_model(model, str(partial / _WEIGHTS))
        torch.save(optimizer_state, partial / _OPTIMIZER)
        (partial / _STATE).write_text(json.dumps(asdict(state)))
        for path in [*partial.iterdir(), partial]:
            sync(path)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise TrainingError(
            f"step {state.step}: could not write the checkpoint to {folder} ({error}); the earlier "
            "checkpoints remain. Free disk space and start the run again"
        ) from error
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    sync(folder)
    for old in list_checkpoints(run)[:-keep]:
        shutil.rmtree(old)
    return final


def list_checkpoints(run: Path) -> list[Path]:
    """Folders of the complete checkpoints of a run, oldest first."""
    return sorted((run / CHECKPOINTS).glob("step-*"))


def restore(run: Path, corpus_sha256: str, model: LoopedLM, optimizer: Optimizers) -> State:
    """Load the newest checkpoint into model and optimisers; a new State if there is none.

    Raises:
        ConfigError: the run was started on another corpus, or the checkpoint is damaged.
    """
    if not (found := list_checkpoints(run)):
        return State(corpus_sha256)
    with _readable(found[-1]) as newest:
        state = _read_state(newest)
        if state.corpus_sha256 == corpus_sha256:
            load_model(model, str(newest / _WEIGHTS))
            optimizer.load_state_dict(
                torch.load(newest / _OPTIMIZER, map_location="cpu", weights_only=True)
            )
    if state.corpus_sha256 != corpus_sha256:
        raise ConfigError(
            f"corpus: got {corpus_sha256[:12]}, expected {state.corpus_sha256[:12]}, on which "
            f"{run} was started; use that corpus, or another folder"
        )
    state.resumed += 1
    return state


@contextmanager
def _readable(checkpoint: Path) -> Iterator[Path]:
    """The folder, for reading; any error in the block is reported as a damaged checkpoint."""
    try:
        yield checkpoint
    except Exception as error:  # the three formats raise errors of many types
        raise ConfigError(
            f"{checkpoint} is damaged ({type(error).__name__}); delete that folder to resume from "
            "the checkpoint before it"
        ) from error


def load_trained(run: str | Path, attention: str = "auto", device: str = "cpu") -> LoopedLM:
    """The model of a run's folder with the weights of its newest checkpoint.

    Raises:
        FileNotFoundError: the folder has no run, or the run has no checkpoint.
        ConfigError: the checkpoint is damaged.
    """
    spec, newest = _trained(Path(run))
    model = LoopedLM(spec.model, attention)
    with _readable(newest):
        load_model(model, str(newest / _WEIGHTS))
    return model.to(device)


def trained_state(run: str | Path) -> tuple[RunSpec, State]:
    """Spec of a run's folder, and the position of its newest checkpoint.

    Raises:
        FileNotFoundError: the folder has no run, or the run has no checkpoint.
        ConfigError: the checkpoint is damaged.
    """
    spec, newest = _trained(Path(run))
    with _readable(newest):
        return spec, _read_state(newest)


def _read_state(checkpoint: Path) -> State:
    return State(**json.loads((checkpoint / _STATE).read_text()))


def _trained(run: Path) -> tuple[RunSpec, Path]:
    if not (run / SPEC).is_file() or not (found := list_checkpoints(run)):
        raise FileNotFoundError(
            f"{run}: no checkpoint of a run; give the folder that looped.train worked in"
        )
    return RunSpec.from_dict(json.loads((run / SPEC).read_text())), found[-1]
