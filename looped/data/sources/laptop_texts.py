"""Prose extracted from the packages' files, without markup, keys and editorial remarks.

heading  topic of a text; every passage of the text begins with it
lines    the text, with one statement or paragraph on each line
"""

import bz2
import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from looped.extras import need

_EDITORIAL = re.compile(
    r"<--.*?-->|<.*?>|\[?1913 Webster\]?|\{\d*\}?|[{}]"
    r"|\[?(?:WordNet 1\.5)?[ +]*PJC\]|\[?WordNet 1\.5\]|\(\s*\)|\[\s*\]",
    re.DOTALL,
)
_UNNAMED = {"ee": "European Union", "xx": "World"}  # reports that do not name a country
_SPACE_BEFORE = re.compile(r" +([,.;:”)])")

MAX_HEADWORD = 40  # characters; the package's longer headwords are whole articles
BOILERPLATE = 4  # a line in at least this number of reports is left out
PASSAGE = 600  # characters: about one row of the laptop recipe, 256 tokens


class Text(NamedTuple):
    """A document: its heading and its lines."""

    heading: str
    lines: list[str]
    group: str = ""  # texts of a group are all in one subset; empty: no group

    @property
    def whole(self) -> str:
        """Heading and lines as one text."""
        return f"{self.heading}: " + "\n".join(self.lines)

    def passages(self, limit: int = PASSAGE) -> Iterator[str]:
        """The text in passages of about `limit` characters, split at lines and sentences."""
        held: list[str] = []
        for piece in (piece for line in self.lines for piece in _pieces(line, limit)):
            if held and sum(map(len, held)) + len(piece) > limit:
                yield f"{self.heading}: " + "\n".join(held)
                held = []
            held.append(piece)
        if held:
            yield f"{self.heading}: " + "\n".join(held)


def _pieces(line: str, limit: int) -> Iterator[str]:
    while len(line) > limit:
        ends = [end.end() for end in re.finditer(r"[.;:,!?]\)? ", line[:limit])]
        stops = [end for end in ends if line[end - 2] in ".;!?)"]
        cut = next(
            (group[-1] for group in (stops, ends) if group and group[-1] > limit // 3), limit
        )
        yield line[:cut].rstrip()
        line = line[cut:].lstrip()
    if line.strip():
        yield line


def dictionary_entries(files: list[Path]) -> Iterator[Text]:
    """Entries of GCIDE: definitions, quotations, phrases and synonyms.

    Etymologies and parts of speech are left out: the package often has them at the wrong entry.
    """
    for file in files:
        for word, entry in json.loads(file.read_text(encoding="utf-8")).items():
            lines = []
            for sense in entry["pos"]:
                for definition in sense["definitions"]:
                    lines += [definition["text"], *(f"“{e}”" for e in definition["examples"])]
                lines += [sense.get("cs", ""), sense.get("syn", "")]
            lines = [line for line in map(_entry_line, lines) if line]
            if lines and len(word) <= MAX_HEADWORD:
                yield Text(word[:1].upper() + word[1:], lines)


def _entry_line(text: str) -> str:
    """A line without editorial remarks and marks; empty if nothing else remains."""
    text = _SPACE_BEFORE.sub(r"\1", " ".join(_EDITORIAL.sub(" ", text).split()))
    return text if text.strip("“”,;:.- ") else ""


def country_reports(files: list[Path]) -> Iterator[Text]:
    """Sections of the World Factbook, such as the geography or the economy of a country.

    Lines that several countries share are left out: they would be in training and in validation.
    """
    texts = [text for file in files for text in _sections(file)]
    shared = Counter(line for text in texts for line in set(text.lines))
    for text in texts:
        if lines := [line for line in text.lines if shared[line] < BOILERPLATE]:
            yield text._replace(lines=lines)


def _sections(file: Path) -> Iterator[Text]:
    report = json.loads(file.read_text(encoding="utf-8"))
    country = _UNNAMED.get(file.stem) or _country(report)
    for section, fields in report.items():
        lines = [line for field, value in fields.items() for line in _field_lines(field, value)]
        yield Text(f"{country}, {section}", lines, country)


def _country(report: dict) -> str:
    names = report["Government"]["Country name"]
    for form in ("conventional short form", "conventional long form"):
        name = _plain(names.get(form, {}).get("text", ""))
        if name and name != "none":
            return re.split(r"[;(]", name)[0].strip()
    raise ValueError(f"a report without the name of its country: got {names}")


def _field_lines(field: str, value: dict | str) -> Iterator[str]:
    if isinstance(value, str):
        text = _plain(value)
        if text:
            yield text if field in ("text", "note") else f"{field.strip()}: {text}"
        return
    text = _plain(value.get("text", "")) if isinstance(value.get("text", ""), str) else ""
    if text:
        yield f"{field.strip()}: {text}"
    for inner, deeper in value.items():
        if inner == "text":
            continue
        for line in _field_lines(inner, deeper):
            yield line if inner == "note" or line.startswith(field) else f"{field.strip()}, {line}"


def _plain(text: str) -> str:
    text = re.sub(r"(?:<br\s*/?>|</p>)+", " ", text)
    text = html.unescape(re.sub(r"</?[a-zA-Z][^>]*>", "", text))
    return " ".join(text.split())


def encyclopaedia_articles(file: Path) -> Iterator[Text]:
    """Articles of a Wikipedia dump: their paragraphs of prose."""
    wiki = need("gensim.corpora.wikicorpus", "laptop")
    with bz2.open(file) as dump:
        for title, source, _page in wiki.extract_pages(dump, ("0",)):
            if source and not source.lstrip().lower().startswith("#redirect"):
                lines = [_paragraph(line) for line in wiki.filter_wiki(source).splitlines()]
                if lines := [line for line in lines if line]:
                    yield Text(title, lines)


def _paragraph(line: str) -> str:
    """A paragraph without the remains of stripped templates; empty if it is not prose."""
    line = re.sub(r"'{2,}", "", html.unescape(line))
    line = re.sub(r"\(\s*[,;]\s*", "(", line)
    line = re.sub(r"\s*\(\s*\)|\s*\[\s*\]", "", line)
    line = _SPACE_BEFORE.sub(r"\1", " ".join(line.split()))
    prose = len(line) >= 120 and line[-1] in '.!?"”)' and line[0] not in "*#:;|!{}<=&"
    return line if prose else ""
