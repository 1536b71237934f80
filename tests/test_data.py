"""Preparing a corpus: exact contents, interruptions, damage; the order of its rows; commands."""

import json
import os
import threading

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from typer.testing import CliRunner

from looped import files
from looped.cli.data import app
from looped.data import prepare as preparing
from looped.data.corpus import Corpus, RowSet, default_folder
from looped.data.order import batch_indices, rank_part
from looped.data.prepare import prepare_corpus
from looped.data.sources.files import OwnText
from looped.data.tokenizer import BOS, bos_id, load_tokenizer, token_ids, train_tokenizer
from looped.errors import ConfigError
from looped.extras import need

pytestmark = pytest.mark.train

SETTINGS = {"seq_len": 32, "vocab_size": 300, "shard_rows": 64}


def sentences(n, seed=0):
    """Texts of made-up words."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("aeiounrtsl"), rng.integers(2, 7))) for _ in range(80)]
    return [" ".join(rng.choice(words, rng.integers(3, 40))) + "." for _ in range(n)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A JSON Lines file of 2,500 documents."""
    file = tmp_path_factory.mktemp("texts") / "a.jsonl"
    lines = [json.dumps({"text": text}) for text in sentences(2500)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def finished(texts, tmp_path_factory):
    """A corpus that was prepared without an interruption."""
    return prepare_corpus(OwnText(texts), out=tmp_path_factory.mktemp("corpus") / "c", **SETTINGS)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(preparing, "BATCH_DOCS", 100)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != ".lock"}


def test_the_rows_are_those_documents_and_nothing_else(finished, texts):
    tokenizer = finished.tokenizer()
    known = {json.loads(line)["text"] for line in texts.read_text(encoding="utf-8").splitlines()}
    whole = 0
    for rows in (finished.train, finished.validation):
        for row in rows.rows(np.arange(len(rows))):
            assert row[0] == finished.bos_id
            starts = np.flatnonzero(row == finished.bos_id)
            parts = [tokenizer.decode(list(part[1:])) for part in np.split(row, starts[1:])]
            assert all(part in known for part in parts[:-1])
            whole += len(parts) - 1
    assert whole > 200


def test_the_manifest_counts(finished):
    for name, rows in (("train", finished.train), ("validation", finished.validation)):
        counts = finished.manifest[name]
        assert counts["rows"] == len(rows)
        assert counts["tokens"] == 32 * len(rows)
        assert counts["encoded_tokens"] == 33 * len(rows) + counts["discarded_tokens"]
        assert 0 < counts["discarded_share"] < 1
    documents = [finished.manifest[name]["documents"] for name in ("train", "validation")]
    assert sum(documents) == 2500
    assert finished.vocab_size == 300
    assert len(finished.manifest["train"]["shards"]) > 3


def test_no_text_is_in_both_subsets(tmp_path):
    texts = sentences(400) * 3
    for number in range(3):
        part = texts[number::3]
        lines = "\n".join(json.dumps({"text": text}) for text in part)
        (tmp_path / f"{number}.jsonl").write_text(lines, encoding="utf-8")
    source = OwnText(tmp_path, share=0.2)
    train, validation = (
        [document.text for document in source.documents(name)] for name in ("train", "validation")
    )
    assert not set(train) & set(validation)
    assert sorted(train + validation) == sorted(texts)
    assert 0.1 < len(validation) / len(texts) < 0.3


def test_the_tokenizer_has_seen_training_documents_only(finished, texts):
    train = (document.text for document in OwnText(texts).documents("train"))
    assert finished.tokenizer().to_str() == train_tokenizer(train, 300).to_str()


def test_preparing_twice_gives_the_same_bytes(finished, texts, tmp_path):
    again = prepare_corpus(OwnText(texts), out=tmp_path / "c", **SETTINGS)
    assert contents(again.folder) == contents(finished.folder)
    assert again.sha256 == finished.sha256


