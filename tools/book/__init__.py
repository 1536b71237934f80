"""From text notebooks to the book: parameters, execution, cache, and the HTML pages.

    _toc.yml, book/*.md, book/params.yml      the source, as in the repository
      -> _build/cache/PROFILE/                executed chapters, reused while nothing changed
      -> _build/src/                          the book with executed notebooks and local scripts
      -> _build/html/                         what jupyter-book makes of it

A chapter is executed again when its code cells, its parameters, a file of `looped/`,
`tools/book/` or `runs/`, or the version of an installed package changed. When only its prose
changed, it takes over the stored outputs.

One chapter can be executed without this package, with other parameters, from the root of the
repository:

    jupytext --to ipynb -o - book/joint-law.md | papermill - out.ipynb -p seed 3
"""

from tools.book.errors import BookError
from tools.book.pipeline import app, build

__all__ = ["BookError", "app", "build"]
