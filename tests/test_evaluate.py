"""Continuation loss against the logits of the model, exact limits, and a checkpoint's results."""

# ruff: noqa: E402 (modules that need torch are imported after the check that it is installed)

import json
import math
import shutil
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models need looped[train]")

from tiny import SEQ_LEN, make_corpus, spec_of
from typer.testing import CliRunner

import looped
from looped.cli import app
from looped.config import ModelConfig
from looped.errors import ConfigError
from looped.evaluate.continuation import encode_pairs, score
from looped.evaluate.primitives import PRIMITIVES, Example, draw_examples
from looped.model.looped_lm import LoopedLM
from looped.training.checkpoint import load_trained
from looped.training.distributed import connected
from looped.training.validate import validate

pytestmark = pytest.mark.train

PAIRS = [([3, 1, 4, 1, 5], [9, 2]), ([6], [5, 3, 5, 8]), ([9, 7, 9], [3]), ([2] * 12, [3, 8, 4])]


@pytest.fixture(scope="module")
def model():
    """A small float64 model with every weight moved off its initial value."""
    sizes = {"d_model": 16, "d_head": 8, "n_prelude": 1, "n_loop": 2, "n_coda": 1, "n_recur": 2}
    sizes |= {"variant": "linear", "vocab_size": 24, "vocab_used": 21, "seq_len": 16}
    made = LoopedLM(ModelConfig(**sizes)).double()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn(p.shape, generator=rng, dtype=p.dtype), alpha=0.2)
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of a short run, and its corpus."""
    corpus = make_corpus(tmp_path_factory.mktemp("corpus"))
    folder = tmp_path_factory.mktemp("run")
    looped.train(spec_of(), folder, corpus=corpus, device="cpu")
    return folder, corpus


@torch.no_grad()
def one_by_one(model, pair):
    """-log p of a continuation, from the logits of the one row, and the likeliest tokens."""
    context, continuation = pair
    logits = model(torch.tensor([context + continuation]))[0]
    at = range(len(context) - 1, len(context) + len(continuation) - 1)
    p = torch.softmax(logits, dim=-1)
    nats = [-math.log(p[t, token]) for t, token in zip(at, continuation, strict=True)]
    return nats, [int(p[t].argmax()) for t in at]


@pytest.mark.parametrize("batch_rows", [1, 3, 32])
def test_scores_are_those_of_the_logits_row_by_row(model, batch_rows):
    seen = []
    scored = score(
        model, PAIRS, batch_rows, progress=lambda done, total: seen.append((done, total))
    )
    for pair, each in zip(PAIRS, scored, strict=True):
        nats, likeliest = one_by_one(model, pair)
        np.testing.assert_allclose(each.nats, nats, rtol=0, atol=1e-12)
        assert each.greedy == (likeliest == pair[1])
        assert each.n_cut == 0
    assert seen[-1] == (len(PAIRS), len(PAIRS))


def test_the_continuation_that_the_model_would_write_is_greedy(model):
    written = looped.generate(model, [[3, 1, 4]], 5)[0]
    other = [*written[:-1], (written[-1] + 1) % 21]
    assert [s.greedy for s in score(model, [([3, 1, 4], written), ([3, 1, 4], other)])] == [1, 0]


def test_an_untrained_model_has_the_logarithm_of_its_vocabulary_as_loss(model):
    blind = LoopedLM(model.config).double()
    with torch.no_grad():
        blind.unembed.weight.zero_()
    for each in score(blind, PAIRS):
        np.testing.assert_allclose(each.nats, math.log(21), rtol=1e-12)


def test_a_long_context_is_cut_after_its_first_token_and_counted(model):
    long, rest = list(range(20)), [4, 2]
    cut, exact = score(model, [(long, rest), ([0, *range(6, 20)], rest)])
    assert (cut.n_cut, exact.n_cut) == (5, 0)  # 15 of context and 2: 16 inputs and a target
    np.testing.assert_array_equal(cut.nats, exact.nats)
    (whole,) = score(model, [([5, 6], [7] * 16)])
    np.testing.assert_array_equal(whole.nats, score(model, [([5], [7] * 16)])[0].nats)


@pytest.mark.parametrize(
    ("pair", "problem"),
    [(([], [1]), "0 and 1 tokens"), (([1], []), "1 and 0 tokens"), (([1], [2] * 17), "17 tokens")],
)
def test_a_pair_that_cannot_be_scored_is_refused(model, pair, problem):
    with pytest.raises(ValueError, match=problem):
        score(model, [PAIRS[0], pair])


def test_validation_rows_scored_as_pairs_have_the_validation_loss(trained):
    folder, corpus = trained
    model = load_trained(folder)
    rows = corpus.validation.rows(np.arange(len(corpus.validation))).tolist()
    scored = score(model, [(row[:1], row[1:]) for row in rows])
    with connected("cpu") as ranks:
        loss, se = validate(model, corpus.validation, ranks)
    means = [each.nats.mean() for each in scored]
    assert np.mean(means) == pytest.approx(loss, rel=1e-6)
    assert np.std(means, ddof=1) / math.sqrt(len(rows)) == pytest.approx(se, rel=1e-4)


def test_the_tokens_of_context_and_continuation_decode_to_the_text(trained):
    _, corpus = trained
    tokenizer = corpus.tokenizer()
    examples = draw_examples("varassign_d1_code", 20, n_shots=1)
    pairs = encode_pairs(tokenizer, corpus.bos_id, examples)
    for (context, continuation), example in zip(pairs, examples, strict=True):
        assert context[0] == corpus.bos_id
        assert tokenizer.decode(context[1:]) == example.context
        assert tokenizer.decode(continuation) == example.continuation


def test_spaces_go_to_the_continuation_and_merged_tokens_to_the_context(trained):
    _, corpus = trained
    tokenizer = corpus.tokenizer()
    encoded = encode_pairs(
        tokenizer, corpus.bos_id, [Example("over ", "the loop"), Example("over", " the loop")]
    )
    assert encoded[0] == encoded[1]
    words = [tokenizer.decode([token]) for token in range(257, corpus.vocab_size)]
    pair = next(word for word in words if len(word) == 2 and word.isalpha())  # one token of two
    left, right = pair
    (spanned,) = encode_pairs(tokenizer, corpus.bos_id, [Example(left, f"{right} over")])
    assert spanned[1] == tokenizer.encode(" over").ids
    with pytest.raises(ValueError, match="begin it with a space"):
        encode_pairs(tokenizer, corpus.bos_id, [Example(left, right)])


def test_a_checkpoint_is_evaluated_on_the_primitives(trained):
    folder, corpus = trained
    tasks, seen = ["induction_head", "varassign_d0_math"], []

    def progress(done, total):
        seen.append((done, total))

    found = looped.evaluate_checkpoint(
        folder, tasks, n_examples=30, seed=2, corpus=corpus, progress=progress
    )
    assert seen == [(30, 60), (60, 60)]
    assert set(found["run_id"]) == {spec_of().run_id}
    assert set(found["step"]) == {spec_of().n_steps}
    record = looped.load_records(folder)[0]
    assert set(found["val_loss"]) == {record.result.val_loss}
    assert found["n_shots"].tolist() == [0, 0, 5, 5]
    assert (found["n_truncated"] == 30).all()  # rows of 32 tokens are short
    model, tokenizer = load_trained(folder), corpus.tokenizer()
    table = found.set_index(["task", "metric"])
    for task in tasks:
        examples = draw_examples(task, 30, seed=2)
        pairs = [
            (
                [corpus.bos_id, *tokenizer.encode(e.context).ids],
                tokenizer.encode(e.continuation).ids,
            )
            for e in examples
        ]
        kept = [(c[:1] + c[len(c) - (SEQ_LEN - len(r)) :], r) for c, r in pairs]
        means = [np.mean(one_by_one(model, pair)[0]) for pair in kept]
        row = table.loc[(task, "loss")]
        assert row["value"] == pytest.approx(np.mean(means), rel=1e-5)
        assert row["se"] == pytest.approx(np.std(means, ddof=1) / math.sqrt(30), rel=1e-4)
        guess = np.mean([math.log(PRIMITIVES[task].n_listed) / len(r) for _, r in pairs])
        assert row["chance_listed"] == pytest.approx(guess, rel=1e-12)
        answered = np.mean([one_by_one(model, pair)[1] == pair[1] for pair in kept])
        assert table.loc[(task, "accuracy"), "value"] == pytest.approx(answered)


def test_one_example_has_no_standard_error(trained):
    folder, corpus = trained
    found = looped.evaluate_checkpoint(folder, ["induction_head"], n_examples=1, corpus=corpus)
    assert found["se"].isna().all()


def test_the_command_prints_what_the_function_returns(trained):
    folder, corpus = trained
    options = ["--tasks", "induction_head", "--examples", "5", "--corpus", str(corpus.folder)]
    result = CliRunner().invoke(app, ["evaluate", str(folder), *options, "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    table = looped.evaluate_checkpoint(folder, ["induction_head"], n_examples=5, corpus=corpus)
    assert [row["value"] for row in rows] == table["value"].tolist()
    assert "5 contexts were cut from the left" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"tasks": []}, ValueError, "got none"),
        ({"n_examples": 0}, ValueError, "n_examples"),
        ({"run": "nowhere"}, FileNotFoundError, "no checkpoint of a run"),
        ({"device": "tpu"}, ConfigError, "device"),
    ],
)
def test_bad_arguments_are_refused(trained, change, error, problem):
    folder, corpus = trained
    arguments = {"run": folder, "tasks": ["induction_head"], "corpus": corpus} | change
    with pytest.raises(error, match=problem):
        looped.evaluate_checkpoint(**arguments)


def test_another_corpus_than_that_of_the_run_is_refused(trained, tmp_path):
    folder, corpus = trained
    other = shutil.copytree(folder, tmp_path / "run")
    for state in other.glob("checkpoints/*/state.json"):
        state.write_text(json.dumps(json.loads(state.read_text()) | {"corpus_sha256": "0" * 64}))
    with pytest.raises(ConfigError, match="was trained on 000000000000"):
        looped.evaluate_checkpoint(other, ["induction_head"], corpus=corpus)


def test_the_error_for_an_unknown_task_lists_the_known_ones(trained, monkeypatch):
    folder, corpus = trained
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ConfigError, match=r"induction_head.*looped\[eval\]"):
        looped.evaluate_checkpoint(folder, ["induction"], corpus=corpus)