def test_preparing_a_finished_corpus_opens_it(finished, texts, monkeypatch):
    monkeypatch.setattr(preparing, "_Preparation", None)
    assert prepare_corpus(OwnText(texts), out=finished.folder, **SETTINGS).sha256 == finished.sha256


@pytest.mark.parametrize("last", [0, 1, 3, 8, 15, 22])
def test_interrupted_between_batches_it_resumes_to_the_same_bytes(finished, texts, tmp_path, last):
    seen = []

    def stop(done, total):
        seen.append(done)
        if len(seen) > last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(OwnText(texts), out=tmp_path, progress=stop, **SETTINGS)
    with pytest.raises(FileNotFoundError, match="not finished"):
        Corpus.open(tmp_path)
    assert contents(prepare_corpus(OwnText(texts), out=tmp_path, **SETTINGS).folder) == contents(
        finished.folder
    )


def test_killed_before_any_rename_it_resumes_to_the_same_bytes(
    finished, texts, tmp_path, monkeypatch
):
    source = OwnText(texts, finished.folder / "tokenizer.json")
    settings = {"seq_len": 32, "shard_rows": 100, "n_tokens": 400 * 32}
    real, renames = os.replace, []

    def count(old, new):
        renames.append(new)
        real(old, new)

    def die(old, new):
        if len(renames) == last:
            os.truncate(old, os.path.getsize(old) // 2)
            raise KeyboardInterrupt
        count(old, new)

    monkeypatch.setattr(files.os, "replace", count)
    whole = contents(prepare_corpus(source, out=tmp_path / "whole", **settings).folder)
    n_renames = len(renames)
    assert n_renames > 10  # tokenizer, states, shards, manifest
    for last in range(n_renames):
        renames.clear()
        monkeypatch.setattr(files.os, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            prepare_corpus(source, out=tmp_path / str(last), **settings)
        monkeypatch.setattr(files.os, "replace", real)
        resumed = prepare_corpus(source, out=tmp_path / str(last), **settings)
        assert contents(resumed.folder) == whole


def test_progress_counts_the_tokens_of_both_subsets(texts, tmp_path):
    seen = []
    corpus = prepare_corpus(
        OwnText([texts]),
        out=tmp_path,
        progress=lambda done, total: seen.append((done, total)),
        n_tokens=300 * 32,
        **SETTINGS,
    )
    totals = [total for _, total in seen]
    train = seen[totals.index(300 * 32) :]
    assert {total for _, total in train} == {300 * 32}
    assert [done for done, _ in train] == sorted(done for done, _ in train)
    assert train[-1][0] == corpus.manifest["train"]["tokens"]
    validation = seen[: totals.index(300 * 32)]
    assert validation[-1][0] == corpus.manifest["validation"]["tokens"]


def stop_in_training(tokens=0):
    """A progress function that interrupts once there are so many tokens for training."""
    before = [0, False]  # tokens at the last call; whether training has begun

    def stop(done, total):
        before[:] = done, before[1] or done < before[0]
        if before[1] and done > tokens:
            raise KeyboardInterrupt

    return stop


def test_a_resumed_preparation_reads_only_what_is_missing(texts, tmp_path):
    stop = stop_in_training(200 * 32)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(OwnText(texts), out=tmp_path, progress=stop, **SETTINGS)
    places = []

    class Watched(OwnText):
        def documents(self, subset, after=(0, -1)):
            places.append((subset, after))
            return super().documents(subset, after)

    prepare_corpus(Watched(texts), out=tmp_path, **SETTINGS)
    assert [subset for subset, _ in places] == ["train"]
    assert places[0][1] > (0, 500)


def test_a_second_preparation_waits_for_the_first(texts, finished, tmp_path, caplog):
    folder = tmp_path / "c"
    folder.mkdir()
    with preparing._lock(folder):
        second = threading.Thread(
            target=lambda: prepare_corpus(OwnText(texts), out=folder, **SETTINGS), daemon=True
        )
        second.start()
        second.join(0.3)
        assert second.is_alive()
        assert contents(folder) == {}
    second.join(30)
    assert contents(folder) == contents(finished.folder)
    assert "waiting for another preparation" in caplog.text


def test_another_request_for_the_same_folder(finished, texts, tmp_path):
    with pytest.raises(ConfigError, match="holds another corpus: seq_len 32, not 16"):
        prepare_corpus(OwnText(texts), out=finished.folder, **SETTINGS | {"seq_len": 16})
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(OwnText(texts), out=tmp_path, progress=stop_in_training(), **SETTINGS)
    with pytest.raises(ConfigError, match="vocab_size 300, not 280"):
        prepare_corpus(OwnText(texts), out=tmp_path, **SETTINGS | {"vocab_size": 280})


def test_tokens_are_rounded_up_to_rows(texts, finished, tmp_path):
    some = prepare_corpus(OwnText(texts), out=tmp_path, n_tokens=100 * 32 + 1, **SETTINGS)
    assert len(some.train) == 101
    np.testing.assert_array_equal(
        some.train.rows(np.arange(101)), finished.train.rows(np.arange(101))
    )
    assert len(some.validation) == len(finished.validation)


def test_validation_ends_at_the_rows_of_the_source(texts, finished, tmp_path):
    source = OwnText(texts)
    source.validation_rows = 3
    few = prepare_corpus(source, out=tmp_path, **SETTINGS)
    assert len(few.validation) == 3
    np.testing.assert_array_equal(
        few.validation.rows(np.arange(3)), finished.validation.rows(np.arange(3))
    )
    assert len(few.train) == len(finished.train)


def test_too_little_text_for_a_row(tmp_path):
    (tmp_path / "a.txt").write_text("one short text", encoding="utf-8")
    with pytest.raises(ValueError, match="too few"):
        prepare_corpus(OwnText(tmp_path), out=tmp_path / "c", seq_len=8, vocab_size=4000)
    with pytest.raises(ValueError, match="validation subset of 'text' does not fill a row"):
        prepare_corpus(OwnText(tmp_path), out=tmp_path / "c", seq_len=8, vocab_size=257)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: (f / "train-00001.npy").unlink(), "train-00001.npy.*No such file"),
        (
            lambda f: os.truncate(f / "train-00001.npy", 1000),
            "train-00001.npy",
        ),
        (
            lambda f: np.save(f / "validation-00000.npy", np.zeros((2, 33), np.uint16)),
            r"\(2, 33\) of uint16, expected",
        ),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "not the tokenizer"),
        (lambda f: (f / "corpus.json").write_text("{"), "corpus.json: Expecting property name"),
    ],
)
def test_damage_is_found_on_opening(texts, tmp_path, change, problem):
    folder = prepare_corpus(OwnText(texts), out=tmp_path, **SETTINGS).folder
    change(folder)
    with pytest.raises(ValueError, match=f"damaged: .*{problem}.*looped data prepare"):
        Corpus.open(folder)


