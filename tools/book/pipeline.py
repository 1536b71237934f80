"""The steps of a build, in order, each saying what it does and how long it took."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tools.book.errors import BookError

app = typer.Typer(
    help="Build the book.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)
console = Console(highlight=False, soft_wrap=True)


@app.callback()
def _group() -> None:
    """Build the book."""


@app.command("build")
def build_command(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Only execute these chapters, and make no pages.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Settings, from book/params.yml.")] = "full",
    clean: Annotated[bool, typer.Option("--clean", help="Remove the built book first.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Chapters at a time; default: cores.")] = None,
) -> None:
    """Execute the chapters and build _build/html, with every warning an error."""
    try:
        build(profile=profile, chapters=chapters, clean=clean, jobs=jobs)
    except BookError as error:
        console.print("error:", style="bold red", end=" ")
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None


def build(
    profile: str = "full",
    chapters: list[str] | None = None,
    clean: bool = False,
    jobs: int | None = None,
    root: Path | str = ".",
) -> Path | None:
    """Execute the chapters of the book and make its pages; returns the first page.

    Args:
        profile: which settings of `book/params.yml` the chapters run with.
        chapters: names of the only chapters to execute, without making pages; None for the book.
        clean: start from nothing.
        jobs: chapters to execute at the same time; None for as many as there are cores.
        root: folder of `_toc.yml`.

    Raises:
        BookError: a source that is missing or wrong, a failed cell, or a warning of Sphinx.
    """
    began = time.perf_counter()
    try:
        # Only here: a core install has neither papermill nor jupyter-book.
        from tools.book import chapters as cells
        from tools.book import pages
    except ModuleNotFoundError as error:
        raise BookError(f"the book needs {error.name}: pip install 'looped[book]'") from error

    root = Path(root).resolve()
    output = root / "_build"
    if clean:
        shutil.rmtree(output, ignore_errors=True)
    console.print(f"Chapters (profile {profile})")
    loaded, static_pages = cells.load(root, profile)
    executed = _execute_all(_select(loaded, chapters), output / "cache" / profile, jobs)
    if chapters:
        return None
    changed = pages.stage(root, output, executed, static_pages)
    if changed or not pages.html_is_done(output):
        console.print("Pages: running jupyter-book")
        pages.make_html(root, output)
    else:
        console.print("Pages: nothing changed")
    first = output / "html" / "index.html"
    console.print(f"The book is {first} ({time.perf_counter() - began:.1f} s)")
    return first


def _select(loaded: list, names: list[str] | None) -> list:
    known = [chapter.name for chapter in loaded]
    if unknown := sorted(set(names or []) - set(known)):
        raise BookError(f"no chapter {', '.join(unknown)}; the chapters are {', '.join(known)}")
    return [chapter for chapter in loaded if not names or chapter.name in names]


def _execute_all(chapters: list, folder: Path, jobs: int | None) -> dict:
    """Executed notebook of each page: from the cache where possible, else executed in parallel."""
    from tools.book.chapters import cached, longest_first

    paths = {chapter.page: folder / f"{chapter.name}.ipynb" for chapter in chapters}
    executed = {c.page: cached(c, paths[c.page]) for c in chapters}
    for page in (page for page, notebook in executed.items() if notebook):
        console.print(f"  {page:<24} unchanged")
    waiting = longest_first([c for c in chapters if executed[c.page] is None], paths)
    executed |= _execute_in_parallel(waiting, paths, jobs or os.cpu_count() or 1)
    return {chapter.page: executed[chapter.page] for chapter in chapters}


def _execute_in_parallel(chapters: list, paths: dict[str, Path], jobs: int) -> dict:
    # Chapters run side by side, and bootstraps in threads: linear algebra shall not start its own.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    executed, failures = {}, []
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(_execute_one, c, paths[c.page], progress) for c in chapters]
            for future in as_completed(futures):
                try:
                    page, notebook = future.result()
                    executed[page] = notebook
                except BookError as error:
                    failures.append(str(error))
    if failures:
        raise BookError("\n".join(failures))
    return executed


def _execute_one(chapter, path: Path, progress: Progress) -> tuple:
    from tools.book.chapters import execute, keep

    task = progress.add_task(f"  {chapter.page}")
    began = time.perf_counter()
    try:
        notebook = execute(chapter)
    finally:
        progress.remove_task(task)
    seconds = time.perf_counter() - began
    keep(chapter, notebook, path, seconds)
    progress.console.print(f"  {chapter.page:<24} executed in {seconds:.1f} s")
    return chapter.page, notebook
