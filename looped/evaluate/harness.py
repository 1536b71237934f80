"""Adapter of a trained model for lm-eval, and the results of one task of that harness.

Needs looped[eval]. The data of lm-eval's tasks come from the Hugging Face hub. User-defined tasks
are YAML files in a folder (`include_path`).
"""

import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval import simple_evaluate
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from looped.data.tokenizer import token_ids
from looped.evaluate.continuation import score
from looped.model.decoding import generate
from looped.model.looped_lm import LoopedLM

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from tokenizers import Tokenizer

HANDLED = {"until", "do_sample", "temperature", "top_k", "max_gen_toks"}
"""Supported options of generation; a request with any other option is refused."""


class LoopedHarness(TemplateLM):
    """The three requests of lm-eval: likelihood of continuations, of texts, and generated text.

    Args:
        tokenizer: tokenizer of the corpus that the model was trained on.
        bos: id of the token that begins every text.
        seed: seed of sampled text; request number i uses seed + i.
    """

    def __init__(self, model: LoopedLM, tokenizer: "Tokenizer", bos: int, seed: int = 0):
        super().__init__()
        self.model, self.tokens, self.bos, self.seed = model, tokenizer, bos, seed
        self.n_truncated = 0  # requests whose context was cut from the left so far

    @property
    def eot_token_id(self) -> int:
        """BOS: a text ends where the next one begins."""
        return self.bos

    @property
    def max_length(self) -> int:
        """Number of inputs of the model."""
        return self.model.config.seq_len

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Tokens of a text, BOS first unless `add_special_tokens` is False."""
        (ids,) = token_ids(self.tokens, [string])
        return ids if add_special_tokens is False else [self.bos, *ids]

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **kwargs):
        scored = score(self.model, [(context, rest) for _, context, rest in requests])
        self.n_truncated += sum(each.n_cut > 0 for each in scored)
        return [(-float(each.nats.sum()), each.greedy) for each in scored]

    def loglikelihood_rolling(
        self, requests: list["Instance"], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihood of whole texts in nats, in windows of the model's length."""
        return [self._rolling(*request.args) for request in requests]

    def _rolling(self, text: str) -> float:
        ids = self.tok_encode(text, add_special_tokens=False)
        windows = get_rolling_token_windows(ids, self.bos, self.max_length, context_len=1)
        scored = score(self.model, [make_disjoint_window(window) for window in windows])
        return -sum(float(each.nats.sum()) for each in scored)

    def generate_until(self, requests: list["Instance"], disable_tqdm: bool = False) -> list[str]:
        """Generated text after each context, up to the first stop string.

        Its length is at most half of the model's, unless the request says otherwise.

        Raises:
            ValueError: an unsupported option of generation.
        """
        return [
            self._generate(context, options, self.seed + number)
            for number, (context, options) in enumerate(request.args for request in requests)
        ]

    def _generate(self, context: str, options: dict[str, Any], seed: int) -> str:
        options = normalize_gen_kwargs(options, self.max_length // 2)
        if unknown := sorted(set(options) - HANDLED):
            raise ValueError(f"generation: got {unknown}, expected some of {sorted(HANDLED)}")
        n_new = min(options["max_gen_toks"], self.max_length - 1)
        prompt = self.tok_encode(context)
        room = self.max_length - n_new
        if len(prompt) > room:
            self.n_truncated += 1
            prompt = prompt[:1] + prompt[len(prompt) - room + 1 :]
        (new,) = generate(
            self.model,
            [prompt],
            n_new,
            temperature=options.get("temperature", 1.0) if options["do_sample"] else 0.0,
            top_k=options.get("top_k"),
            seed=seed,
        )
        text = self.tokens.decode(new[: new.index(self.bos)] if self.bos in new else new)
        for stop in filter(None, options["until"]):
            text = text.split(stop)[0]
        return text


@cache
def task_manager(include_path: Path | None) -> TaskManager:
    """The tasks of a folder of YAML files; None: those of lm-eval, which takes seconds."""
    return TaskManager(include_path=include_path, include_defaults=include_path is None)


def run_task(
    lm: LoopedHarness,
    task: str,
    include_path: Path | None = None,
    n_examples: int | None = None,
    n_shots: int | None = None,
) -> list[dict[str, Any]]:
    """One row for each number that lm-eval reports of a task, or of the tasks of a group.

    Returns:
        Rows with task, metric, value, se (lm-eval's, None if it reports none), n_examples, n_shots
        and n_truncated (requests, not examples, whose context was cut).
    """
    before = lm.n_truncated
    with redirect_stdout(sys.stderr):  # lm-eval prints progress to stdout
        found = simple_evaluate(
            lm,
            tasks=[task],
            num_fewshot=n_shots,
            limit=n_examples,
            task_manager=task_manager(include_path),
            log_samples=False,
            bootstrap_iters=1000,
            random_seed=lm.seed,
            numpy_random_seed=lm.seed,
            torch_random_seed=lm.seed,
            fewshot_random_seed=lm.seed,
        )
    return [
        {
            "task": name,
            "metric": metric.removesuffix(",none"),
            "value": value,
            "se": _number(values.get(metric.replace(",", "_stderr,", 1))),
            "n_examples": found["n-samples"].get(name, {}).get("effective"),
            "n_shots": found["n-shot"].get(name),
            "n_truncated": lm.n_truncated - before,
        }
        for name, values in found["results"].items()
        for metric, value in values.items()
        if "," in metric and "_stderr," not in metric
    ]


def _number(value: Any) -> float | None:
    """A standard error; lm-eval has the text N/A where there is none."""
    return value if isinstance(value, float) else None
