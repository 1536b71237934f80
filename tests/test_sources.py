"""The sources: what they read, in which order, from where on; and how they fail."""

import gzip
import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from looped.data.corpus import Corpus
from looped.data.prepare import prepare_corpus
from looped.data.sources import SOURCES, hub, laptop, laptop_texts
from looped.data.sources.base import subset_of
from looped.data.sources.files import OwnText
from looped.data.sources.hub import FineWebEdu, PackedFineWebEdu
from looped.data.sources.laptop import Laptop
from looped.data.sources.laptop_texts import Text
from looped.data.tokenizer import tokenizer_bytes, train_tokenizer
from looped.errors import ConfigError
from looped.extras import missing_packages, need
from looped.studies.paper import PAPER_VOCAB

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer.json of 257 tokens: one a byte."""
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    file.write_bytes(tokenizer_bytes(train_tokenizer(["text"], 257)))
    return file


@pytest.fixture
def fineweb(tmp_path):
    """Five files like FineWeb-Edu's: a text, and columns that nobody reads."""
    folder = tmp_path / "fineweb"
    folder.mkdir()
    for number in range(5):
        texts = [f"file {number} document {at}: " + "word " * (at % 7) for at in range(700)]
        table = pa.table({"text": texts, "score": [4.0] * 700, "dump": ["CC"] * 700})
        pq.write_table(table, folder / f"shard_{number:05d}.parquet", row_group_size=100)
    return folder


def packed(folder, width=33, n_rows=50, **columns):
    """A data set like the authors' packed one; returns its training rows."""
    rng, made = np.random.default_rng(0), []
    for name in ("train-00000", "train-00001", "val-00000"):
        rows = rng.integers(1, 257, (n_rows, width), dtype=np.uint16)
        rows[:, 0] = 0
        tokens = pa.array(list(rows), type=pa.list_(pa.uint16()))
        table = pa.table({"tokens": tokens} | columns)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=20)
        made.append(rows)
    (folder / "meta_train.json").write_text("{}")
    return np.concatenate(made[:2]), made[2]


def read(source, subset, after=(0, -1)):
    return [document.text for document in source.documents(subset, after)]


