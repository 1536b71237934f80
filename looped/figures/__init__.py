"""Charts and tables: one function a figure, one theme; no fit and no file access.

    looped.figures.isoflop(runs, looped.isoflop_minima(runs))

A figure function returns an Altair chart, which the reader's own Altair settings display. In
JupyterLab, `alt.renderers.enable("mimetype")` displays charts without a network. Every figure
raises ValueError for a table without rows, or without a column or value that it draws. The public
names are those of `__init__.pyi`; each is imported on first use, and Altair with the first figure.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
