"""Iso-depth scaling laws of looped language models: runs, accounting, laws, fits, figures.

    import looped
    runs = looped.load_runs("paper")
    fit = looped.fit(runs, law="joint", split="fitted")
    fit.law.loss(n_once=5e7, n_rec=2e8, r=4, n_tokens=1e10)
    looped.figures.isoflop(runs, looped.isoflop_minima(runs))

    spec = looped.laptop_run(d_model=64, n_recur=4)
    record = looped.train(spec, "work/first")

Data flow: spec (`spec`, `studies`) -> run (`data`, `model`, `training`) -> record (`registry`) with
counts (`accounting`) -> table -> law (`laws`) -> fit (`fitting`) -> shift of φ (`diagnose`) ->
claims (`claims`) -> `tables` and `figures` -> chapters (`book/`). A module imports only from those
on its left. The public names are those of `__init__.pyi`; each is imported on first use.
"""

from typing import Any

import lazy_loader

_attach, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name on first use; the error names the extra that a missing package needs."""
    if name == "__version__":
        from importlib.metadata import version

        return version("looped")
    try:
        return _attach(name)
    except ModuleNotFoundError as error:
        if (error.name or "looped").startswith("looped"):
            raise
        raise ModuleNotFoundError(
            f"looped.{name} needs {error.name}: pip install 'looped[train]'", name=error.name
        ) from None
