"""Chapters: text notebooks with parameters, their execution, and the cache of what they showed.

A chapter's *key* is a digest of all that its outputs depend on. Its executed form is kept under
`_build/cache/PROFILE/`, with the key, so that a book is rebuilt by executing only what changed.
"""

import ast
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import jupytext
import nbformat
import papermill
import yaml
from jupyter_core.utils import ensure_event_loop
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from sphinx_external_toc.parsing import MalformedError, parse_toc_yaml

from looped.paths import PACKAGE, runs_dir
from tools.book.errors import BookError

KERNEL_OPTIONS = [
    "--log-level=CRITICAL",  # else each kernel warns that it is not encrypted
    "--IPKernelApp.exec_lines=__import__('looped.figures').figures.enable_book_renderer()",
]
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
COLOR_CODE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Chapter:
    """One chapter with its parameters set, as code cells without outputs."""

    page: str  # as in _toc.yml: book/joint-law
    notebook: nbformat.NotebookNode
    key: str

    @property
    def name(self) -> str:
        return Path(self.page).name

    @property
    def n_code_cells(self) -> int:
        return sum(cell.cell_type == "code" for cell in self.notebook.cells)


def pages(root: Path) -> list[str]:
    """Every page of the book, in reading order.

    Raises:
        BookError: no readable `_toc.yml`, or a page that it names is missing.
    """
    toc = root / "_toc.yml"
    if not toc.is_file():
        raise BookError(f"no _toc.yml in {root}: start from the root of the repository")
    try:
        names = list(parse_toc_yaml(toc))
    except MalformedError as error:
        raise BookError(f"{toc}: {error}") from error
    missing = [f"{name}.md" for name in names if not (root / f"{name}.md").is_file()]
    if missing:
        raise BookError(f"_toc.yml names pages that do not exist: {', '.join(missing)}")
    return names


def load(root: Path, profile: str) -> tuple[list[Chapter], list[str]]:
    """The chapters with the parameters of `profile`, and the pages that have nothing to execute.

    Raises:
        BookError: an unknown profile, chapter or parameter in `book/params.yml`.
    """
    sources = {page: (root / f"{page}.md").read_text() for page in pages(root)}
    notebooks = {page: text for page, text in sources.items() if "{code-cell}" in text}
    settings = _profile(root / "book/params.yml", profile, [Path(page).name for page in notebooks])
    chapters = [_chapter(page, text, settings) for page, text in notebooks.items()]
    return chapters, [page for page in sources if page not in notebooks]


def execute(chapter: Chapter) -> nbformat.NotebookNode:
    """The chapter with the outputs of its cells, the same bytes for the same results.

    Raises:
        BookError: a cell failed; names it and shows its code and the error.
    """
    try:
        # The working directory stays as it is: changing it would change it for all threads.
        done = papermill.execute_notebook(
            chapter.notebook, None, progress_bar=False, extra_arguments=KERNEL_OPTIONS
        )
    except papermill.PapermillExecutionError as error:
        raise BookError(_failure(chapter, error)) from None
    finally:
        ensure_event_loop().close()  # the loop that the client made for this thread
    return _take_outputs(chapter, done)


def cached(chapter: Chapter, path: Path) -> nbformat.NotebookNode | None:
    """The chapter's present text with the outputs kept at `path`; None if of other code."""
    if not path.is_file():
        return None
    kept = nbformat.read(path, as_version=4)
    return _take_outputs(chapter, kept) if kept.metadata.looped.key == chapter.key else None


def keep(chapter: Chapter, executed: nbformat.NotebookNode, path: Path, seconds: float) -> None:
    """Store an executed chapter, all of it or nothing."""
    kept = nbformat.from_dict(executed)
    kept.metadata = kept.metadata | {"looped": {"key": chapter.key, "seconds": round(seconds, 2)}}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    nbformat.write(kept, partial)
    partial.replace(path)


def longest_first(chapters: list[Chapter], paths: dict[str, Path]) -> list[Chapter]:
    """In the order to start them in, so that none of them starts last and is waited for.

    Chapters that never ran come before those that did; of them, those with the most cells.
    """
    return sorted(
        chapters, key=lambda c: (_seconds_last_time(paths[c.page]), c.n_code_cells), reverse=True
    )


def _seconds_last_time(path: Path) -> float:
    if not path.is_file():
        return float("inf")
    return nbformat.read(path, as_version=4).metadata.looped.seconds


