"""The table of runs: its columns, their units, and the checks when it is read.

    case             name of the study that the run belongs to; `baseline` has the r = 1 anchor
    n_recur          r, number of times that the loop block runs
    d_model          width of the model
    variant          name of the architecture; `looped.accounting` counts those of `looped.VARIANTS`
    bptt             number of last recurrences with gradient; missing = all
    budget           nominal training FLOPs
    n_params_once    parameters that run once per token, split `stated`
    n_params_rec     parameters that run r times per token, split `stated`
    n_params         their sum
    n_tokens         training tokens D
    flops_per_token  training FLOPs per token
    n_prelude, n_loop, n_coda   stored layers of each section of the stack
    vocab_size       rows of the embedding
    seq_len          tokens of context in training
    val_loss         validation loss, nats per token
    val_loss_se      one standard error of val_loss (the source's README says of what)
    seed             random seed of the run
    run_id           hash of the spec of a run that `looped.train` trained; empty for other runs
    source           published, digitised, measured or simulated
    flag             a reason to read the run with care; empty = no known problem

A missing value stays missing and is never 0. Each law decides which columns its fit needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from looped.errors import RecordError
from looped.registry.rules import NUMBER, Violation, line, numbers, refuse
from looped.spec import BUDGET_TOLERANCE

CORRECT = "Correct the value, or leave it empty if it is not known"


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a column of the table may hold. Only a required column has no missing values."""

    kind: Literal["number", "whole", "text"] = "number"
    above: float | None = None
    least: float | None = None
    below: float | None = None
    one_of: tuple[str, ...] = ()
    default: str | None = None
    required: bool = False
    remedy: str = CORRECT


SIZE = Column(kind="whole", above=0)
LAYERS = Column(kind="whole", least=0)
RECURRENCE = Column(kind="whole", above=0, remedy="Give r as a whole number of at least 1")
TOKENS = Column(
    above=0, required=True, remedy="Give the training tokens of the run as a positive number"
)
# a trained model's loss is below ln(vocabulary): above 20 it is a perplexity or a sum
LOSS = Column(
    above=0,
    below=20,
    required=True,
    remedy="Give nats per token: bits x ln 2, log(perplexity), or a mean instead of a sum",
)

SCHEMA: dict[str, Column] = {
    "case": Column(kind="text", default="baseline"),
    "n_recur": RECURRENCE,
    "d_model": SIZE,
    "variant": Column(kind="text"),
    "bptt": SIZE,
    "budget": Column(above=0),
    "n_params_once": Column(least=0),
    "n_params_rec": Column(least=0),
    "n_params": Column(above=0),
    "n_tokens": TOKENS,
    "flops_per_token": Column(above=0),
    "n_prelude": LAYERS,
    "n_loop": SIZE,
    "n_coda": LAYERS,
    "vocab_size": SIZE,
    "seq_len": SIZE,
    "val_loss": LOSS,
    "val_loss_se": Column(least=0),
    "seed": Column(kind="whole"),
    "run_id": Column(kind="text", default=""),
    "source": Column(
        kind="text",
        default="measured",
        one_of=("published", "digitised", "measured", "simulated"),
    ),
    "flag": Column(kind="text", default=""),
}

COLUMNS = list(SCHEMA)

KEY = ["case", "n_recur", "d_model", "variant", "bptt", "budget", "n_params_once", "n_params_rec"]
KEY += ["n_params", "n_tokens", "seed", "run_id"]
"""Columns that identify a run: two runs of a table differ in at least one of them."""


def validate(frame: pd.DataFrame, file: str | Path | None = None) -> pd.DataFrame:
    """The table of runs with all columns of the schema, after all checks.

    Args:
        frame: the rows; columns outside the schema are left out.
        file: where the rows come from. If given, errors name a row by its line (header: line 1),
            and the frame's index must count the lines below the header.

    Raises:
        RecordError: the first row that breaks a rule, with file, row, column, value and remedy.
    """
    required = {name for name, column in SCHEMA.items() if column.required}
    if lacking := sorted(required - set(frame.columns)):
        raise RecordError(
            f"no column {lacking}; it has {list(frame.columns)}",
            file=file,
            fix="Add them, or map them to columns of other names (val_loss=loss)",
        )
    if frame.empty:
        raise RecordError("no runs", file=file, fix="Give at least one row below the header")
    refuse((v for name in frame for v in _violations(name, frame)), frame, file)
    table = pd.DataFrame({name: _converted(name, frame) for name in COLUMNS}, index=frame.index)
    table["n_params"] = table["n_params"].fillna(table["n_params_once"] + table["n_params_rec"])
    refuse(_contradictions(table, file), table, file)
    return table.reset_index(drop=True)


