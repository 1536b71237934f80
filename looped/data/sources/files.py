"""Local text files: a plain text file is one document, a JSON Lines file has one on each line."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from looped.data.sources.base import (
    START,
    VALIDATION_SHARE,
    Document,
    Place,
    Source,
    after_place,
    subset_of,
)

SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")


class OwnText(Source):
    """Text files that the user names, and all text files of folders, sorted by path.

    Args:
        path: files and folders.
        tokenizer: a `tokenizer.json` or a repository on the hub; None: train one on the texts.
        field: field of a JSON line that holds the text.
        share: share of the documents for validation, between 0 and 1.

    Raises:
        ValueError: a share out of range, a path that does not exist, or no text file.
    """

    name = "text"
    licences = ({"what": "own text", "licence": "as the files say", "origin": "own files"},)

    def __init__(
        self,
        path: str | Path | Sequence[str | Path] | None = None,
        tokenizer: str | Path | None = None,
        *,
        field: str = "text",
        share: float = VALIDATION_SHARE,
    ):
        if not 0 < share < 1:
            raise ValueError(f"share: got {share}, expected more than 0 and less than 1")
        self.files = _text_files([path] if isinstance(path, str | Path) else path or ())
        self.field, self.share, self._tokenizer = field, share, tokenizer

    def identity(self) -> dict[str, Any]:
        """Names and sizes of the files."""
        files = [[file.name, file.stat().st_size] for file in self.files]
        return {"files": files, "field": self.field, "share": self.share}

    def share_read(self, subset: str, place: Place) -> float:
        """Share of the files."""
        return place[0] / len(self.files)

    def documents(self, subset: str, after: Place = START) -> Iterator[Document]:
        """Documents of a subset; empty ones are skipped.

        Raises:
            ValueError: a JSON line without the field; names file and line.
        """
        for number, file in enumerate(self.files[after[0] :], after[0]):
            for document in after_place(self._read(file, number), after):
                if document.text.strip() and subset_of(document.text, self.share) == subset:
                    yield document

    def _read(self, file: Path, number: int) -> Iterator[Document]:
        opener = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rt", encoding="utf-8") as lines:
            if ".jsonl" not in file.suffixes:
                yield Document(lines.read(), (number, 0))
                return
            for index, line in enumerate(lines):
                if line.strip():
                    yield Document(self._text(line, f"{file}, line {index + 1}"), (number, index))

    def _text(self, line: str, where: str) -> str:
        try:
            text = json.loads(line)[self.field]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{where}: expected a JSON object with the field {self.field!r} ({error!r}); "
                "name the field that holds the text"
            ) from error
        if not isinstance(text, str):
            raise ValueError(f"{where}: field {self.field!r}: got {text!r}, expected text")
        return text


def _text_files(paths: Sequence[str | Path]) -> list[Path]:
    files: set[Path] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
        inside = path.rglob("*") if path.is_dir() else [path]
        files |= {file for file in inside if file.is_file() and file.name.endswith(SUFFIXES)}
    if not files:
        raise ValueError(f"no text: name files or folders that hold {', '.join(SUFFIXES)}")
    return sorted(files)
