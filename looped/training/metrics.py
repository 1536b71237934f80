"""Training metrics: one JSON line per step, and experiment trackers.

step              optimiser steps so far
tokens            training tokens so far
loss              mean over the batch, nats per token
lr                MuonH rate of the step
grad_norm         2-norm of the gradient over all parameters
seconds           training time so far
tokens_per_second of this step
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from looped.errors import ConfigError, pick
from looped.files import sync, write_whole
from looped.spec import RunSpec
from looped.training.names import METRICS

Tracker = Callable[[dict[str, float] | None], None]
"""Function called with the metrics of each step, and with None at the end."""


class Metrics:
    """The metrics file of one run, continued after step `done`, and its trackers."""

    def __init__(self, run: Path, spec: RunSpec, done: int, trackers: Sequence[str] = ()):
        self.path = run / METRICS
        self.trackers = [open_tracker(name, run, spec, done) for name in trackers]
        self._cut(done)
        self.file = self.path.open("a")

    def write(self, values: dict[str, float]) -> None:
        """Append the metrics of one step."""
        self.file.write(json.dumps(values) + "\n")
        self.file.flush()
        for track in self.trackers:
            track(values)

    def sync(self) -> None:
        """fsync the file, so that a later checkpoint cannot reach the disk first."""
        sync(self.path)

    def close(self) -> None:
        """Close file and trackers."""
        self.file.close()
        for track in self.trackers:
            track(None)

    def _cut(self, done: int) -> None:
        """Remove steps after the checkpoint: a killed process may leave some, the last cut off."""
        kept = [line for line in read_metrics(self.path.parent) if line["step"] <= done]
        if len(kept) < done:
            raise ConfigError(
                f"{self.path}: got {len(kept)} steps, expected the {done} steps of the checkpoint; "
                "restore the file, or delete the checkpoints of the folder to start again"
            )
        write_whole(self.path, "".join(json.dumps(line) + "\n" for line in kept))


def read_metrics(run: str | Path) -> list[dict[str, float]]:
    """Metrics of a run's folder, oldest step first, without an incomplete last line.

    Raises:
        ConfigError: a complete line is not JSON.
    """
    path = Path(run) / METRICS
    if not path.is_file():
        return []
    *lines, _incomplete = path.read_text().split("\n")
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: a line is not JSON ({error}); remove that line") from None


def tail_loss(run: str | Path) -> float:
    """Mean training loss of the last tenth of the steps so far, nats per token."""
    losses = [line["loss"] for line in read_metrics(run)]
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def open_tracker(name: str, run: Path, spec: RunSpec, done: int) -> Tracker:
    """The tracker of a run that continues after step `done`.

    Raises:
        ConfigError: an unknown tracker, or its package is not installed.
    """
    tracker = pick("tracker", name, TRACKERS)
    try:
        return tracker(run, spec, done)
    except ImportError as error:
        raise ConfigError(
            f"tracker {name!r} is not installed ({error}): pip install 'looped[{name}]'"
        ) from None


def _tensorboard(run: Path, spec: RunSpec, done: int) -> Tracker:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run / "tensorboard"), purge_step=done + 1)

    def track(values: dict[str, float] | None) -> None:
        if values is None:
            writer.close()
            return
        for name, value in values.items():
            writer.add_scalar(name, value, values["step"])

    return track


def _wandb(run: Path, spec: RunSpec, done: int) -> Tracker:
    import wandb

    tracked = wandb.init(
        project="looped", id=spec.run_id, resume="allow", dir=str(run), config=spec.to_dict()
    )

    def track(values: dict[str, float] | None) -> None:
        if values is None:
            tracked.finish()
        else:
            tracked.log(values, step=values["step"])

    return track


TRACKERS: dict[str, Callable[[Path, RunSpec, int], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
