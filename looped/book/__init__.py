"""From text notebooks to the book: parameters, execution, cache, and the HTML pages.

    _toc.yml, book/*.md, book/params.yml      the source, as in the repository
      -> _build/cache/PROFILE/                executed chapters, reused while nothing changed
      -> _build/src/                          the book with executed notebooks and local scripts
      -> _build/html/                         what jupyter-book makes of it

A chapter is executed again when its code cells, its parameters, a file of `looped/` or `runs/`, or
the version of an installed package changed; new prose only takes the kept outputs over.

One chapter can be executed without this package, with settings of one's own, from the root of the
repository:

    jupytext --to ipynb -o - book/joint-law.md | papermill - out.ipynb -p seed 3
"""

from looped.book.errors import BookError
from looped.book.pipeline import app, build

__all__ = ["BookError", "app", "build"]
