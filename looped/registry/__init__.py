"""Sources of runs by name. A new source is one folder in `runs/` and one line below."""

from collections.abc import Callable

import pandas as pd

from looped.registry import published
from looped.registry.laptop import laptop_runs
from looped.registry.paper import paper_runs

__all__ = ["SOURCES", "published"]

SOURCES: dict[str, Callable[[], pd.DataFrame]] = {"paper": paper_runs, "laptop": laptop_runs}
