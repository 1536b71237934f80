"""From a run's folder to a table of downstream results."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from looped.config import require_whole
from looped.data.corpus import Corpus
from looped.errors import ConfigError
from looped.evaluate.continuation import encode_pairs, score
from looped.evaluate.primitives import N_EXAMPLES, PRIMITIVES, draw_examples
from looped.extras import need
from looped.registry.record import read_record
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
    progress: Callable[[str, int, int], None] = lambda task, done, total: None,
) -> pd.DataFrame:
    """Evaluate the newest checkpoint of a run on downstream tasks.

    Args:
        run: folder that `looped.train` worked in.
        tasks: names of the synthetic tasks (`looped.evaluate.primitives`), or of lm-eval's tasks.
        n_examples: of each task; None for the paper's 1,000, or all of a task of lm-eval.
        n_shots: solved examples before each question; None for the task's own number.
        seed: of the synthetic examples and of lm-eval's shots.
        corpus: that the run was trained on, for its tokenizer; None for the default folder.
        device: auto, cpu, cuda or cuda:N.
        include_path: folder of lm-eval tasks of your own, as YAML files; they take the place of
            those that come with it.
        progress: is told the task, its examples that are done, and all of them (own tasks only).

    Returns:
        One row for each number: run_id, n_recur, d_model, budget, step of the checkpoint, val_loss
        of the record (missing where the run has not finished), task, metric, value, se,
        chance_listed, chance_any, n_examples, n_shots, n_truncated (contexts that were cut from the
        left to fit the model), seed, code (version of this package).

        A synthetic task has two. `loss`: nats per token of the continuation, first within an
        example, then over the examples; `accuracy`: share of the examples that greedy decoding
        answers. Its chance levels are those of guessing among the answers that the question lists,
        and among all that the task has. Standard errors are over examples.

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
    model = load_trained(run, device=choose_device(device))
    tokenizer, rows = corpus.tokenizer(), []
    drawn = {"n_examples": N_EXAMPLES if n_examples is None else n_examples, "seed": seed}
    for task in tasks:
        if task in PRIMITIVES:
            rows += _run_primitive(model, tokenizer, corpus.bos_id, task, drawn, n_shots, progress)
        else:
            lm = _harness().LoopedHarness(model, tokenizer, corpus.bos_id, seed)
            rows += _harness().run_task(lm, task, include_path, n_examples, n_shots)
    found = pd.DataFrame(rows).assign(seed=seed, code=code_version(), **_about(run, spec, state))
    return found.reindex(columns=COLUMNS)


def _check_tasks(tasks, include_path) -> None:
    others = [task for task in tasks if task not in PRIMITIVES]
    if not tasks:
        raise ValueError(f"tasks: got none, expected some of {', '.join(PRIMITIVES)}")
    if not others:
        return
    own = f"task: got {others[0]!r}, which is none of {', '.join(PRIMITIVES)}"
    try:
        known = _harness().task_manager(include_path).all_tasks
    except ConfigError as error:
        raise ConfigError(f"{own}. It may be one of lm-eval, but {error}") from None
    if unknown := sorted(set(others) - set(known)):
        where = "lm-eval" if include_path is None else str(include_path)
        raise ValueError(
            f"task: got {unknown[0]!r}, which is none of {', '.join(PRIMITIVES)}, nor of the "
            f"{len(known):,} tasks of {where}; tasks of your own are found by include_path, the "
            "folder of their YAML files"
        )


def _about(run, spec, state) -> dict:
    """What the results are of."""
    record = run / f"{spec.run_id}.json"
    return {
        "run_id": spec.run_id,
        "n_recur": spec.model.n_recur,
        "d_model": spec.model.d_model,
        "budget": spec.nominal_budget,
        "step": state.step,
        "val_loss": read_record(record).result.val_loss if record.is_file() else None,
    }


def _harness():
    need("lm_eval", "eval")
    from looped.evaluate import harness

    return harness


def _run_primitive(model, tokenizer, bos, task, drawn, n_shots, progress) -> list[dict]:
    """The two numbers of a synthetic task, with their chance levels."""
    primitive = PRIMITIVES[task]
    n_shots = primitive.n_shots if n_shots is None else n_shots
    pairs = encode_pairs(tokenizer, bos, draw_examples(task, n_shots=n_shots, **drawn))
    scored = score(model, pairs, progress=lambda done: progress(task, done, len(pairs)))
    # A guess among n answers costs log n nats, over the tokens that the answer has.
    per_token = float(np.mean([1 / len(each.nats) for each in scored]))
    chance = {"chance_listed": 1 / primitive.n_listed, "chance_any": 1 / primitive.n_answers}
    rows = [
        _mean("loss", [each.nats.mean() for each in scored])
        | {name: -math.log(share) * per_token for name, share in chance.items()},
        _mean("accuracy", [each.greedy for each in scored]) | chance,
    ]
    n_cut = sum(each.n_cut > 0 for each in scored)
    shared = {"task": task, "n_examples": len(scored), "n_shots": n_shots, "n_truncated": n_cut}
    return [shared | row for row in rows]


def _mean(metric, values) -> dict:
    """A mean over examples with its standard error."""
    values = np.array(values, dtype=float)
    se = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"metric": metric, "value": values.mean(), "se": se}
