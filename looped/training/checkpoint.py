"""Checkpoints of a run: the newest few, each whole or not there.

RUN/checkpoints/step-00000100/model.safetensors   weights, fp32
                              optimizer.pt        state of the optimisers, tensors only
                              state.json          step, corpus, seconds, times resumed
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from looped.errors import ConfigError, TrainingError
from looped.files import sync
from looped.model.looped_lm import LoopedLM
from looped.spec import RunSpec
from looped.training.names import CHECKPOINTS, SPEC

_WEIGHTS, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.pt", "state.json"


@dataclass
class State:
    """How far a run has come."""

    corpus_sha256: str
    step: int = 0  # optimiser steps done; the position in the data follows from it
    seconds: float = 0.0  # of training, validation not counted
    resumed: int = 0  # times that the run went on from a checkpoint
    stretches: list[dict] = field(default_factory=list)  # how it was run: `record.Segment`


def save(run: Path, state: State, model: LoopedLM, optimizer_state: dict, keep: int) -> Path:
    """Write a checkpoint in full, then remove all but the newest `keep`.

    Raises:
        TrainingError: it could not be written; the ones before stay.
    """
    folder = run / CHECKPOINTS
    final = folder / f"step-{state.step:08d}"
    partial = folder / f".{final.name}.partial"
    for left in folder.glob(".*.partial"):  # of a process that was killed while it wrote
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
            f"step {state.step}: the checkpoint could not be written to {folder} ({error}); "
            "those before it are kept. Make room, and start the run again"
        ) from error
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    sync(folder)
    for old in steps(run)[:-keep]:
        shutil.rmtree(old)
    return final


def steps(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted((run / CHECKPOINTS).glob("step-*"))


def restore(run: Path, corpus_sha256: str, model: LoopedLM, optimizer) -> State:
    """Load the newest checkpoint into model and optimisers; a fresh State where there is none.

    Raises:
        ConfigError: the run was begun on another corpus, or the checkpoint is damaged.
    """
    if not (found := steps(run)):
        return State(corpus_sha256)
    with _whole(found[-1]) as newest:
        state = State(**json.loads((newest / _STATE).read_text()))
        if state.corpus_sha256 == corpus_sha256:
            load_model(model, str(newest / _WEIGHTS))
            optimizer.load_state_dict(
                torch.load(newest / _OPTIMIZER, map_location="cpu", weights_only=True)
            )
    if state.corpus_sha256 != corpus_sha256:
        raise ConfigError(
            f"{run} was begun on the corpus {state.corpus_sha256[:12]}, got "
            f"{corpus_sha256[:12]}; give the same corpus, or another folder"
        )
    state.resumed += 1
    return state


@contextmanager
def _whole(checkpoint: Path) -> Iterator[Path]:
    """The folder, for reading; whatever fails there says that the checkpoint is damaged."""
    try:
        yield checkpoint
    except Exception as error:  # each of three formats fails in ways of its own
        raise ConfigError(
            f"{checkpoint} is damaged ({type(error).__name__}); delete that folder to go "
            "on from the checkpoint before it"
        ) from error


def load_trained(run: str | Path, attention: str = "auto", device: str = "cpu") -> LoopedLM:
    """The model of a run's folder with the weights of its newest checkpoint.

    Raises:
        FileNotFoundError: a folder without a run, or a run without a checkpoint.
    """
    spec, newest = _trained(Path(run))
    model = LoopedLM(spec.model, attention)
    with _whole(newest):
        load_model(model, str(newest / _WEIGHTS))
    return model.to(device)


def trained_state(run: str | Path) -> tuple[RunSpec, State]:
    """Spec of a run's folder, and how far its newest checkpoint has come.

    Raises:
        FileNotFoundError: a folder without a run, or a run without a checkpoint.
    """
    spec, newest = _trained(Path(run))
    with _whole(newest):
        return spec, State(**json.loads((newest / _STATE).read_text()))


def _trained(run) -> tuple[RunSpec, Path]:
    if not (run / SPEC).is_file() or not (found := steps(run)):
        raise FileNotFoundError(
            f"{run}: no checkpoint of a run; name the folder that looped.train worked in"
        )
    return RunSpec.from_dict(json.loads((run / SPEC).read_text())), found[-1]
