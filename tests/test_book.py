"""The pipeline of the book, on a book of three small pages with the real settings and scripts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools.book import BookError, build

pytest.importorskip("jupyter_book", reason="the book needs looped[book]")
from tools.book import chapters, pages

ROOT = Path(__file__).parents[1]
FRONT = "---\nkernelspec: {name: python3, display_name: Python 3, language: python}\n---\n\n"
INDEX = "# Start\n\nThere are {glue:text}`curve.md::n_points:s` points: {numref}`tbl-curve`.\n"
CURVE = (
    FRONT
    + """# A curve

```{code-cell} ipython3
:tags: [parameters]

n_points = 5  # points on the curve
```

```{code-cell} ipython3
import altair as alt
import pandas as pd
import looped.figures
from looped.figures import theme

runs = pd.DataFrame({"n_params": [10.0**k for k in range(n_points)], "val_loss": 2.5})
looped.figures.glue(n_points=n_points, loss=runs["val_loss"].mean())
print(object())
object()
```

By {cite:t}`hoffmann2022training`, the loss is {glue:text}`loss:.2f` (nats/token).

$$ L = E $$ (eq-law)

```{code-cell} ipython3
---
mystnb:
  figure:
    name: fig-curve
    caption: The curve.
---
chart = alt.Chart(runs).mark_line().encode(
    theme.axis(alt.X, "n_params", log=True), theme.axis(alt.Y, "val_loss"))
theme.finish(chart, "curve", "A line.", runs)
```

```{code-cell} ipython3
looped.figures.table(runs, name="tbl-curve", caption=f"The {n_points} points.")
```

See {numref}`fig-curve`, {numref}`tbl-curve` and {eq}`eq-law`.
"""
)
FAILING = FRONT + "# Fails\n\n```{code-cell} ipython3\nnumerator = 1\nnumerator / 0\n```\n"


def make_book(root: Path, **more_pages: str) -> Path:
    """A book with the repository's settings, scripts and references, but pages of its own."""
    (root / "book").mkdir()
    shutil.copy(ROOT / "_config.yml", root)
    shutil.copy(ROOT / "book/references.bib", root / "book")
    shutil.copytree(ROOT / "book/_static", root / "book/_static")
    sources = {
        "index": INDEX,
        "curve": CURVE,
        "bibliography": "# Literature\n\n```{bibliography}\n```\n",
    }
    sources |= more_pages
    for name, text in sources.items():
        (root / f"book/{name}.md").write_text(text)
    names = [f"  - file: book/{name}\n" for name in sources if name != "index"]
    (root / "_toc.yml").write_text(
        f"format: jb-book\nroot: book/index\nchapters:\n{''.join(names)}"
    )
    (root / "book/params.yml").write_text("full: {}\nquick:\n  curve: {n_points: 3}\n")
    return root


@pytest.fixture
def root(tmp_path) -> Path:
    return make_book(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A book after one build; tests that change it make a copy."""
    root = make_book(tmp_path_factory.mktemp("book"))
    build(root=root)
    return root


@pytest.fixture
def copy(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def page(root: Path, name: str) -> str:
    return (root / f"_build/html/book/{name}.html").read_text()


def load_curve(root: Path, profile: str = "full") -> chapters.Chapter:
    loaded, _ = chapters.load(root, profile)
    return next(chapter for chapter in loaded if chapter.name == "curve")


def edit(root: Path, name: str, old: str, new: str) -> None:
    path = root / f"book/{name}.md"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.slow
def test_every_page_comes_out(built):
    for name in ("index", "curve", "bibliography"):
        assert page(built, name)
    assert (built / "_build/html/index.html").is_file()


@pytest.mark.slow
def test_pages_show_results_numbers_and_references(built):
    curve = page(built, "curve")
    assert '<span class="pasted-text">2.50</span>' in curve
    assert re.search(r"<caption>.*?Table 1.*?The 5 points\.", curve, re.DOTALL)
    assert re.search(r'class="book-chart".*?<figcaption>.*?Fig\. 1', curve, re.DOTALL)
    assert 'download="tbl-curve.csv"' in curve
    assert 'download="curve.csv"' in curve
    assert "Hoffmann" in page(built, "bibliography")
    assert '<span class="pasted-text">5</span>' in page(built, "index")


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(built):
    remote = re.compile(
        r"""<(?:script|img|iframe)\b[^>]*\bsrc=["'](?:https?:)?//"""
        r"""|<link\b[^>]*\bhref=["'](?:https?:)?//|@import\s+(?:url\()?["']?(?:https?:)?//"""
    )
    for path in built.glob("_build/html/**/*.html"):
        assert not remote.search(path.read_text()), path
    in_styles = re.compile(r"""url\(\s*["']?(?:https?:)?//|@import\s+["'](?:https?:)?//""")
    for path in built.glob("_build/html/**/*.css"):
        assert not in_styles.search(path.read_text()), path


@pytest.mark.slow
def test_scripts_of_charts_and_mathematics_come_with_the_book(built):
    for script in ("vega-bundle.js", "charts.js", pages.MATHJAX):
        assert re.search(rf'<script [^>]*src="\.\./_static/{script}', page(built, "curve"))
        assert (built / "_build/html/_static" / script).stat().st_size > 0


@pytest.mark.slow
def test_nothing_is_done_twice(copy, capsys):
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("_build/**/*")}
    build(root=copy)
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("_build/**/*")} == before
    assert "nothing changed" in capsys.readouterr().out


@pytest.mark.slow
def test_new_numbers_reach_the_pages_that_show_them(copy):
    edit(copy, "curve", "n_points = 5", "n_points = 4")
    build(root=copy)
    assert '<span class="pasted-text">4</span>' in page(copy, "index")


