"""The adapter for lm-eval: its token split and averages give the same numbers as `score`."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="models need looped[train]")
pytest.importorskip("lm_eval", reason="the harness needs looped[eval]")

from lm_eval.api.instance import Instance
from tiny import SEQ_LEN, make_corpus, spec_of

import looped
from looped.evaluate.continuation import encode_pairs, score
from looped.evaluate.harness import LoopedHarness
from looped.evaluate.primitives import Example, draw_examples
from looped.training.checkpoint import load_trained

pytestmark = pytest.mark.train

TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_text: "{{{{context}}}}"
target_delimiter: ""
"""
LIKELIHOOD = """
doc_to_target: "{{continuation}}"
metric_list:
  - metric: perplexity
    aggregation: perplexity
  - metric: acc
    aggregation: mean
"""
CHOICE = """
doc_to_choice: "{{choices}}"
doc_to_target: "{{label}}"
metric_list:
  - metric: acc
    aggregation: mean
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of a short run, its corpus, and the adapter of its model."""
    corpus = make_corpus(tmp_path_factory.mktemp("corpus"))
    folder = tmp_path_factory.mktemp("run")
    looped.train(spec_of(), folder, corpus=corpus, device="cpu")
    lm = LoopedHarness(load_trained(folder), corpus.tokenizer(), corpus.bos_id)
    return folder, corpus, lm


def requests(kind, *arguments) -> list[Instance]:
    return [Instance(kind, {}, args, index) for index, args in enumerate(arguments)]


def nats(lm, corpus, examples):
    pairs = encode_pairs(corpus.tokenizer(), corpus.bos_id, examples)
    return np.array([each.nats.sum() for each in score(lm.model, pairs)])


def test_continuations_have_the_likelihood_of_score(trained):
    _, corpus, lm = trained
    examples = draw_examples("varassign_d0_math", 20, n_shots=0, seed=4)
    examples += [Example("the loop ", "runs again"), Example("", "the loop"), Example("a", " b")]
    pairs = encode_pairs(corpus.tokenizer(), corpus.bos_id, examples)
    expected = score(lm.model, pairs)
    before = lm.n_truncated
    arguments = requests("loglikelihood", *[(e.context, e.continuation) for e in examples])
    got = lm.loglikelihood(arguments, disable_tqdm=True)
    log_p = [-each.nats.sum() for each in expected]
    np.testing.assert_allclose([value for value, _ in got], log_p, rtol=1e-5)
    assert [greedy for _, greedy in got] == [each.greedy for each in expected]
    assert lm.n_truncated - before == sum(len(c) + len(r) > SEQ_LEN + 1 for c, r in pairs) > 0


def test_a_text_is_the_product_of_its_tokens_in_windows(trained):
    _, corpus, lm = trained
    text = " ".join(["the loop runs again over one block of layers"] * 4)
    ids = corpus.tokenizer().encode(text).ids
    assert len(ids) > 2 * SEQ_LEN
    row, expected = [corpus.bos_id, *ids], 0.0
    for start in range(0, len(ids), SEQ_LEN):
        end = min(start + SEQ_LEN, len(ids))
        first = end - SEQ_LEN if start else 0  # the last window is as long as the others
        (scored,) = score(lm.model, [(row[first : start + 1], row[start + 1 : end + 1])])
        expected -= scored.nats.sum()
    (found,) = lm.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    assert found == pytest.approx(expected, rel=1e-5)


def test_text_is_generated_up_to_the_first_stop(trained):
    _, corpus, lm = trained
    tokenizer = corpus.tokenizer()
    prompt = [corpus.bos_id, *tokenizer.encode("the loop").ids]
    written = tokenizer.decode(looped.generate(lm.model, [prompt], 8)[0])
    options = {"max_gen_toks": 8, "until": []}
    stop = written[len(written) // 2]
    prompts = [("the loop", options), ("the loop", options | {"until": [stop]})]
    whole, cut = lm.generate_until(requests("generate_until", *prompts))
    assert whole == written.partition("<|bos|>")[0]
    assert cut == whole.partition(stop)[0]
    sampled = options | {"do_sample": True, "top_k": 20}
    again = requests("generate_until", *[("the loop", sampled)] * 2)
    assert lm.generate_until(again) == lm.generate_until(again)
    assert len(set(lm.generate_until(again))) == 2
    with pytest.raises(ValueError, match="top_p"):
        lm.generate_until(requests("generate_until", ("a", options | {"top_p": 0.9})))


@pytest.fixture
def rows(tmp_path):
    """Rows of two local tasks; their YAML files and data are in `tmp_path`."""
    rows = [
        {
            "context": e.context[-20:],
            "continuation": e.continuation,
            "choices": [e.continuation, " the loop"],
            "label": 0,
        }
        for e in draw_examples("induction_head", 12, seed=9)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, kind, rest in (
        ("tiny_copy", "loglikelihood", LIKELIHOOD),
        ("tiny_choice", "multiple_choice", CHOICE),
    ):
        head = TASK.format(name=name, kind=kind, data=data)
        (tmp_path / f"{name}.yaml").write_text(head + rest)
    return rows


def test_a_local_task_has_the_numbers_of_score(trained, rows, tmp_path, monkeypatch):
    folder, corpus, lm = trained
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    table = looped.evaluate_checkpoint(
        folder, ["tiny_copy", "tiny_choice"], corpus=corpus, include_path=tmp_path
    ).set_index(["task", "metric"])
    copied = nats(lm, corpus, [Example(row["context"], row["continuation"]) for row in rows])
    other = nats(lm, corpus, [Example(row["context"], row["choices"][1]) for row in rows])
    perplexity = table.loc[("tiny_copy", "perplexity")]
    assert math.log(perplexity["value"]) == pytest.approx(copied.mean(), rel=1e-5)
    assert perplexity["n_examples"] == len(rows)
    assert table.loc[("tiny_choice", "acc"), "value"] == pytest.approx((copied < other).mean())


@pytest.mark.slow
def test_the_command_evaluates_a_local_task_without_a_network(trained, rows, tmp_path):
    """From the command through lm-eval and a YAML file to data in JSON lines."""
    folder, corpus, lm = trained
    command = [sys.executable, "-m", "looped", "evaluate", folder, "--corpus", corpus.folder]
    command += ["--tasks", "tiny_copy,tiny_choice", "--include-path", tmp_path, "--json"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | offline)
    assert done.returncode == 0, done.stderr
    found = {(row["task"], row["metric"]): row for row in json.loads(done.stdout)}
    copied = nats(lm, corpus, [Example(row["context"], row["continuation"]) for row in rows])
    perplexity = found["tiny_copy", "perplexity"]
    assert math.log(perplexity["value"]) == pytest.approx(copied.mean(), rel=1e-5)
    assert perplexity["chance_any"] is None
    assert {task for task, _ in found} == {"tiny_copy", "tiny_choice"}


def test_an_unknown_task_is_one_line(trained, tmp_path):
    folder, corpus, _ = trained
    with pytest.raises(ValueError, match=r"'no_such_task'.*induction_head.*0 tasks of /.*YAML"):
        looped.evaluate_checkpoint(folder, ["no_such_task"], corpus=corpus, include_path=tmp_path)
