"""From the folder of a run to a table of downstream results."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from looped.config import require_whole
from looped.data.corpus import Corpus
from looped.errors import ConfigError
from looped.evaluate.continuation import encode_pairs, score
from looped.evaluate.primitives import N_EXAMPLES, PRIMITIVES, draw_examples
from looped.extras import need
from looped.model.looped_lm import LoopedLM
from looped.registry.record import read_record
from looped.spec import RunSpec
from looped.training.checkpoint import load_trained, trained_state
from looped.training.distributed import choose_device
from looped.training.hardware import code_version
from looped.training.loop import open_corpus

COLUMNS = ["run_id", "n_recur", "d_model", "budget", "step", "val_loss", "task", "metric", "value"]
COLUMNS += ["se", "chance_listed", "chance_any", "n_examples", "n_shots", "n_truncated", "seed"]
COLUMNS += ["code"]


def evaluate_checkpoint(
    run: str | Path,
    tasks: Sequence[str] = tuple(PRIMITIVES),
    *,
    n_examples: int | None = None,
    n_shots: int | None = None,
    seed: int = 0,
    corpus: Corpus | str | Path | None = None,
    device: str = "auto",
    include_path: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Results of the newest checkpoint of a run on downstream tasks.

    Args:
        run: folder of a run of `looped.train`.
        tasks: names of synthetic tasks (`looped.evaluate.primitives`) or of lm-eval's tasks.
        n_examples: examples of each task; None: the paper's 1,000, or all of a task of lm-eval.
        n_shots: solved examples before each question; None: the task's number.
        seed: seed of the synthetic examples and of lm-eval's shots.
        corpus: corpus that the run was trained on, for its tokenizer; None: the default folder.
        device: auto, cpu, cuda or cuda:N.
        include_path: folder of user-defined lm-eval tasks (YAML files), in place of lm-eval's.
        progress: called after each batch with (done, total), in examples of the synthetic tasks;
            lm-eval shows its progress itself.

    Returns:
        One row for each number: run_id, n_recur, d_model, budget (FLOPs), step of the checkpoint,
        val_loss of the record (nats/token, missing if the run has not finished), task, metric,
        value, se, chance_listed, chance_any, n_examples, n_shots, n_truncated (contexts that were
        cut from the left to fit the model), seed, code (version of this package).

        A synthetic task has two rows. `loss`: nats per token of the continuation, averaged within
        each example, then over the examples; `accuracy`: share of the examples that greedy
        decoding answers. Their chance levels are those of a guess among the answers that the
        question lists, and among all answers of the task. Standard errors are over examples.

    Raises:
        FileNotFoundError: a folder without a checkpoint, or no corpus.
        ConfigError: another corpus than the run's, or lm-eval is not installed.
        ValueError: an unknown task, or a number out of range.
    """
    run, include_path = Path(run), None if include_path is None else Path(include_path)
    if n_examples is not None:
        require_whole("n_examples", n_examples, 1)
    if n_shots is not None:
        require_whole("n_shots", n_shots, 0)
    _check_tasks(tasks, include_path)
    spec, state = trained_state(run)
    corpus = open_corpus(spec, corpus)
    if corpus.sha256 != state.corpus_sha256:
        raise ConfigError(
            f"corpus: {run} was trained on {state.corpus_sha256[:12]}, {corpus.folder} holds "
            f"{corpus.sha256[:12]}; name the corpus of the run"
        )
    model = load_trained(run, device=str(choose_device(device)))
    drawn = {"n_examples": N_EXAMPLES if n_examples is None else n_examples, "seed": seed}
    done, total = 0, drawn["n_examples"] * sum(task in PRIMITIVES for task in tasks)
    rows: list[dict[str, Any]] = []
    for task in tasks:
        if task in PRIMITIVES:
            report = _after(done, total, progress)
            rows += _run_primitive(model, corpus, task, drawn, n_shots, report)
            done += drawn["n_examples"]
        else:
            lm = _harness().LoopedHarness(model, corpus.tokenizer(), corpus.bos_id, seed)
            rows += _harness().run_task(lm, task, include_path, n_examples, n_shots)
    about = spec.row() | {"step": state.step, "val_loss": _val_loss(run, spec)}
    about |= {"seed": seed, "code": code_version()}  # the seed of the examples, not of training
    return pd.DataFrame(rows).assign(**about).reindex(columns=COLUMNS)


def _after(
    before: int, total: int, progress: Callable[[int, int], None] | None
) -> Callable[[int, int], None] | None:
    """Progress of one task as progress of all tasks."""
    return progress and (lambda done, _: progress(before + done, total))


def _check_tasks(tasks: Sequence[str], include_path: Path | None) -> None:
    others = [task for task in tasks if task not in PRIMITIVES]
    if not tasks:
        raise ValueError(f"tasks: got none, expected some of {', '.join(PRIMITIVES)}")
    if not others:
        return
    problem = f"task: got {others[0]!r}, which is none of {', '.join(PRIMITIVES)}"
    try:
        known = _harness().task_manager(include_path).all_tasks
    except ConfigError as error:
        raise ConfigError(f"{problem}. It may be a task of lm-eval, but {error}") from None
    if unknown := sorted(set(others) - set(known)):
        where = "lm-eval" if include_path is None else str(include_path)
        raise ValueError(
            f"task: got {unknown[0]!r}, which is none of {', '.join(PRIMITIVES)}, nor of the "
            f"{len(known):,} tasks of {where}; for user-defined tasks, set include_path to the "
            "folder of their YAML files"
        )


def _val_loss(run: Path, spec: RunSpec) -> float | None:
    record = run / f"{spec.run_id}.json"
    return read_record(record).result.val_loss if record.is_file() else None


def _harness() -> ModuleType:
    need("lm_eval", "eval")
    from looped.evaluate import harness

    return harness


def _run_primitive(
    model: LoopedLM,
    corpus: Corpus,
    task: str,
    drawn: dict[str, int],
    n_shots: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[dict[str, Any]]:
    """The two rows of a synthetic task, with their chance levels."""
    primitive = PRIMITIVES[task]
    n_shots = primitive.n_shots if n_shots is None else n_shots
    examples = draw_examples(task, n_shots=n_shots, **drawn)
    pairs = encode_pairs(corpus.tokenizer(), corpus.bos_id, examples)
    scores = score(model, pairs, progress=progress)
    # A guess among n answers costs log n nats, spread over the tokens of the answer.
    per_token = float(np.mean([1 / len(each.nats) for each in scores]))
    chance = {"chance_listed": 1 / primitive.n_listed, "chance_any": 1 / primitive.n_answers}
    rows = [
        _mean("loss", [each.nats.mean() for each in scores])
        | {name: -math.log(share) * per_token for name, share in chance.items()},
        _mean("accuracy", [each.greedy for each in scores]) | chance,
    ]
    n_cut = sum(each.n_cut > 0 for each in scores)
    shared = {"task": task, "n_examples": len(scores), "n_shots": n_shots, "n_truncated": n_cut}
    return [shared | row for row in rows]


def _mean(metric: str, per_example: Sequence[float]) -> dict[str, Any]:
    """The mean of a metric over examples, and its standard error."""
    values = np.array(per_example, dtype=float)
    se = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"metric": metric, "value": values.mean(), "se": se}
