"""What a run tells while it trains: a line per step in a file, a bar or log lines, and trackers.

step              optimiser steps done
tokens            training tokens read
loss              mean over the batch, nats per token
lr                MuonH rate of the step
grad_norm         2-norm of the gradient over all parameters
seconds           of training so far
tokens_per_second of this step
"""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from looped.errors import ConfigError
from looped.files import sync, write_whole
from looped.spec import RunSpec
from looped.training.names import METRICS

LOG_LINES = 20
"""Lines of a whole run in a log that is no terminal."""

logger = logging.getLogger("looped")


class Metrics:
    """The metrics of one run from step `done` on; lines of later steps are cut off first."""

    def __init__(self, run: Path, spec: RunSpec, done: int, trackers: Sequence[str] = ()):
        self.path = run / METRICS
        self.trackers = [open_tracker(name, run, spec, done) for name in trackers]
        self._cut(done)
        self.file = self.path.open("a")

    def write(self, values: dict[str, float]) -> None:
        """Add one step."""
        self.file.write(json.dumps(values) + "\n")
        self.file.flush()
        for track in self.trackers:
            track(values)

    def sync(self) -> None:
        """Have the disk hold the steps so far, before the checkpoint that follows on them."""
        sync(self.path)

    def close(self) -> None:
        """Close file and trackers."""
        self.file.close()
        for track in self.trackers:
            track(None)

    def _cut(self, done):
        """After a kill the file may hold steps beyond the checkpoint, the last one in part."""
        kept = [line for line in read_metrics(self.path.parent) if line["step"] <= done]
        if len(kept) < done:
            raise ConfigError(
                f"{self.path} has {len(kept)} of the {done} steps of the checkpoint: lines are "
                "lost. Bring the file back, or remove the folder's checkpoints to begin again"
            )
        write_whole(self.path, "".join(json.dumps(line) + "\n" for line in kept))


def read_metrics(run: str | Path) -> list[dict[str, float]]:
    """The steps in a run's folder, oldest first; a last line cut short by a kill is left out."""
    path = Path(run) / METRICS
    if not path.is_file():
        return []
    *lines, _cut_short = path.read_text().split("\n")
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} holds a line that is not JSON ({error}); remove it") from None


def tail_loss(run: str | Path) -> float:
    """Mean training loss of the last tenth of the steps so far, nats per token."""
    losses = [line["loss"] for line in read_metrics(run)]
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


class Display:
    """Progress of a run: a bar on a terminal, otherwise a few lines in the log, or nothing."""

    def __init__(self, spec: RunSpec, done: int, peak_flops: float | None, shown: bool | None):
        self.n_steps, self.peak = spec.n_steps, peak_flops
        terminal = sys.stderr.isatty() if shown is None else shown
        self.every = max(1, spec.n_steps // LOG_LINES) if shown is None and not terminal else None
        self.bar = _bar() if terminal else None
        if self.bar:
            self.task = self.bar.add_task("", total=spec.n_steps, completed=done, told="")
            self.bar.start()

    def show(self, values: dict[str, float], flops_per_token: float) -> None:
        """Tell one step."""
        told = f"loss {values['loss']:.4f}  {values['tokens_per_second']:,.0f} tok/s"
        if self.peak:
            told += f"  MFU {values['tokens_per_second'] * flops_per_token / self.peak:.1%}"
        if self.bar:
            self.bar.update(self.task, completed=values["step"], told=told)
        elif self.every and values["step"] % self.every == 0:
            logger.info("step %d of %d: %s", values["step"], self.n_steps, told)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar:
            self.bar.stop()


def _bar() -> Progress:
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def open_tracker(name: str, run: Path, spec: RunSpec, done: int) -> Callable[[dict | None], None]:
    """Function that takes the metrics of each step, and None at the end.

    Raises:
        ConfigError: an unknown tracker, or one that is not installed.
    """
    if name not in TRACKERS:
        raise ConfigError(f"tracker: got {name!r}, expected one of {', '.join(TRACKERS)}")
    try:
        return TRACKERS[name](run, spec, done)
    except ImportError as error:
        raise ConfigError(
            f"tracker {name!r} is not installed ({error}): pip install 'looped[{name}]'"
        ) from None


def _tensorboard(run, spec, done):
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run / "tensorboard"), purge_step=done + 1)

    def track(values):
        if values is None:
            return writer.close()
        for name, value in values.items():
            writer.add_scalar(name, value, values["step"])

    return track


def _wandb(run, spec, done):
    import wandb

    tracked = wandb.init(
        project="looped", id=spec.run_id, resume="allow", dir=str(run), config=spec.to_dict()
    )

    def track(values):
        if values is None:
            return tracked.finish()
        tracked.log(values, step=values["step"])

    return track


TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb}
