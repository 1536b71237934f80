"""Studies by name: recipes, which return the spec of one run, and grids, which return all specs.

    paper, paper-tbptt, paper-hyperconnect      the three cases of the paper's fits (section 4, 6)
    paper-extrapolation                         the s = 34 pair (section 4)
    paper-lr-sweep, paper-injection             its appendix
    laptop, laptop-...                          the same studies, small enough for two cores
    smoke                                       a few seconds, to test an engine

A grid holds specs and nothing about where they run. A new grid is one function and one line.
"""

import pandas as pd

from looped.errors import pick
from looped.spec import RunSpec
from looped.studies import laptop, paper
from looped.studies.base import Grid, Recipe

RECIPES: dict[str, Recipe] = {"paper": paper.paper_run, "laptop": laptop.laptop_run}

GRIDS: dict[str, Grid] = {
    "paper": paper.paper,
    "paper-tbptt": paper.paper_tbptt,
    "paper-hyperconnect": paper.paper_hyperconnect,
    "paper-extrapolation": paper.paper_extrapolation,
    "paper-lr-sweep": paper.paper_lr_sweep,
    "paper-injection": paper.paper_injection,
    "laptop": laptop.laptop,
    "laptop-seeds": laptop.laptop_seeds,
    "laptop-tbptt": laptop.laptop_tbptt,
    "laptop-hyperconnect": laptop.laptop_hyperconnect,
    "laptop-lr-sweep": laptop.laptop_lr_sweep,
    "laptop-lr-transfer": laptop.laptop_lr_transfer,
    "laptop-injection": laptop.laptop_injection,
    "smoke": laptop.smoke,
}


def get_grid(name: str) -> list[RunSpec]:
    """The specs of a grid. Raises ConfigError, a ValueError, for an unknown name."""
    return pick("grid", name, GRIDS)()


def cost_table() -> pd.DataFrame:
    """The cost of each grid.

    Returns:
        grid, runs, n_tokens and flops (training, over all runs), what.
    """
    return pd.DataFrame(
        {
            "grid": name,
            "runs": len(specs := grid()),
            "n_tokens": sum(spec.train.n_tokens for spec in specs),
            "flops": sum(spec.flops for spec in specs),
            "what": (grid.__doc__ or "").partition(": ")[2].partition("\n")[0].rstrip("."),
        }
        for name, grid in GRIDS.items()
    )
