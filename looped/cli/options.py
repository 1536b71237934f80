"""What the commands share: their options and reading the runs."""

from typing import Annotated

import typer

import looped
from looped.fitting import SOLVERS
from looped.fitting.bootstrap import METHODS
from looped.variants import VARIANTS


def _one_of(names) -> str:
    return ", ".join(names)


Runs = Annotated[str, typer.Option(help=f"Source: {_one_of(looped.SOURCES)}, or a CSV file.")]
Case = Annotated[str, typer.Option(help="Study to read; all for every run of the source.")]
Recur = Annotated[
    list[int] | None, typer.Option("--n-recur", help="Keep these r of the case (repeatable).")
]
BudgetMin = Annotated[float | None, typer.Option(help="Keep budgets from here, FLOPs.")]
BudgetMax = Annotated[float | None, typer.Option(help="Keep budgets up to here, FLOPs.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="Column of the CSV file: OURS=THEIRS, as val_loss=loss."),
]
Law = Annotated[str, typer.Option(help=f"One of {_one_of(looped.LAWS)}.")]
Split = Annotated[str, typer.Option(help=f"What recurs: one of {_one_of(looped.SPLITS)}.")]
Starts = Annotated[int, typer.Option(help="Starts of the minimisation.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the starts and of the resampling.")]
Delta = Annotated[float, typer.Option(help="Residual beyond which the Huber loss is linear.")]
Fix = Annotated[
    list[str] | None, typer.Option("--fix", help="Hold a parameter: NAME=VALUE, as phi=0.")
]
Solver = Annotated[str, typer.Option(help=f"One of {_one_of(SOLVERS)}.")]
Resamples = Annotated[int | None, typer.Option("--bootstrap", help="Resamples of an interval.")]
Method = Annotated[str, typer.Option("--bootstrap-method", help=f"One of {_one_of(METHODS)}.")]
Level = Annotated[float, typer.Option(help="Of the interval.")]
Variant = Annotated[str | None, typer.Option(help=f"One of {_one_of(VARIANTS)}.")]
Bptt = Annotated[int | None, typer.Option(help="Last recurrences with gradient; default: all.")]
ResampleStarts = Annotated[int, typer.Option(help="Starts of each resample.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV and nothing else.")]


def whole(name: str, value: float | None) -> int | None:
    """A count that may be written as 2e6. Raises ValueError for any other number."""
    if value is None:
        return None
    if not (1 <= value < float("inf") and value == int(value)):
        raise ValueError(f"{name}: got {value:g}, expected a positive whole number, as 2e6")
    return int(value)


def pairs(options: list[str] | None, name: str) -> dict[str, str]:
    """Repeated options of the form LEFT=RIGHT. Raises ValueError for any other form."""
    found = {}
    for option in options or ():
        left, equals, right = option.partition("=")
        if not (left and equals and right):
            raise ValueError(f"{name}: got {option!r}, expected LEFT=RIGHT")
        found[left.strip()] = right.strip()
    return found


def held(options: list[str] | None) -> dict[str, float]:
    """The parameters that --fix holds. Raises ValueError for a value that is no number."""
    values = pairs(options, "--fix")
    try:
        return {name: float(value) for name, value in values.items()}
    except ValueError:
        raise ValueError(f"--fix: got {options}, expected NAME=NUMBER, as phi=0") from None


def read_runs(runs, case, n_recur, budget_min, budget_max, mapping, anchor=True):
    """The runs that the options select."""
    return looped.load_runs(
        runs,
        case=None if case == "all" else case,
        n_recur=n_recur or None,
        budget_min=budget_min,
        budget_max=budget_max,
        anchor=anchor,
        columns=pairs(mapping, "--map"),
    )