def test_a_changed_token_is_found_by_verify(texts, tmp_path):
    corpus = prepare_corpus(OwnText(texts), out=tmp_path, **SETTINGS)
    corpus.verify()
    with open(tmp_path / "train-00002.npy", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    with pytest.raises(ValueError, match=r"train-00002.npy: checksum mismatch"):
        Corpus.open(tmp_path).verify()


def test_a_folder_without_a_corpus(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder.*looped data prepare --out"):
        Corpus.open(tmp_path / "none")


def test_rows_across_shards():
    whole = np.arange(60, dtype=np.uint16).reshape(20, 3)
    rows = RowSet((whole[:7], whole[7:8], whole[8:]))
    assert len(rows) == 20
    indices = np.array([19, 7, 0, 6, 8, 7])
    np.testing.assert_array_equal(rows.rows(indices), whole[indices])
    for wrong in ([20], [-1]):
        with pytest.raises(IndexError, match="expected 0 to 19"):
            rows.rows(wrong)
    with pytest.raises(ValueError, match="expected a list of rows"):
        rows.rows([])


def test_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPED_CORPORA", str(tmp_path))
    assert default_folder("laptop", 2048, 256) == tmp_path / "laptop-v2048-t256"
    monkeypatch.delenv("LOOPED_CORPORA")
    assert default_folder("laptop", 2048, 256).parts[-2:] == ("corpora", "laptop-v2048-t256")


@pytest.mark.parametrize(("n_rows", "batch_rows"), [(10, 3), (12, 4), (5, 7), (3, 10)])
def test_every_row_is_read_once_an_epoch(n_rows, batch_rows):
    read = np.concatenate([batch_indices(n_rows, batch_rows, step, 1) for step in range(60)])
    epochs = read[: len(read) // n_rows * n_rows].reshape(-1, n_rows)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(n_rows), (len(epochs), 1)))
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_the_order_depends_on_step_and_seed_alone():
    first = [batch_indices(50, 8, step, 3) for step in range(20)]
    again = [batch_indices(50, 8, step, 3) for step in reversed(range(20))][::-1]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(batch_indices(50, 8, 0, 3), batch_indices(50, 8, 0, 4))


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_ranks_share_a_batch(world_size):
    batch = batch_indices(50, 8, 5, 0)
    parts = [rank_part(batch, rank, world_size) for rank in range(world_size)]
    assert {len(part) for part in parts} == {8 // world_size}
    np.testing.assert_array_equal(np.concatenate(parts), batch)


def test_impossible_orders_are_refused():
    with pytest.raises(ValueError, match="8 rows for 3 ranks"):
        rank_part(np.arange(8), 0, 3)
    with pytest.raises(ValueError, match="expected 0 to 1"):
        rank_part(np.arange(8), 2, 2)
    with pytest.raises(ValueError, match="expected at least 1, 1, 0, 0"):
        batch_indices(0, 8, 0, 0)


def test_the_tokenizer_gives_every_text_back(finished):
    tokenizer = finished.tokenizer()
    texts = ["naïve — “so”\n\tit’s 1,234 €", f"a {BOS} b", "".join(map(chr, range(1, 256)))]
    for text, ids in zip(texts, token_ids(tokenizer, texts), strict=True):
        assert bos_id(tokenizer) not in ids
        assert tokenizer.decode(ids) == text


def test_impossible_tokenizers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 257"):
        train_tokenizer(["text"], 100)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no tokenizer from .*tokenizer\.json file"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"no token '<\|bos\|>' or '<s>'"):
        bos_id(need("tokenizers").Tokenizer(need("tokenizers.models").BPE()))


def test_commands(texts, tmp_path):
    run = CliRunner().invoke
    folder = str(tmp_path / "c")
    sizes = ["--seq-len", "32", "--vocab-size", "300", "--tokens", "3e3"]
    source = ["--source", "text", "--path", str(texts)]
    made = run(app, ["prepare", *source, *sizes, "--out", folder])
    assert made.exit_code == 0, made.output
    shown = run(app, ["info", folder, "--json"])
    assert json.loads(shown.stdout)["train"]["tokens"] == 94 * 32
    assert "discarded" in run(app, ["info", folder]).stdout
    assert "SHA-256" in run(app, ["verify", folder]).stdout
    assert run(app, ["info", str(tmp_path / "none")]).exit_code == 2
    wrong = run(app, ["prepare", "--source", "web", "--out", folder])
    assert wrong.exit_code == 2
    assert "expected one of laptop, text, fineweb-edu" in wrong.stderr


def test_an_interrupted_command_says_how_to_go_on(monkeypatch, tmp_path):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("looped.cli.data.prepare_corpus", stopped)
    found = CliRunner().invoke(app, ["prepare", "--out", str(tmp_path)])
    assert found.exit_code == 130
    assert "run the same command to resume" in found.stderr