def _profile(path: Path, profile: str, names: list[str]) -> dict[str, dict]:
    """Parameters of each chapter under a profile."""
    profiles = yaml.safe_load(path.read_text())
    if profile not in profiles:
        raise BookError(f"{path} has no profile {profile!r}, but {', '.join(profiles)}")
    settings = profiles[profile] or {}
    if unknown := sorted(set(settings) - set(names)):
        raise BookError(
            f"{path}: profile {profile!r} sets parameters of {', '.join(unknown)}, "
            f"but the chapters are {', '.join(names)}"
        )
    return settings


def _chapter(page: str, text: str, settings: dict[str, dict]) -> Chapter:
    parameters = settings.get(Path(page).name, {})
    notebook = load_notebook_node(jupytext.reads(text, fmt="md:myst"))
    if not notebook.metadata.get("kernelspec", {}).keys() >= {"name", "language"}:
        raise BookError(
            f"{page}.md has code cells, but its front matter names no kernel: begin the page with\n"
            "---\nkernelspec: {name: python3, display_name: Python 3, language: python}\n---"
        )
    known = _parameter_names(notebook)
    if unknown := sorted(set(parameters) - known):
        raise BookError(
            f"book/params.yml sets {', '.join(unknown)} of {page}, which is not in its cell tagged "
            f"`parameters`; that cell has: {', '.join(sorted(known)) or 'nothing'}"
        )
    if parameters:
        notebook = parameterize_notebook(notebook, parameters)
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata.tags.append("hide-input")
    return Chapter(page, _plain(notebook), _key(notebook))


def _parameter_names(notebook: nbformat.NotebookNode) -> set[str]:
    """Names assigned in the cell tagged `parameters`."""
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    statements = [s for cell in cells for s in ast.parse(cell.source).body]
    targets = [t for s in statements if isinstance(s, ast.Assign) for t in s.targets]
    targets += [s.target for s in statements if isinstance(s, ast.AnnAssign)]
    return {t.id for t in targets if isinstance(t, ast.Name)}


def _key(notebook: nbformat.NotebookNode) -> str:
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    kernel = notebook.metadata.kernelspec.name
    return hashlib.sha256(json.dumps([code, kernel, _surroundings()]).encode()).hexdigest()


@cache
def _surroundings() -> str:
    """Digest of what every chapter depends on: package, book tool, runs, installed versions."""
    digest = hashlib.sha256()
    for folder in (PACKAGE, Path(__file__).parent, runs_dir()):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(folder)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    versions = sorted(f"{d.name}=={d.version}" for d in distributions())
    digest.update("\n".join(versions).encode())
    return digest.hexdigest()


def _take_outputs(chapter: Chapter, executed: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The chapter's present text with the outputs of an execution of the same code cells."""
    notebook = nbformat.from_dict(chapter.notebook)
    ours, theirs = ([c for c in nb.cells if c.cell_type == "code"] for nb in (notebook, executed))
    for cell, source in zip(ours, theirs, strict=True):
        cell.outputs = [_stable(output) for output in source.outputs]
        cell.execution_count = source.execution_count
    notebook.metadata.language_info = executed.metadata.language_info  # for the colours of code
    return notebook


def _stable(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The output without memory addresses, which differ from one execution to the next."""
    if "text" in output:
        output.text = ADDRESS.sub("", output.text)
    if "text/plain" in output.get("data", {}):
        output.data["text/plain"] = ADDRESS.sub("", output.data["text/plain"])
    return output


def _plain(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what papermill notes for itself and without random cell ids."""
    notebook.metadata.pop("papermill", None)
    for cell in notebook.cells:
        cell.pop("id", None)
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    notebook.nbformat, notebook.nbformat_minor = 4, 4  # 4.5 demands ids
    return notebook


def _failure(chapter: Chapter, error: papermill.PapermillExecutionError) -> str:
    code = "\n".join(f"    {line}" for line in error.source.splitlines())
    trace = COLOR_CODE.sub("", "\n".join(error.traceback)).splitlines()[-12:]
    where = "\n".join(f"    {line[:240]}" for line in trace)
    summary = str(error.evalue).partition("\n")[0][:240]
    return (
        f"a cell of {chapter.page}.md failed: {error.ename}: {summary}\n"
        f"  the cell:\n{code}\n  the end of its traceback:\n{where}"
    )
