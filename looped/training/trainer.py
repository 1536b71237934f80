"""Training loop of one run: model, optimisers, position, and this process's share of a batch."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

import looped.training.checkpoint as checkpoints
from looped import accounting
from looped.data.corpus import Corpus
from looped.data.order import batch_indices, rank_part
from looped.errors import ConfigError, TrainingError
from looped.model.attention import choose_backend
from looped.model.looped_lm import LoopedLM
from looped.registry.record import Provenance, Result, RunRecord, Segment
from looped.spec import RunSpec
from looped.training import hardware
from looped.training.distributed import Ranks
from looped.training.metrics import Metrics, tail_loss
from looped.training.names import CHECKPOINTS
from looped.training.optimizers import build_optimizers
from looped.training.signals import stop_signals
from looped.training.validate import to_tokens, validate

CHECKPOINT_SECONDS = 300
PASS_TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Tokens per forward and backward pass, by kind of device, unless `micro_rows` is set."""
LOG_LINES = 20
"""Log lines of a whole run without a progress callable."""

Progress = Callable[[int, int], None]
LogStep = Callable[[dict[str, float]], None]
logger = logging.getLogger("looped")


class Trainer:
    """One run in one process: model, optimisers, position, and share of each batch."""

    def __init__(
        self,
        spec: RunSpec,
        run: Path,
        corpus: Corpus,
        ranks: Ranks,
        attention: str,
        compile: bool,
        micro_rows: int | None,
        keep: int,
    ):
        self.spec, self.run, self.corpus, self.ranks, self.keep = spec, run, corpus, ranks, keep
        self.compiled = compile
        self.micro_rows = _micro_rows(spec, ranks, micro_rows)
        on_card = ranks.device.type == "cuda"
        self.dtype = torch.bfloat16 if on_card else torch.float32
        self.attention = choose_backend(attention, ranks.device, self.dtype, spec.model.d_head)
        self.model = LoopedLM(spec.model, self.attention, spec.train.seed).to(ranks.device)
        if compile:
            self.model.compile_blocks()
        self.optimizer = build_optimizers(self.model, spec)
        self.state = checkpoints.restore(run, corpus.sha256, self.model, self.optimizer)
        self._begin_segment()
        self.loss: Any = _Loss(self.model)
        if ranks.world_size > 1:
            ids = [ranks.device.index] if on_card else None
            self.loss = DistributedDataParallel(self.loss, device_ids=ids)
        self.flops_per_token = accounting.flops_per_token(spec.model)
        self.peak = hardware.peak_flops(ranks.device)
        if self.peak:
            self.peak *= ranks.world_size

    def run_steps(
        self, checkpoint_every: int | None, progress: Progress | None, trackers: Sequence[str]
    ) -> None:
        """Run the remaining steps, with checkpoints at intervals and at the end."""
        saved = time.perf_counter()
        with _log(self, progress, trackers) as (log_step, flush), stop_signals() as stopped:
            while self.state.step < self.spec.n_steps:
                begin = time.perf_counter()
                due = checkpoint_every is None and begin - saved > CHECKPOINT_SECONDS
                loss, norm, stop, due = self.step(stopped.is_set(), due)
                self.state.seconds += (took := time.perf_counter() - begin)
                log_step(self._metrics(loss, norm, took))
                done = self.state.step == self.spec.n_steps
                regular = checkpoint_every and self.state.step % checkpoint_every == 0
                if done or stop or due or regular:
                    flush()
                    self.save()
                    saved = time.perf_counter()
                if stop and not done:
                    raise KeyboardInterrupt(
                        f"stopped at step {self.state.step} of {self.spec.n_steps}; "
                        "the same call resumes there"
                    )

    def step(self, stop: bool = False, due: bool = False) -> tuple[float, float, bool, bool]:
        """One optimiser step, on this process's share of the batch.

        Returns:
            (loss of the whole batch, gradient norm, whether any process has received a stop
            signal, whether any process reports a due checkpoint), the same on all processes.
        """
        index = self.state.step
        batch = rank_part(
            batch_indices(
                len(self.corpus.train), self.spec.train.batch_rows, index, self.spec.train.seed
            ),
            self.ranks.rank,
            self.ranks.world_size,
        )
        passes = batch.reshape(-1, self.micro_rows)
        shared = torch.zeros(3, dtype=torch.float64, device=self.ranks.device)
        for number, rows in enumerate(passes, start=1):
            last = number == len(passes)
            with nullcontext() if last or self.ranks.world_size == 1 else self.loss.no_sync():
                loss = self._pass(rows) / len(passes)
                loss.backward()
            shared[0] += loss.detach() / self.ranks.world_size
        shared[1], shared[2] = stop, due
        mean_loss, any_stop, any_due = self.ranks.sum(shared).tolist()
        norm = self._checked_norm(mean_loss)
        self.optimizer.set_rates(index)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state.step += 1
        return mean_loss, norm, any_stop > 0, any_due > 0

    def _pass(self, rows: np.ndarray) -> torch.Tensor:
        batch = to_tokens(self.corpus.train.rows(rows), self.ranks.device)
        on_card = self.ranks.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16) if on_card else nullcontext():
            return self.loss(batch)

    def _checked_norm(self, loss: float) -> float:
        named = {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}
        norms = torch.stack(torch._foreach_norm(list(named.values())))
        total = norms.norm().item()
        if not (total < float("inf") and loss < float("inf")):
            wrong = [n for n, norm in zip(named, norms, strict=True) if not norm.isfinite()]
            where = f"gradient of {', '.join(wrong[:3])}" if wrong else "gradient norm"
            raise TrainingError(
                f"step {self.state.step}: loss {loss}, {where} is not finite; the last checkpoint "
                f"remains in {self.run / CHECKPOINTS}. Lower the learning rate"
            )
        return total

    def _metrics(self, loss: float, norm: float, took: float) -> dict[str, float]:
        return {
            "step": self.state.step,
            "tokens": self.state.step * self.spec.batch_tokens,
            "loss": loss,
            "lr": self.optimizer.rates()["matrix"],
            "grad_norm": norm,
            "seconds": self.state.seconds,
            "tokens_per_second": self.spec.batch_tokens / took,
        }

    def describe(self, values: dict[str, float]) -> str:
        """Loss, speed and, on known cards, model FLOPs utilisation of a step."""
        speed = values["tokens_per_second"]
        text = f"loss {values['loss']:.4f}  {speed:,.0f} tok/s"
        return f"{text}  MFU {speed * self.flops_per_token / self.peak:.1%}" if self.peak else text

    def save(self) -> None:
        """Write a checkpoint. All processes must call it."""
        optimizer_state = self.optimizer.state_dict()
        if self.ranks.is_first:
            checkpoints.save(self.run, self.state, self.model, optimizer_state, self.keep)
        self.ranks.wait()

    def validate(self) -> tuple[float, float]:
        """Loss on the whole validation split and its standard error, nats per token."""
        val_loss, val_loss_se = validate(self.model, self.corpus.validation, self.ranks)
        if not val_loss < float("inf"):
            raise TrainingError(f"validation loss is {val_loss} after step {self.state.step}")
        return val_loss, val_loss_se

    def record(self, val_loss: float, val_loss_se: float) -> RunRecord:
        """The record of the finished run."""
        spec, state = self.spec, self.state
        n_tokens = spec.train.n_tokens
        result = Result(
            val_loss=val_loss,
            val_loss_se=val_loss_se,
            val_rows=len(self.corpus.validation),
            train_loss=tail_loss(self.run),
            n_tokens=n_tokens,
            n_steps=state.step,
            epochs=spec.n_steps * spec.train.batch_rows / len(self.corpus.train),
            flops=n_tokens * self.flops_per_token,
            seconds=state.seconds,
            tokens_per_second=n_tokens / state.seconds,
        )
        return RunRecord(
            run_id=spec.run_id,
            spec=spec.to_dict(),
            counts=accounting.counts(spec.model),
            result=result,
            provenance=self._provenance(),
        )

    def _begin_segment(self) -> None:
        """Start a new segment if hardware or software differ from those of the last one."""
        segment = Segment(
            first_step=self.state.step,
            hardware=hardware.hardware_name(self.ranks.device),
            n_processes=self.ranks.world_size,
            precision="bfloat16" if self.dtype is torch.bfloat16 else "float32",
            attention=self.attention,
            compiled=self.compiled,
            versions=hardware.versions(),
            code=hardware.code_version(),
        ).model_dump()
        known = self.state.stretches
        if not known or known[-1] | {"first_step": segment["first_step"]} != segment:
            known.append(segment)

    def _provenance(self) -> Provenance:
        return Provenance(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            resumed=self.state.resumed,
            stretches=[Segment(**segment) for segment in self.state.stretches],
            corpus_sha256=self.corpus.sha256,
            tokenizer_sha256=self.corpus.tokenizer_sha256,
        )