def test_own_texts_of_every_kind_in_the_order_of_their_names(tmp_path):
    (tmp_path / "b.txt").write_text("whole\nfile", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n\n{"body": "two"}\n', encoding="utf-8")
    with gzip.open(tmp_path / "c.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write('{"body": "three é"}\n{"body": "  "}\n')
    with gzip.open(tmp_path / "d.txt.gz", "wt", encoding="utf-8") as file:
        file.write("four")
    (tmp_path / "e.csv").write_text("no text")
    source = OwnText(tmp_path, field="body")
    found = sorted(
        (document for name in ("train", "validation") for document in source.documents(name)),
        key=lambda document: document.place,
    )
    assert [document.text for document in found] == ["one", "two", "whole\nfile", "three é", "four"]
    assert found[1].place == (0, 2)


def test_unreadable_own_texts_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        OwnText(tmp_path / "none.txt")
    with pytest.raises(ValueError, match=r"no text: name files or folders that hold \.txt"):
        OwnText(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"body": "two"}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: expected .* 'text'"):
        read(OwnText(tmp_path), "train")
    with pytest.raises(ValueError, match="share"):
        OwnText(tmp_path, share=1)


def test_the_subset_depends_on_the_text_and_the_share_is_right():
    subsets = [subset_of(f"text {number}", 0.1) for number in range(5000)]
    assert subsets == [subset_of(f"text {number}", 0.1) for number in range(5000)]
    assert 0.08 < subsets.count("validation") / 5000 < 0.12


@pytest.mark.parametrize("place", [(0, 2), (1, 99), (1, 100), (1, 699), (2, 699)])
def test_documents_after_a_place(fineweb, tokenizer, place):
    source = FineWebEdu(fineweb, tokenizer)
    everything = list(source.documents("train"))
    assert len(everything) == 2100
    rest = [document for document in everything if document.place > place]
    assert list(source.documents("train", place)) == rest


def test_the_expected_tokens_are_estimated_from_the_files_read(fineweb, tokenizer, tmp_path):
    seen = []
    prepare_corpus(
        FineWebEdu(fineweb, tokenizer),
        seq_len=32,
        out=tmp_path / "c",
        progress=lambda done, total: seen.append((done, total)),
    )
    train = seen[[total for _, total in seen].index(0) :]
    assert train[0] == (0, 0)  # nothing to estimate from
    assert 0.5 < train[-2][1] / train[-1][0] < 2


def test_the_last_two_files_are_validation(fineweb, tokenizer):
    source = FineWebEdu(fineweb, tokenizer)
    assert {text[:6] for text in read(source, "validation")} == {"file 3", "file 4"}
    assert read(source, "train")[0].startswith("file 0 document 0")


def test_the_files_of_a_repository_are_those_of_its_newest_commit(monkeypatch):
    names = ["README.md", "a/val-0.parquet", "b/train-1.parquet", "b/train-0.parquet"]
    names += ["test/0.parquet", "meta_train.json", "evaluated.parquet"]
    files = [SimpleNamespace(rfilename=name) for name in names]
    info = SimpleNamespace(sha="c0ffee", siblings=files)
    monkeypatch.setattr("huggingface_hub.dataset_info", lambda name: info)
    at = "hf://datasets/some/repository@c0ffee"
    assert FineWebEdu("some/repository").files == {
        "validation": [f"{at}/a/val-0.parquet"],
        "train": [f"{at}/b/train-0.parquet", f"{at}/b/train-1.parquet", f"{at}/evaluated.parquet"],
    }


def test_fineweb_from_a_folder(fineweb, tokenizer, tmp_path):
    source = FineWebEdu(fineweb, tokenizer)
    corpus = prepare_corpus(source, seq_len=32, out=tmp_path / "c")
    first = corpus.tokenizer().decode(list(corpus.train.rows([0])[0][1:]))
    assert "document" in first
    assert corpus.vocab_size == 257
    assert corpus.manifest["validation"]["documents"] == 1400
    assert corpus.manifest["licences"][0]["licence"] == "ODC-By 1.0"


def test_the_tokenizer_of_llama_2_gets_the_authors_token(fineweb, tmp_path):
    like = train_tokenizer(["text"], 257)
    like.add_tokens([f"token{number}" for number in range(32_000 - 257)])
    like.save(str(tmp_path / "tokenizer.json"))
    tokenizer = FineWebEdu(fineweb, tmp_path / "tokenizer.json").tokenizer()
    assert tokenizer.get_vocab_size() == PAPER_VOCAB
    assert tokenizer.token_to_id("<|assistant_end|>") == 32_000


def test_after_a_network_failure_the_shards_remain_and_it_resumes(
    fineweb, tokenizer, tmp_path, monkeypatch
):
    settings = {"seq_len": 32, "shard_rows": 32}
    whole = prepare_corpus(FineWebEdu(fineweb, tokenizer), out=tmp_path / "whole", **settings)
    real, opened = pq.ParquetFile.read_row_group, []

    def fail_later(self, *args, **kwargs):
        opened.append(args)
        if len(opened) > 14 + 17:  # 14 groups of validation, and of training some of the 21
            raise ConnectionError("the network is gone")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", fail_later)
    with pytest.raises(OSError, match=r"stopped reading .*network is gone.*run the same command"):
        prepare_corpus(FineWebEdu(fineweb, tokenizer), out=tmp_path / "c", **settings)
    assert len(list((tmp_path / "c").glob("train-*.npy"))) > 4
    monkeypatch.undo()
    again = prepare_corpus(FineWebEdu(fineweb, tokenizer), out=tmp_path / "c", **settings)
    assert again.manifest == whole.manifest


def test_packed_rows_are_used_unchanged(tmp_path, tokenizer):
    train, validation = packed(tmp_path, score=[1] * 50, name=["a"] * 50)
    source = PackedFineWebEdu(tmp_path, tokenizer)
    corpus = prepare_corpus(source, seq_len=32, shard_rows=16, out=tmp_path / "c")
    np.testing.assert_array_equal(corpus.train.rows(np.arange(100)), train)
    np.testing.assert_array_equal(corpus.validation.rows(np.arange(50)), validation)
    assert corpus.manifest["train"]["discarded_tokens"] == 0


def test_packed_rows_after_an_interruption(tmp_path, tokenizer):
    packed(tmp_path)
    source = PackedFineWebEdu(tmp_path, tokenizer)
    whole = prepare_corpus(source, seq_len=32, shard_rows=16, out=tmp_path / "whole")
    calls = []

    def stop(done, total):
        calls.append(done)
        if len(calls) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(source, seq_len=32, shard_rows=16, out=tmp_path / "c", progress=stop)
    again = prepare_corpus(source, seq_len=32, shard_rows=16, out=tmp_path / "c")
    assert again.manifest == whole.manifest


def test_packed_rows_of_another_length_or_vocabulary_are_refused(tmp_path, tokenizer):
    packed(tmp_path)
    source = PackedFineWebEdu(tmp_path, tokenizer)
    with pytest.raises(ValueError, match=r"rows of 33 to 33 tokens, expected seq_len . 1 = 65"):
        prepare_corpus(source, seq_len=64, out=tmp_path / "c")
    with pytest.raises(ConfigError, match="vocab_size: got 300, but the tokenizer"):
        prepare_corpus(source, seq_len=32, vocab_size=300, out=tmp_path / "d")


def test_packed_rows_with_two_list_columns(tmp_path, tokenizer):
    packed(tmp_path, other=pa.array([[1]] * 50))
    with pytest.raises(
        ValueError, match=r"one column of lists of tokens, got \['tokens', 'other'\]"
    ):
        prepare_corpus(PackedFineWebEdu(tmp_path, tokenizer), seq_len=32, out=tmp_path / "c")


def test_packed_rows_of_another_tokenizer(tmp_path, tokenizer):
    packed(tmp_path)
    source = PackedFineWebEdu(tmp_path, tokenizer)
    for file in tmp_path.glob("*.parquet"):
        rows = [[0] + [400] * 32] * 50
        pq.write_table(pa.table({"tokens": pa.array(rows, type=pa.list_(pa.uint16()))}), file)
    with pytest.raises(ValueError, match=r"tokens of 0 to 400 .* tokenizer has 257"):
        prepare_corpus(source, seq_len=32, out=tmp_path / "c")
    for file in tmp_path.glob("*.parquet"):
        pq.write_table(pa.table({"tokens": pa.array([[5] * 33] * 50)}), file)
    with pytest.raises(ValueError, match="a row does not begin with token 0"):
        prepare_corpus(source, seq_len=32, out=tmp_path / "d")


def test_a_folder_without_enough_files(tmp_path, tokenizer):
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "shard_0.parquet")
    with pytest.raises(ValueError, match="more than 2, or some named as validation"):
        FineWebEdu(tmp_path, tokenizer).identity()


def test_a_vocabulary_beyond_16_bits(fineweb, tmp_path):
    big = train_tokenizer(["text"], 257)
    big.add_tokens([f"token{number}" for number in range(70_000)])
    file = tmp_path / "tokenizer.json"
    big.save(str(file))
    with pytest.raises(ConfigError, match="got 70257, expected at most 65536"):
        prepare_corpus(FineWebEdu(fineweb, file), out=tmp_path / "c")


@pytest.mark.parametrize("name", ["fineweb-edu", "fineweb-edu-packed"])
def test_without_the_hub_there_is_one_clear_error(name, tokenizer, tmp_path):
    """In a process of its own, since the switch is read when the library is imported."""
    command = ["prepare", "--source", name, "--tokenizer", str(tokenizer), "--out", str(tmp_path)]
    code = f"from looped.cli.data import app; app({command!r})"
    environment = {"HF_HUB_OFFLINE": "1", "PATH": "", "HOME": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 2, found.stderr
    assert "Traceback" not in found.stderr
    assert "HF_HUB_OFFLINE unset; or name a folder" in found.stderr


def test_a_tokenizer_that_cannot_be_fetched(fineweb, monkeypatch):
    def gated(name):
        raise Exception("401 Client Error: gated repo")

    monkeypatch.setattr("tokenizers.Tokenizer.from_pretrained", gated)
    with pytest.raises(ValueError, match=r"Llama-2-7b-hf.*401.*terms of a gated repository"):
        prepare_corpus(FineWebEdu(fineweb))


def test_a_missing_module_names_its_extra():
    with pytest.raises(ConfigError, match=r"pip install 'looped\[laptop\]'"):
        need("looped_needs_this_and_it_is_not_there", "laptop")


def test_the_packages_of_an_unknown_extra_are_refused():
    assert missing_packages("train") == []
    with pytest.raises(ConfigError, match=r"extra: got 'trian', .*did you mean 'train'"):
        missing_packages("trian")


def test_every_source_is_registered_by_its_name():
    assert list(SOURCES) == [source.name for source in SOURCES.values()]
    assert hub.LLAMA_2 == FineWebEdu()._tokenizer


# The laptop corpus


def test_a_missing_or_other_package(monkeypatch):
    absent = replace(laptop.GCIDE, name="there-is-no-such-package")
    with pytest.raises(ConfigError, match=r"pip install 'looped\[laptop\]'"):
        absent.files()
    changed = laptop.Package(
        name="numpy", version="0.1", sha256="0" * 64, folder="numpy/__init__", ending=".py",
        what="", licence="", origin="",
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"needs the files of numpy 0.1, got those of"):
        changed.files()


def test_the_laptop_source_refuses_a_path():
    with pytest.raises(ConfigError, match="has its own texts"):
        Laptop(path="texts")


def test_passages_contain_the_whole_text_and_its_heading():
    rng = np.random.default_rng(0)
    lines = [
        " ".join("".join(rng.choice(list("abc.;,"), 4)) for _ in range(rng.integers(1, 300)))
        for _ in range(30)
    ]
    text = Text("Title", lines)
    passages = list(text.passages(200))
    assert all(passage.startswith("Title: ") for passage in passages)
    assert max(map(len, passages)) < 260
    body = " ".join(passage.removeprefix("Title: ") for passage in passages)
    assert body.replace("\n", "").replace(" ", "") == "".join(lines).replace(" ", "")


def test_entries_of_the_dictionary_are_prose(tmp_path):
    entry = {
        "pos": [
            {
                "etymology": "[of a neighbour]",
                "part_of_speech": "v. t.",
                "definitions": [
                    {
                        "text": "To thrust<-- p. 3 -->;  to stab .",
                        "examples": ["He jabbed.1913 Webster]"],
                    }
                ],
                "syn": "Syn. -- Poke{1}.",
            }
        ]
    }
    file = tmp_path / "words_J.json"
    file.write_text(json.dumps({"jab": entry, "empty": {"pos": []}}), encoding="utf-8")
    (found,) = laptop_texts.dictionary_entries([file])
    assert found.whole == "Jab: To thrust; to stab.\n“He jabbed.”\nSyn. -- Poke."


def test_reports_of_countries_are_prose(tmp_path):
    report = {
        "Government": {"Country name": {"conventional short form": {"text": "Austria"}}},
        "Geography": {
            "Location": {"text": "Central <em>Europe</em>"},
            "Area": {"total ": {"text": "83,871 sq&nbsp;km"}, "note": "<b>note:</b> rounded"},
            "Growth": {"Growth 2024": {"text": "1%<br><br>or so"}},
        },
    }
    file = tmp_path / "au.json"
    file.write_text(json.dumps(report), encoding="utf-8")
    government, geography = laptop_texts.country_reports([file])
    assert government.heading == "Austria, Government"
    assert geography.lines == [
        "Location: Central Europe",
        "Area, total: 83,871 sq km",
        "note: rounded",
        "Growth 2024: 1% or so",
    ]


def test_paragraphs_of_articles_are_prose():
    kept = (
        "'''Anarchism''' ( , {}) is ''a'' political philosophy , as it is often said"
        + " x" * 40
        + "."
    )
    assert laptop_texts._paragraph(kept).startswith("Anarchism ({}) is a political philosophy, as")
    for left_out in ("== See also ==", "* " + "an item " * 30 + ".", "A short line.", "x" * 200):
        assert laptop_texts._paragraph(left_out) == ""


def test_the_laptop_corpus(tmp_path, monkeypatch):
    """Of the installed packages, all hashes and the texts of every eighth file."""
    for package in laptop.PACKAGES:
        try:
            package.files()
        except ConfigError as error:
            if "pip install 'looped[laptop]'" in str(error):
                pytest.skip(str(error))
            raise
    files = laptop.Package.files
    monkeypatch.setattr(laptop.Package, "files", lambda package: files(package)[::8])
    source = Laptop()
    corpus = prepare_corpus(source, n_tokens=20_000, vocab_size=257, seq_len=64, out=tmp_path)
    texts = " ".join(document.text for document in source.documents("train"))
    assert len(texts) > 4_000_000
    for debris in ('"text":', "1913 Webster", "<br", "&nbsp;", "{{", "'''", "<--"):
        assert debris not in texts
    assert len(corpus.train) == 313
    assert [part["what"] for part in Corpus.open(tmp_path).manifest["licences"]] == [
        package.what for package in laptop.PACKAGES
    ]
