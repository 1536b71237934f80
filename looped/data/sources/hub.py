"""FineWeb-Edu from the Hugging Face hub, or from a folder with the same Parquet files.

The paper reads the 100-billion-token sample in nanochat's shuffled copy of 1,823 files, with the
tokenizer of Llama 2; the last two files are for validation. The authors have also published the
packed rows. Both are read one row group at a time, so that a preparation can resume inside a file.
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from looped.data.sources.base import START, Document, Place, Source
from looped.data.tokenizer import bos_id, load_tokenizer
from looped.errors import ConfigError
from looped.extras import need
from looped.files import sha256

if TYPE_CHECKING:
    import pyarrow
    from tokenizers import Tokenizer

LLAMA_2 = "NousResearch/Llama-2-7b-hf"
"""Ungated copy of the Llama 2 tokenizer; the original of meta-llama is gated."""

LLAMA_2_TOKENS = 32_000
CHAT_MARK = "<|assistant_end|>"
"""Token that the authors add to the tokenizer of Llama 2; no text is encoded to it."""

LAST_FILES = 2
"""Number of files at the end that are for validation, in a data set without validation files."""

_SUBSET_NAMES = {
    "validation": re.compile(r"(?<![a-z])(valid(ation)?|val|dev)(?![a-z])"),
    "test": re.compile(r"(?<![a-z])(test(ing)?|eval)(?![a-z])"),
}
"""Words in a file's path that mark its subset on the hub; all other files are for training."""


class ParquetFiles(Source):
    """The Parquet files of a data set, divided into training and validation.

    Args:
        path: a repository on the hub, or a folder; None: the paper's repository.
        tokenizer: a `tokenizer.json` or a repository on the hub; None: Llama 2's.

    Raises:
        ConfigError: several paths.
    """

    repository: str
    licences = (
        {
            "what": "FineWeb-Edu",
            "licence": "ODC-By 1.0",
            "origin": "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu",
        },
    )
    seq_len = 2048
    validation_rows = 34_560  # section 4 of the paper

    def __init__(self, path: str | Path | None = None, tokenizer: str | Path | None = None):
        if path is not None and not isinstance(path, str | Path):
            raise ConfigError(f"path: got {path}, expected one folder or one repository")
        self.where = str(path or self.repository)
        self._tokenizer: str | Path = tokenizer or LLAMA_2

    def identity(self) -> dict[str, Any]:
        """Name of the data set, number of files, and a hash of their names."""
        names = [f"{key} {Path(file).name}" for key in self.files for file in self.files[key]]
        return {
            "data_set": Path(self.where).name if Path(self.where).is_dir() else self.where,
            "files": {subset: len(files) for subset, files in self.files.items()},
            "names": sha256("\n".join(names)),
        }

    def share_read(self, subset: str, place: Place) -> float:
        """Share of the files."""
        return place[0] / len(self.files[subset])

    def tokenizer(self) -> "Tokenizer":
        """The tokenizer; Llama 2's with the authors' additional token."""
        tokenizer = load_tokenizer(self._tokenizer)
        if tokenizer.get_vocab_size() == LLAMA_2_TOKENS:
            tokenizer.add_special_tokens([CHAT_MARK])
        return tokenizer

    @cached_property
    def files(self) -> dict[str, list[str]]:
        """Paths or addresses of the files of each subset.

        Raises:
            OSError: the hub cannot be reached, or has no such data set.
            ValueError: too few Parquet files.
        """
        found: dict[str, list[str]] = {"validation": [], "test": [], "train": []}
        for name, file in sorted(_parquet_files(self.where).items()):
            words = (key for key, pattern in _SUBSET_NAMES.items() if pattern.search(name.lower()))
            found[next(words, "train")].append(file)
        train, validation = found["train"], found["validation"]
        if not validation:
            train, validation = train[:-LAST_FILES], train[-LAST_FILES:]
        if not train:
            got = {subset: len(files) for subset, files in found.items() if files}
            raise ValueError(
                f"{self.where}: got {got} Parquet files, expected more than {LAST_FILES}, or some "
                "named as validation"
            )
        return {"validation": validation, "train": train}

    def _read(
        self, subset: str, after: Place, column: Callable[["pyarrow.Schema"], str]
    ) -> Iterator[tuple[str, Place, "pyarrow.ChunkedArray"]]:
        """Values of a column after a place, one row group at a time: file, first place, values.

        Raises:
            OSError: a file that cannot be read.
        """
        for number, file in enumerate(self.files[subset][after[0] :], after[0]):
            first = after[1] + 1 if number == after[0] else 0
            for index, values in _row_groups(file, first, column):
                yield file, (number, index), values


