"""Options that several commands share, as dataclasses, and their values."""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_type_hints

import pandas as pd
import typer

import looped
from looped.cli import show
from looped.fitting import SOLVERS
from looped.fitting.bootstrap import METHODS
from looped.variants import VARIANTS


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its dataclass parameters as options.

    Typer sees one option per field; when the command runs, the dataclasses are built from them.
    """
    hints = get_type_hints(command, include_extras=True)
    options: list[Parameter] = []
    groups: dict[str, type] = {}
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint) and isinstance(hint, type):
            groups[parameter.name] = hint
            options += _options(hint)
        else:
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint))

    @wraps(command)
    def run(**given: Any) -> None:
        built = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **built)

    run.__signature__ = signature(command).replace(parameters=options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options(kind: type) -> list[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]


def _one_of(names: Iterable[str]) -> str:
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
    typer.Option("--map", help="Column of the CSV file: NAME=COLUMN, as val_loss=loss."),
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


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the runs come from."""

    runs: Runs = "paper"
    mapping: Map = None

    def load(self, case: str, n_recur: list[int] | None = None, **keep: Any) -> pd.DataFrame:
        """The runs of a case ("all": of every case); `keep` as in `looped.load_runs`."""
        return looped.load_runs(
            self.runs,
            case=None if case == "all" else case,
            n_recur=n_recur or None,
            columns=pairs(self.mapping, "--map"),
            **keep,
        )


@dataclass(frozen=True, kw_only=True)
class OneCase(Source):
    """The runs of one case, at some budgets."""

    case: Case = "baseline"
    budget_min: BudgetMin = None
    budget_max: BudgetMax = None

    def selected(self, n_recur: list[int] | None = None, anchor: bool = True) -> pd.DataFrame:
        """These runs."""
        budgets = {"budget_min": self.budget_min, "budget_max": self.budget_max}
        return self.load(self.case, n_recur, anchor=anchor, **budgets)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How the joint law is fitted."""

    split: Split = "stated"
    starts: Starts = 500
    fix: Fix = None
    seed: Seed = 0

    def arguments(self) -> dict[str, Any]:
        """Arguments of `looped.fit`."""
        return {
            "split": self.split,
            "starts": self.starts,
            "fix": held(self.fix),
            "seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class Output:
    """The form in which rows are printed."""

    as_json: Json = False
    as_csv: Csv = False

    def rows(self, frame: pd.DataFrame, title: str, columns: list[str] | None = None) -> None:
        """Print rows: as a table of `columns` for a reader, or all of them as JSON or CSV."""
        if self.as_json and self.as_csv:
            raise ValueError("--json and --csv exclude each other; give one of them")
        if self.as_json:
            show.print_json(show.records(frame))
        elif self.as_csv:
            print(frame.to_csv(index=False), end="")
        else:
            show.print_table(frame[columns] if columns else frame, title)


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
