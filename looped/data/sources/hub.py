"""FineWeb-Edu from the Hugging Face hub or from a folder of the same Parquet files.

The paper reads the 100-billion-token sample in the shuffled copy of 1,823 files that nanochat
uses, with the tokenizer of Llama 2; the last two files are its validation. Its authors have
published the packed rows as well. Both are read file by file and row group by row group, so that
a preparation goes on where it stopped.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from looped.data.sources.base import START, Document, Place, Rows
from looped.data.tokenizer import bos_id, load_tokenizer
from looped.errors import ConfigError
from looped.extras import need

if TYPE_CHECKING:
    import pyarrow

LLAMA_2 = "NousResearch/Llama-2-7b-hf"
"""Copy of Llama 2's tokenizer that asks for no permission; meta-llama's own is gated."""

LLAMA_2_TOKENS = 32_000
CHAT_MARK = "<|assistant_end|>"
"""A token that the authors add to Llama 2's; no text turns into it."""

LAST_FILES = 2
"""Files at the end that are validation where a data set has no validation files."""

LICENCES = [
    {
        "what": "FineWeb-Edu",
        "licence": "ODC-By 1.0",
        "origin": "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu",
    }
]


class ParquetFiles:
    """The Parquet files of a data set, parted into training and validation.

    Args:
        path: a repository of the hub, or a folder; None: the paper's.
        tokenizer: a `tokenizer.json`, or a name on the hub; None: Llama 2's.
    """

    name: str
    repository: str
    licences = LICENCES
    seq_len, vocab_size = 2048, None
    validation_rows = 34_560  # section 4 of the paper

    def __init__(self, path: str | Path | None = None, tokenizer: str | Path | None = None):
        if path is not None and not isinstance(path, str | Path):
            raise ConfigError(f"path: got {path}, expected one folder or one repository")
        self.where = str(path or self.repository)
        self._tokenizer = tokenizer or LLAMA_2
        self._files: dict[str, list[str]] | None = None

    def identity(self) -> dict:
        """The data set, how many files there are, and a hash of their names."""
        files = self.files()
        names = "\n".join(side + " " + _name(file) for side in files for file in files[side])
        return {
            "data_set": Path(self.where).name if Path(self.where).is_dir() else self.where,
            "files": {side: len(files[side]) for side in files},
            "names": hashlib.sha256(names.encode()).hexdigest(),
        }

    def part_read(self, side: str, place: Place) -> float:
        """By files."""
        return place[0] / len(self.files()[side])

    def tokenizer(self):
        """Llama 2's with the authors' additional token, or the other one that was named."""
        tokenizer = load_tokenizer(self._tokenizer)
        if tokenizer.get_vocab_size() == LLAMA_2_TOKENS:
            tokenizer.add_special_tokens([CHAT_MARK])
        return tokenizer

    def files(self) -> dict[str, list[str]]:
        """Files of each side, as paths or addresses. Raises OSError when they cannot be listed."""
        if self._files is None:
            self._files = _part(_data_files(self.where), self.where)
        return self._files


class FineWebEdu(ParquetFiles):
    """Documents of FineWeb-Edu: the column `text` of the files."""

    name = "fineweb-edu"
    repository = "karpathy/fineweb-edu-100b-shuffle"

    def documents(self, side: str, after: Place = START) -> Iterator[Document]:
        """Documents of one side in the order of the files."""
        for number, file in enumerate(self.files()[side]):
            if number < after[0]:
                continue
            first = after[1] + 1 if number == after[0] else 0
            for at, texts in _read(file, first, lambda schema: "text"):
                for i, text in enumerate(texts.to_pylist()):
                    if text:
                        yield Document(f"{_name(file)}:{at + i}", text, (number, at + i))


class PackedFineWebEdu(ParquetFiles):
    """The authors' packed rows: a column of lists of seq_len + 1 tokens, taken as they are."""

    name = "fineweb-edu-packed"
    repository = "KristianS7/prepacked-fineweb-edu-llama2-32K-T2048"

    def rows(self, side: str, seq_len: int, after: Place = START) -> Iterator[tuple[Place, Rows]]:
        """Rows of one side, a row group at a time. Raises ValueError for any other length."""
        bos = bos_id(self.tokenizer())
        for number, file in enumerate(self.files()[side]):
            if number < after[0]:
                continue
            first = after[1] + 1 if number == after[0] else 0
            for at, lists in _read(file, first, _list_column):
                yield (number, at + len(lists) - 1), _as_rows(lists, seq_len, bos, file)


def _data_files(where):
    """Files of each split of a data set, as `datasets` finds them."""
    datasets = need("datasets")
    try:
        found = datasets.load_dataset_builder(where).config.data_files or {}
    except (OSError, ValueError, _http_error()) as error:
        raise OSError(
            f"cannot list the files of {where}: {error}. The Hugging Face hub must be reachable "
            "and HF_HUB_OFFLINE unset; or name a folder that holds the Parquet files (--path)"
        ) from error
    return {str(split): sorted(map(str, files)) for split, files in found.items()}


def _part(splits, where):
    train = splits.get("train", [])
    validation = splits.get("validation", [])
    if not validation:
        train, validation = train[:-LAST_FILES], train[-LAST_FILES:]
    if not train or not all(file.endswith(".parquet") for file in train + validation):
        raise ValueError(
            f"{where}: got { ({split: len(files) for split, files in splits.items()}) } files, "
            f"expected Parquet files, more than {LAST_FILES} or some named as validation"
        )
    return {"validation": validation, "train": train}


def _read(file, first, column) -> Iterator[tuple[int, "pyarrow.ChunkedArray"]]:
    """Values of one column from row `first` on, a row group at a time, with their first row."""
    fsspec, parquet = need("fsspec"), need("pyarrow.parquet")
    try:
        with fsspec.open(file, "rb") as handle, parquet.ParquetFile(handle) as table:
            name, end = column(table.schema_arrow), 0
            for group in range(table.num_row_groups):
                start, end = end, end + table.metadata.row_group(group).num_rows
                if end > first:
                    skip = max(0, first - start)
                    yield start + skip, table.read_row_group(group, [name]).column(0)[skip:]
    except (OSError, _http_error()) as error:
        raise OSError(
            f"stopped reading {file}: {error}. Complete shards are kept; run the same command "
            "again to go on"
        ) from error


def _list_column(schema) -> str:
    types = need("pyarrow").types
    lists = [
        field.name
        for field in schema
        if (types.is_list(field.type) or types.is_large_list(field.type))
        and types.is_integer(field.type.value_type)
    ]
    if len(lists) != 1:
        raise ValueError(f"expected one column of lists of tokens, got {lists} of {schema.names}")
    return lists[0]


def _as_rows(lists, seq_len, bos, file) -> Rows:
    array = lists.combine_chunks()
    lengths = np.diff(array.offsets.to_numpy())
    if not (lengths == seq_len + 1).all():
        raise ValueError(
            f"{file}: rows of {int(lengths.min())} to {int(lengths.max())} tokens, expected "
            f"seq_len + 1 = {seq_len + 1}; set seq_len to the length of the rows less one"
        )
    rows = array.flatten().to_numpy(zero_copy_only=False).reshape(len(lengths), seq_len + 1)
    if not (rows[:, 0] == bos).all():
        raise ValueError(
            f"{file}: a row does not begin with token {bos}, which the tokenizer's text begins "
            "with; name the tokenizer that the rows were made with (--tokenizer)"
        )
    return rows


def _name(file: str) -> str:
    return file.rpartition("/")[2]


def _http_error():
    return getattr(need("huggingface_hub.errors"), "HTTPError", OSError)