class FineWebEdu(ParquetFiles):
    """Documents of FineWeb-Edu: the column `text` of the files."""

    name = "fineweb-edu"
    repository = "karpathy/fineweb-edu-100b-shuffle"

    def documents(self, subset: str, after: Place = START) -> Iterator[Document]:
        """Documents of a subset in the order of the files. Raises OSError on a failed read."""
        for _, (number, first), texts in self._read(subset, after, lambda schema: "text"):
            for index, text in enumerate(texts.to_pylist(), first):
                if text:
                    yield Document(text, (number, index))


class PackedFineWebEdu(ParquetFiles):
    """The authors' packed rows: a column of lists of seq_len + 1 tokens, used unchanged."""

    name = "fineweb-edu-packed"
    repository = "KristianS7/prepacked-fineweb-edu-llama2-32K-T2048"
    packed = True

    def rows(
        self, subset: str, seq_len: int, after: Place = START
    ) -> Iterator[tuple[Place, np.ndarray]]:
        """Rows [n, seq_len + 1] of a subset, one row group at a time.

        Raises:
            OSError: a file that cannot be read.
            ValueError: rows of another length or tokenizer, or no single column of tokens.
        """
        bos = bos_id(self.tokenizer())
        for file, (number, first), lists in self._read(subset, after, _list_column):
            yield (number, first + len(lists) - 1), _as_rows(lists, seq_len, bos, file)


def _parquet_files(where: str) -> dict[str, str]:
    """Parquet files of a folder or of a repository's newest commit: name -> path or address."""
    if (folder := Path(where)).is_dir():
        return {str(file.relative_to(folder)): str(file) for file in folder.rglob("*.parquet")}
    try:
        info = need("huggingface_hub").dataset_info(where)
    except (OSError, ValueError, _http_error()) as error:
        raise OSError(
            f"cannot list the files of {where}: {error}. The Hugging Face hub must be reachable "
            "and HF_HUB_OFFLINE unset; or name a folder that holds the Parquet files (--path)"
        ) from error
    names = [file.rfilename for file in info.siblings or ()]
    address = f"hf://datasets/{where}@{info.sha}"
    return {name: f"{address}/{name}" for name in names if name.endswith(".parquet")}


def _row_groups(
    file: str, first: int, column: Callable[["pyarrow.Schema"], str]
) -> Iterator[tuple[int, "pyarrow.ChunkedArray"]]:
    """Values of a column from row `first` on, one row group at a time, with their first row."""
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
            f"stopped reading {file}: {error}. Complete shards are saved; run the same command "
            "again to resume"
        ) from error


def _list_column(schema: "pyarrow.Schema") -> str:
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


def _as_rows(lists: "pyarrow.ChunkedArray", seq_len: int, bos: int, file: str) -> np.ndarray:
    array = lists.combine_chunks()
    lengths = np.diff(array.offsets.to_numpy())
    if not (lengths == seq_len + 1).all():
        raise ValueError(
            f"{file}: rows of {int(lengths.min())} to {int(lengths.max())} tokens, expected "
            f"seq_len + 1 = {seq_len + 1}; set seq_len to the length of the rows minus one"
        )
    rows = array.flatten().to_numpy(zero_copy_only=False).reshape(len(lengths), seq_len + 1)
    if not (rows[:, 0] == bos).all():
        raise ValueError(
            f"{file}: a row does not begin with token {bos}, the BOS of the tokenizer; name the "
            "tokenizer that the rows were made with (--tokenizer)"
        )
    return rows


def _http_error() -> type[Exception]:
    return getattr(need("huggingface_hub.errors"), "HTTPError", OSError)