def _violations(name: str, frame: pd.DataFrame) -> Iterator[Violation]:
    """The rules of one column, in the order in which they are reported."""
    if name not in SCHEMA:
        return
    column, values = SCHEMA[name], frame[name]

    def rule(rows: pd.Series, problem: str, remedy: str = column.remedy) -> Violation:
        return Violation(rows, name, problem, remedy)

    if column.required:
        yield rule(values.isna(), "is missing")
    if column.one_of:
        expected = f"expected one of {', '.join(column.one_of)}"
        yield rule(values.notna() & ~values.isin(column.one_of), expected)
    if column.kind == "text":
        return
    number = numbers(frame, name)
    yield rule(values.notna() & number.isna(), "expected a valid number", NUMBER)
    yield rule(np.isinf(number), "expected a finite number")
    if column.kind == "whole":
        yield rule(number % 1 > 0, "expected a valid integer")
    if column.above is not None:
        yield rule(number <= column.above, f"expected a number greater than {column.above:g}")
    if column.least is not None:
        expected = f"expected a number greater than or equal to {column.least:g}"
        yield rule(number < column.least, expected)
    if column.below is not None:
        yield rule(number >= column.below, f"expected a number less than {column.below:g}")


def _converted(name: str, frame: pd.DataFrame) -> pd.Series:
    """A column in its own type: float, Int64, or text with None where it is missing."""
    column = SCHEMA[name]
    if column.kind == "text":
        values = frame[name].tolist() if name in frame else [None] * len(frame)
        texts = [column.default if pd.isna(value) else str(value) for value in values]
        return pd.Series(texts, index=frame.index)
    if column.kind == "number":
        return numbers(frame, name)
    whole = pd.Series(pd.NA, index=frame.index, dtype="Int64")
    if name in frame:  # by way of floats, seeds above 2^53 would lose digits
        present = frame[name].notna()
        whole[present] = pd.to_numeric(frame.loc[present, name]).astype("Int64").array
    return whole


def _contradictions(table: pd.DataFrame, file: str | Path | None) -> Iterator[Violation]:
    """The rules about several columns of a run, and that no run is there twice."""
    budget, spent = table["budget"], table["n_tokens"] * table["flops_per_token"]
    yield Violation(
        (spent / budget - 1).abs() > BUDGET_TOLERANCE,
        None,
        lambda row: (
            f"budget {budget.iloc[row]:.6g} is not n_tokens x flops_per_token = "
            f"{spent.iloc[row]:.6g} within {BUDGET_TOLERANCE:.0%}"
        ),
        CORRECT,
    )
    n_params, parts = table["n_params"], table["n_params_once"] + table["n_params_rec"]
    zero = "n_params_once + n_params_rec is 0: the run has no parameters"
    yield Violation(parts == 0, None, zero, CORRECT)
    yield Violation(
        (n_params - parts).abs() > 1e-6 * np.maximum(n_params, parts),
        None,
        lambda row: (
            f"n_params {n_params.iloc[row]:.9g} is not n_params_once + n_params_rec "
            f"= {parts.iloc[row]:.9g}"
        ),
        CORRECT,
    )
    yield Violation(
        table.duplicated(KEY),
        None,
        lambda row: f"the same run as row {line(_first_equal(table, row), file)}",
        "Remove it, or add a `seed` column if it is a repetition",
    )


def _first_equal(table: pd.DataFrame, row: int) -> int:
    """Index label of the first run with the same key as the run at a position."""
    run = table.groupby(KEY, dropna=False).ngroup()
    return run.index[run == run.iloc[row]][0]
