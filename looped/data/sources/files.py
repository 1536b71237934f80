"""Own texts: a file of plain text is one document, a line of a JSON Lines file is one."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from looped.data.sources.base import START, VALIDATION_SHARE, Document, Place, after_place, side_of
from looped.data.tokenizer import load_tokenizer

ENDINGS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")


class OwnText:
    """Files that the user names, or all of a folder, in the order of their names.

    Args:
        path: files and folders.
        field: of a JSON line that holds the text.
        tokenizer: a `tokenizer.json`, or a name on the hub; None trains one on the texts.
        share: of the documents, for validation.
    """

    name = "text"
    seq_len, vocab_size = 256, 2048
    validation_rows = 1024

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
        self.files = _files([path] if isinstance(path, str | Path) else path or ())
        self.field, self.share, self._tokenizer = field, share, tokenizer
        self.licences = [{"what": "own text", "licence": "as the files say", "origin": "own files"}]

    def identity(self) -> dict:
        """Names and sizes of the files."""
        files = [[file.name, file.stat().st_size] for file in self.files]
        return {"files": files, "field": self.field, "share": self.share}

    def part_read(self, side: str, place: Place) -> float:
        """By files."""
        return place[0] / len(self.files)

    def tokenizer(self):
        """The one that was named, if any."""
        return load_tokenizer(self._tokenizer) if self._tokenizer else None

    def documents(self, side: str, after: Place = START) -> Iterator[Document]:
        """Documents of one side; empty ones are left out."""
        found = (
            document
            for number, file in enumerate(self.files)
            if number >= after[0]
            for document in self._read(file, number)
        )
        return (
            document
            for document in after_place(found, after)
            if document.text.strip() and side_of(document.text, self.share) == side
        )

    def _read(self, file, number):
        opener = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rt", encoding="utf-8") as lines:
            if ".jsonl" not in file.suffixes:
                yield Document(file.name, lines.read(), (number, 0))
                return
            for at, line in enumerate(lines):
                if line.strip():
                    yield Document(
                        f"{file.name}:{at + 1}", self._text(file, at, line), (number, at)
                    )

    def _text(self, file, at, line):
        try:
            text = json.loads(line)[self.field]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{file}, line {at + 1}: expected a JSON object with the field {self.field!r} "
                f"({error!r}); name the field that holds the text"
            ) from error
        if not isinstance(text, str):
            raise ValueError(f"{file}, line {at + 1}: {self.field!r} is {text!r}, expected text")
        return text


def _files(paths):
    found = []
    for path in map(Path, paths):
        inside = path.rglob("*") if path.is_dir() else [path]
        found += [file for file in inside if file.is_file() and file.name.endswith(ENDINGS)]
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
    if not found:
        raise ValueError(f"no text: name files or folders that hold {', '.join(ENDINGS)}")
    return sorted(set(found))
