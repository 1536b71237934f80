"""Charts and tables of the book: one function a figure, one look, no fit and no file access."""

from looped.figures import render
from looped.figures.tables import glue, table

__all__ = ["glue", "table"]

render.enable()
