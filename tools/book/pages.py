"""Pages: the executed book as a folder for jupyter-book, and the HTML that it makes of it.

The folder `_build/src` holds, beside the pages, all scripts that they need, so that the book can be
read with no network. It is written only where bytes differ; HTML is made afresh whenever any did,
since Sphinx does not know which page shows the numbers of another, and since a second run over
unchanged pages would not repeat the warnings of the first.
"""

import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import nbformat

from looped.figures.render import VEGA_LITE
from tools.book.chapters import COLOR_CODE, pages
from tools.book.errors import BookError

STATIC = Path("book/_static")
MATHJAX = "tex-svg-full.js"


def stage(root: Path, build: Path, executed: dict, static_pages: list[str]) -> bool:
    """Write the folder for jupyter-book; True if any of its files changed.

    Args:
        executed: page name -> executed notebook.
        static_pages: names of the pages without code.
    """
    files = {f"{page}.ipynb": nbformat.writes(nb).encode() for page, nb in executed.items()}
    copied = [f"{page}.md" for page in static_pages] + ["_config.yml", "_toc.yml"]
    copied += [str(path.relative_to(root)) for path in root.glob("book/*.bib")]
    copied += [str(path.relative_to(root)) for path in (root / STATIC).rglob("*") if path.is_file()]
    files |= {name: (root / name).read_bytes() for name in copied}
    files[f"{STATIC}/{MATHJAX}"] = _mathjax()
    source = build / "src"
    files[f"{STATIC}/vega-bundle.js"] = _vega_bundle(source / STATIC / "vega-bundle.js")
    return _synchronise(source, files)


def make_html(root: Path, build: Path) -> None:
    """Make all pages afresh, with every warning an error.

    Raises:
        BookError: a warning or an error of Sphinx, or a page that did not come out.
    """
    done = build / "html.done"
    done.unlink(missing_ok=True)
    shutil.rmtree(build / "html", ignore_errors=True)
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build"]
    command += [str(build / "src"), "--path-output", str(build.parent), "--all", "-q"]
    command += ["-W", "-n", "--keep-going"]
    run = subprocess.run(command, cwd=root, text=True, capture_output=True)
    if run.returncode:
        complaints = COLOR_CODE.sub("", run.stderr or run.stdout).replace(f"{build / 'src'}/", "  ")
        raise BookError(f"jupyter-book found fault with the pages:\n{complaints.strip()}")
    missing = [page for page in pages(root) if not (build / "html" / f"{page}.html").is_file()]
    if missing:
        raise BookError(f"jupyter-book made no page of {', '.join(missing)}")
    done.touch()


def html_is_done(build: Path) -> bool:
    """Whether the last run of jupyter-book went through to its end."""
    return (build / "html.done").is_file()


def _synchronise(folder: Path, files: dict[str, bytes]) -> bool:
    """Make the folder hold these files and no others; True if anything had to be changed."""
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    stale = present - files.keys()
    changed = [
        name
        for name, content in files.items()
        if name not in present or (folder / name).read_bytes() != content
    ]
    for name in stale:
        (folder / name).unlink()
    for name in changed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(files[name])
    return bool(stale or changed)


def _vega_bundle(path: Path) -> bytes:
    """Vega, Vega-Lite and vega-embed in one script; that at `path` if it is of these versions."""
    import vl_convert

    head = f"// Vega-Lite {VEGA_LITE}, from vl-convert {version('vl-convert-python')}\n".encode()
    if path.is_file() and (present := path.read_bytes()).startswith(head):
        return present
    bundle = vl_convert.javascript_bundle(vl_version=VEGA_LITE)
    # In a function of its own: the names of the bundle collide with those of the theme's scripts.
    return head + b"(() => {" + bundle.encode() + b"})();\n"


def _mathjax() -> bytes:
    package = find_spec("mathjax").submodule_search_locations[0]
    return (Path(package) / "static/mathjax/es5" / MATHJAX).read_bytes()
