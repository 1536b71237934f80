"""Results on the terminal: tables for a reader, JSON and CSV in full precision for programs."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from looped.fitting.result import Bootstrap, FitResult

MISSING = "–"
EXACT = 1e12  # whole numbers below it are shown in full
FILE_WIDTH = 120  # of a table that goes to a file or a pipe


def show_rows(
    frame: pd.DataFrame,
    title: str,
    *,
    as_json: bool,
    as_csv: bool,
    columns: list[str] | None = None,
) -> None:
    """Print the rows of a result; `columns` are those a reader sees, JSON and CSV hold all."""
    if as_json and as_csv:
        raise ValueError("--json and --csv exclude each other; give one of them")
    if as_json:
        print_json(records(frame))
    elif as_csv:
        print(frame.to_csv(index=False), end="")
    else:
        print_table(frame[columns] if columns else frame, title)


def print_json(value) -> None:
    """Print a value as JSON; a number that is none has no place in it."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def records(frame: pd.DataFrame) -> list[dict]:
    """Rows as dictionaries of plain values; a missing value is None."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def print_table(frame: pd.DataFrame, title: str) -> None:
    """Print rows as a table, numbers to the right."""
    _stdout().print(as_table(frame, title))


def as_table(frame: pd.DataFrame, title: str) -> Table:
    """Rows as a table, numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for name in frame:
        numeric = pd.api.types.is_numeric_dtype(frame[name])
        table.add_column(name, justify="right" if numeric else "left", no_wrap=numeric)
    for row in records(frame):
        table.add_row(*map(text, row.values()))
    return table


def text(value) -> str:
    """A value for a reader: counts in full, other numbers to five digits."""
    if value is None or value == "":
        return MISSING
    if not isinstance(value, int | float):
        return str(value)
    if math.isfinite(value) and (value == int(value) or abs(value) >= 1e5) and abs(value) < EXACT:
        return f"{value:,.0f}"
    return f"{value:.5g}"


def print_fit(fit: FitResult) -> None:
    """Print a fit: its parameters, how well they describe the runs, how surely they were found."""
    named = f"{fit.law.name} law" + (f", split {fit.split}" if fit.split else "")
    print_table(_parameters(fit), f"{named}: {fit.form.formula}")
    origin = f"cases {', '.join(fit.cases) or MISSING}; sources {', '.join(fit.sources) or MISSING}"
    lines = [
        f"{fit.n_runs} runs ({origin})",
        f"R² {fit.r2:.5f}, RMSE {fit.rmse:.5f} and largest residual {fit.max_abs_residual:.5f} "
        f"nats, Huber sum {fit.objective:.4e} (δ = {fit.delta:g})",
        f"{fit.starts_at_optimum:.1%} of {fit.starts} starts at the optimum "
        f"(solver {fit.solver}, seed {fit.seed}); status {fit.status}",
    ]
    if fit.interval:
        lines.append(_interval_source(fit.interval))
    for line in lines:
        _stdout().print(line, markup=False)


def _parameters(fit) -> pd.DataFrame:
    rows = [{"parameter": name, "value": value} for name, value in fit.params.items()]
    for row in rows:
        if row["parameter"] in fit.fixed:
            row["interval"] = "held"
        elif fit.interval:
            lo, hi = fit.interval.interval(row["parameter"])
            row["interval"] = f"{lo:.5g} to {hi:.5g}"
    return pd.DataFrame(rows)


def _interval_source(interval: Bootstrap) -> str:
    unit = "(budget, r) cells" if interval.method == "block" else "runs"
    line = (
        f"{interval.level:.0%} percentile interval, {interval.method} bootstrap of "
        f"{interval.n_units} {unit}: {interval.resamples} resamples of {interval.starts} starts, "
        f"seed {interval.seed}"
    )
    if "phi" in interval.draws:
        touched = interval.touched(0), interval.touched(1)
        line += f"; φ touched 0 in {touched[0]} and 1 in {touched[1]}"
    return line


@contextmanager
def progress(what: str, unit: str = "") -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where someone watches, moved by (done, total); total 0 means unknown."""
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn(f"{{task.completed:,.0f}} {unit}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console, quiet = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def _stdout() -> Console:
    width = None if sys.stdout.isatty() else FILE_WIDTH
    return Console(highlight=False, soft_wrap=True, width=width)
