"""One run in progress: model, optimisers, position, and this process's part of each batch."""

import signal
import threading
import time
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

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
from looped.training.metrics import Display, Metrics, tail_loss
from looped.training.names import CHECKPOINTS
from looped.training.optimizers import build_optimizers
from looped.training.validate import to_tokens, validate

CHECKPOINT_SECONDS = 300
PASS_TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Tokens of one pass forward and backward, unless `micro_rows` says otherwise."""


class Trainer:
    """A run in progress: model, optimisers, its position, and this process's part of the work."""

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
        self._begin_stretch()
        self.loss = _Loss(self.model)
        if ranks.world_size > 1:
            ids = [ranks.device.index] if on_card else None
            self.loss = DistributedDataParallel(self.loss, device_ids=ids)
        self.flops_per_token = accounting.flops_per_token(spec.model)
        self.peak = hardware.peak_flops(ranks.device)
        if self.peak:
            self.peak *= ranks.world_size

    def run_steps(self, checkpoint_every, progress, trackers) -> None:
        """All steps that are left, with a checkpoint now and then and one at the end."""
        saved = time.perf_counter()
        with _told(self, progress, trackers) as (tell, sync_told), _stop_signals() as stopped:
            while self.state.step < self.spec.n_steps:
                begin = time.perf_counter()
                due = checkpoint_every is None and begin - saved > CHECKPOINT_SECONDS
                loss, norm, stop, due = self.step(stopped.is_set(), due)
                self.state.seconds += (took := time.perf_counter() - begin)
                tell(self._metrics(loss, norm, took))
                done = self.state.step == self.spec.n_steps
                regular = checkpoint_every and self.state.step % checkpoint_every == 0
                if done or stop or due or regular:
                    sync_told()
                    self.save()
                    saved = time.perf_counter()
                if stop and not done:
                    raise KeyboardInterrupt(
                        f"stopped at step {self.state.step} of {self.spec.n_steps}; "
                        "the same call goes on from there"
                    )

    def step(self, stop: bool = False, due: bool = False) -> tuple[float, float, bool, bool]:
        """One optimiser step over this process's part of the batch.

        Returns:
            (loss of the whole batch, gradient norm, whether any process was told to stop, whether
            any thinks that a checkpoint is due), the same on all processes.
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
        told = torch.zeros(3, dtype=torch.float64, device=self.ranks.device)
        for number, rows in enumerate(passes, start=1):
            last = number == len(passes)
            with nullcontext() if last or self.ranks.world_size == 1 else self.loss.no_sync():
                loss = self._pass(rows) / len(passes)
                loss.backward()
            told[0] += loss.detach() / self.ranks.world_size
        told[1], told[2] = stop, due
        loss, stop, due = self.ranks.sum(told).tolist()
        norm = self._checked_norm(loss)
        self.optimizer.set_rates(index)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state.step += 1
        return loss, norm, stop > 0, due > 0

    def _pass(self, rows):
        batch = to_tokens(self.corpus.train.rows(rows), self.ranks.device)
        on_card = self.ranks.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16) if on_card else nullcontext():
            return self.loss(batch)

    def _checked_norm(self, loss) -> float:
        named = dict(self.model.named_parameters())
        norms = torch.stack(torch._foreach_norm([p.grad for p in named.values()]))
        total = norms.norm().item()
        if not (total < float("inf") and loss < float("inf")):
            wrong = [n for n, norm in zip(named, norms, strict=True) if not norm.isfinite()]
            where = f"gradient of {', '.join(wrong[:3])}" if wrong else "gradient norm"
            raise TrainingError(
                f"step {self.state.step}: loss {loss}, {where} is not finite; the last checkpoint "
                f"is kept in {self.run / CHECKPOINTS}. Lower the learning rate"
            )
        return total

    def _metrics(self, loss, norm, took) -> dict[str, float]:
        return {
            "step": self.state.step,
            "tokens": self.state.step * self.spec.batch_tokens,
            "loss": loss,
            "lr": self.optimizer.rates()["matrix"],
            "grad_norm": norm,
            "seconds": self.state.seconds,
            "tokens_per_second": self.spec.batch_tokens / took,
        }

    def save(self) -> None:
        """Write a checkpoint; every process takes part, since the optimiser's state is shared."""
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

    def _begin_stretch(self) -> None:
        """Note how the steps from here on are trained, where that is not as before."""
        stretch = Segment(
            first_step=self.state.step,
            hardware=hardware.hardware_name(self.ranks.device),
            n_processes=self.ranks.world_size,
            precision=str(self.dtype).removeprefix("torch."),
            attention=self.attention,
            compiled=self.compiled,
            versions=hardware.versions(),
            code=hardware.code_version(),
        ).model_dump()
        known = self.state.stretches
        if not known or known[-1] | {"first_step": stretch["first_step"]} != stretch:
            known.append(stretch)

    def _provenance(self) -> Provenance:
        return Provenance(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            resumed=self.state.resumed,
            stretches=self.state.stretches,
            corpus_sha256=self.corpus.sha256,
            tokenizer_sha256=self.corpus.tokenizer_sha256,
        )


class _Loss(torch.nn.Module):
    """The loss as a module, since gradients are averaged over processes in a module's forward."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, rows):
        return self.model.loss(rows)


def _micro_rows(spec, ranks, asked) -> int:
    """Rows of one pass: a divisor of this process's rows, as asked or as large as is usual."""
    rows, rest = divmod(spec.train.batch_rows, ranks.world_size)
    if rest:
        raise ConfigError(
            f"batch_rows: got {spec.train.batch_rows} for {ranks.world_size} processes; "
            "use a number of processes that divides it"
        )
    if asked is not None:
        if asked < 1 or rows % asked:
            raise ConfigError(
                f"micro_rows: got {asked}, expected a divisor of the {rows} rows of a process"
            )
        return asked
    usual = max(1, PASS_TOKENS[ranks.device.type] // spec.model.seq_len)
    return max(n for n in range(1, min(rows, usual) + 1) if rows % n == 0)


@contextmanager
def _told(trainer: Trainer, progress, trackers):
    """Functions: one writes and shows a step's metrics, one brings them to the disk.

    On other processes than the first they do nothing.
    """
    if not trainer.ranks.is_first:
        yield (lambda values: None), (lambda: None)
        return
    done = trainer.state.step
    metrics = Metrics(trainer.run, trainer.spec, done, trackers)
    display = Display(trainer.spec, done, trainer.peak, progress)

    def tell(values):
        metrics.write(values)
        display.show(values, trainer.flops_per_token)

    try:
        yield tell, metrics.sync
    finally:
        display.close()
        metrics.close()


@contextmanager
def _stop_signals():
    """Event that Ctrl-C and SIGTERM set while the block runs, so that a step ends whole.

    A second signal does what it does elsewhere, and so does one that somebody handles already.
    """
    stopped = threading.Event()
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        usual = {}
    usual = {number: do for number, do in usual.items() if signal.getsignal(number) == do}

    def restore():
        for number, do in usual.items():
            signal.signal(number, do)

    def stop(*_):
        stopped.set()
        restore()

    for number in usual:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        restore()