class _Loss(torch.nn.Module):
    """The loss as a module: DistributedDataParallel needs one to average gradients."""

    def __init__(self, model: LoopedLM):
        super().__init__()
        self.model = model

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.model.loss(rows)


def _micro_rows(spec: RunSpec, ranks: Ranks, requested: int | None) -> int:
    """Rows per pass, a divisor of this process's rows: `requested`, or up to PASS_TOKENS."""
    rows, rest = divmod(spec.train.batch_rows, ranks.world_size)
    if rest:
        raise ConfigError(
            f"batch_rows: got {spec.train.batch_rows} for {ranks.world_size} processes; "
            "use a number of processes that divides it"
        )
    if requested is not None:
        if requested < 1 or rows % requested:
            raise ConfigError(
                f"micro_rows: got {requested}, expected a divisor of the {rows} rows of a process"
            )
        return requested
    usual = max(1, PASS_TOKENS[ranks.device.type] // spec.model.seq_len)
    return max(n for n in range(1, min(rows, usual) + 1) if rows % n == 0)


@contextmanager
def _log(
    trainer: Trainer, progress: Progress | None, trackers: Sequence[str]
) -> Iterator[tuple[LogStep, Callable[[], None]]]:
    """Yield (log_step, flush); both do nothing on ranks other than 0."""
    if not trainer.ranks.is_first:
        yield (lambda values: None), (lambda: None)
        return
    n_steps = trainer.spec.n_steps
    metrics = Metrics(trainer.run, trainer.spec, trainer.state.step, trackers)

    def log_step(values: dict[str, float]) -> None:
        metrics.write(values)
        step = trainer.state.step
        if progress is not None:
            progress(step, n_steps)
        elif step % max(1, n_steps // LOG_LINES) == 0:
            logger.info("step %d of %d: %s", step, n_steps, trainer.describe(values))

    try:
        yield log_step, metrics.sync
    finally:
        metrics.close()