@pytest.mark.slow
def test_warnings_stop_the_build_each_time(root):
    """Also the second time, when no page changed and Sphinx would be silent about old ones."""
    (root / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    (root / "book/index.md").write_text("# Start\n\nSee {doc}`nowhere`.\n")
    (root / "book/params.yml").write_text("full: {}\n")
    for _ in range(2):
        with pytest.raises(BookError, match="nowhere"):
            build(root=root)


def test_new_prose_keeps_the_outputs(copy):
    before = load_curve(copy)
    edit(copy, "curve", "# A curve", "# A line")
    after = load_curve(copy)
    assert after.key == before.key
    kept = chapters.cached(after, copy / "_build/cache/full/curve.ipynb")
    assert kept.cells[0].source == "# A line"
    assert kept.cells[-2].outputs


def test_new_code_or_parameters_are_executed(copy):
    before = load_curve(copy).key
    assert load_curve(copy, "quick").key != before
    edit(copy, "curve", '"val_loss": 2.5', '"val_loss": 2.6')
    after = load_curve(copy)
    assert after.key != before
    assert chapters.cached(after, copy / "_build/cache/full/curve.ipynb") is None


def test_new_data_are_executed(root, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    runs.mkdir()
    monkeypatch.setattr(chapters, "runs_dir", lambda: runs)
    keys = []
    for loss in ("2.5", "2.6"):
        (runs / "runs.csv").write_text(f"val_loss\n{loss}\n")
        chapters._surroundings.cache_clear()
        keys.append(load_curve(root).key)
    chapters._surroundings.cache_clear()
    assert keys[0] != keys[1]


@pytest.mark.slow
def test_two_executions_give_the_same_bytes(built):
    kept = (built / "_build/src/book/curve.ipynb").read_text()
    again = nbformat.writes(chapters.execute(load_curve(built)))
    assert again == kept
    assert " at 0x" not in again


def test_longest_chapters_start_first(tmp_path):
    """Those that never ran, the one with the most cells first; then by the time they took."""
    root = make_book(tmp_path, short=CURVE, long=CURVE, few_cells=FAILING)
    loaded, _ = chapters.load(root, "full")
    paths = {chapter.page: root / f"{chapter.name}.ipynb" for chapter in loaded}
    seconds = {"short": 1.0, "long": 9.0}
    for chapter in loaded:
        if chapter.name in seconds:
            path = paths[chapter.page]
            chapters.keep(chapter, chapter.notebook, path, seconds[chapter.name])
    order = [chapter.name for chapter in chapters.longest_first(loaded[::-1], paths)]
    assert order == ["curve", "few_cells", "long", "short"]


def test_profile_sets_parameters(root):
    notebook = load_curve(root, "quick").notebook
    (injected,) = (c for c in notebook.cells if "injected-parameters" in c.metadata.get("tags", []))
    assert "n_points = 3" in injected.source
    assert "hide-input" in injected.metadata.tags


def test_failing_cell_is_shown_and_leaves_nothing(tmp_path):
    root = make_book(tmp_path, fails=FAILING)
    with pytest.raises(BookError) as caught:
        build(root=root, chapters=["fails"])
    message = str(caught.value)
    assert "a cell of book/fails.md failed: ZeroDivisionError" in message
    assert "    numerator / 0" in message
    assert not [path for path in root.rglob("_build/**/*") if path.is_file()]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("quick: {}\n", "no profile 'full', but quick"),
        ("full:\n  curv: {n_points: 3}\n", "sets parameters of curv, but the chapters are curve"),
        ("full:\n  curve: {points: 3}\n", "sets points of book/curve, .* that cell has: n_points"),
    ],
)
def test_wrong_settings_are_refused(root, settings, message):
    (root / "book/params.yml").write_text(settings)
    with pytest.raises(BookError, match=message):
        build(root=root)


def test_chapter_without_a_kernel_is_refused(root):
    edit(root, "curve", FRONT, "")
    with pytest.raises(BookError, match=r"book/curve\.md has code cells, but .* no kernel"):
        build(root=root)


def test_missing_page_is_named(root):
    (root / "book/curve.md").unlink()
    with pytest.raises(BookError, match=r"pages that do not exist: book/curve\.md"):
        build(root=root)


def test_unknown_chapter_is_named(root):
    with pytest.raises(BookError, match="no chapter curv; the chapters are curve"):
        build(root=root, chapters=["curv"])


def test_build_starts_at_the_root_of_the_book(tmp_path):
    with pytest.raises(BookError, match=r"no _toc\.yml in .*: start from the root"):
        build(root=tmp_path)


@pytest.mark.slow
def test_reader_executes_one_chapter_with_papermill(root):
    """The command of the documentation of tools.book, from the root of the repository."""
    command = "jupytext --to ipynb -o - book/curve.md | papermill - out.ipynb -p n_points 7"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path}
    subprocess.run(command, shell=True, cwd=root, env=env, check=True, capture_output=True)
    out = nbformat.read(root / "out.ipynb", as_version=4)
    (table,) = (o for c in out.cells[-2:] if c.cell_type == "code" for o in c.outputs)
    assert "The 7 points." in table["data"]["text/html"]


@pytest.mark.parametrize("profile", ["full", "quick"])
def test_the_book_of_this_repository_can_be_loaded(profile):
    """Every page of _toc.yml exists, and book/params.yml names parameters that chapters have."""
    loaded, _ = chapters.load(ROOT, profile)
    for chapter in loaded:
        assert chapters._parameter_names(chapter.notebook), f"{chapter.page} has no parameters"
