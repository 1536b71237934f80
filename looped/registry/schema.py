"""The one table of runs: its columns, their units, and the checks on reading.

    case             name of the study that the run belongs to; `baseline` holds the r = 1 anchor
    n_recur          r, times the loop block runs
    d_model          width of the model
    variant          how the prelude enters each recurrence (`looped.variants`, or any name)
    bptt             last recurrences that carried gradient; missing = all
    budget           nominal training FLOPs
    n_params_once    parameters that run once per token, split `stated`
    n_params_rec     parameters that run r times per token, split `stated`
    n_params         their sum
    n_tokens         training tokens D
    flops_per_token  training FLOPs per token
    n_prelude, n_loop, n_coda   layers stored in each section of the stack
    vocab_size       rows of the embedding
    seq_len          tokens of context in training
    val_loss         validation loss, nats per token
    val_loss_se      one standard error of val_loss (what it covers: see the source's README)
    seed             seed of the run
    run_id           hash of the spec of a run that was trained here; empty for others
    source           published, digitised, measured or simulated
    flag             why a run is to be read with care; empty = nothing known

A missing value is missing, never 0. Which columns a fit needs is the law's to say.
"""

import math
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from looped.errors import RecordError
from looped.spec import BUDGET_TOLERANCE

Count = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(gt=0)]

KEY = ["case", "n_recur", "d_model", "variant", "bptt", "budget", "n_params_once", "n_params_rec"]
KEY += ["n_params", "n_tokens", "seed", "run_id"]
"""Columns that together name a run: no two runs of a table share them all."""


class Run(BaseModel):
    """One row of the table; see the module for the units."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    case: str = "baseline"
    n_recur: Whole | None = None
    d_model: Whole | None = None
    variant: str | None = None
    bptt: Whole | None = None
    budget: Count | None = None
    n_params_once: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    n_params_rec: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    n_params: Count | None = None
    n_tokens: Count
    flops_per_token: Count | None = None
    n_prelude: Annotated[int, Field(ge=0)] | None = None
    n_loop: Whole | None = None
    n_coda: Annotated[int, Field(ge=0)] | None = None
    vocab_size: Whole | None = None
    seq_len: Whole | None = None
    # ln(vocabulary) bounds a trained model's loss: above 20 it is a perplexity or a sum
    val_loss: Annotated[float, Field(gt=0, lt=20, allow_inf_nan=False)]
    val_loss_se: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    seed: int | None = None
    run_id: str = ""
    source: Literal["published", "digitised", "measured", "simulated"] = "measured"
    flag: str = ""

    @model_validator(mode="after")
    def _budget_is_spent(self):
        if self.budget and self.flops_per_token:
            spent = self.n_tokens * self.flops_per_token
            if abs(spent / self.budget - 1) > BUDGET_TOLERANCE:
                raise ValueError(
                    f"budget {self.budget:.6g} is not n_tokens x flops_per_token = {spent:.6g} "
                    f"within {BUDGET_TOLERANCE:.0%}"
                )
        return self

    @model_validator(mode="after")
    def _counts_add_up(self):
        parts = self.n_params_once, self.n_params_rec
        if None in parts:
            return self
        if not sum(parts) > 0:
            raise ValueError("n_params_once + n_params_rec is 0: the run has no parameters")
        if self.n_params and not math.isclose(sum(parts), self.n_params, rel_tol=1e-6):
            raise ValueError(
                f"n_params {self.n_params:.9g} is not n_params_once + n_params_rec "
                f"= {sum(parts):.9g}"
            )
        return self


COLUMNS = list(Run.model_fields)
STACK = ["n_prelude", "n_loop", "n_coda", "vocab_size", "seq_len"]
"""Columns that with r, width, variant and bptt make an architecture; missing = not known."""

_WHOLE = ["n_recur", "d_model", "bptt", "seed", *STACK]

_REMEDIES = {
    "val_loss": "Give nats per token: bits x ln 2, log(perplexity), or a mean instead of a sum",
    "n_tokens": "Give the training tokens of the run as a positive number",
    "n_recur": "Give r as a whole number of at least 1",
}


def validate(frame: pd.DataFrame, file: str | Path | None = None) -> pd.DataFrame:
    """The table of runs with every column of the schema, checked row by row.

    Args:
        frame: rows to check; columns outside the schema are left out.
        file: where they came from, for the message; its rows are then named by their line,
            the header being line 1, and the frame's index counts the lines below it.

    Raises:
        RecordError: the first row that fails, with file, row, column, value and what to do.
    """
    required = {name for name, field in Run.model_fields.items() if field.is_required()}
    if lacking := sorted(required - set(frame.columns)):
        raise RecordError(
            f"no column {lacking}; it has {list(frame.columns)}",
            file=file,
            fix="Add them, or map them to columns of other names (val_loss=loss)",
        )
    if frame.empty:
        raise RecordError("no runs", file=file, fix="Give at least one row below the header")
    lines = frame.index + 2 if file is not None else frame.index
    rows = [
        _validate_row({k: v for k, v in row.items() if not _is_missing(v)}, file, line)
        for line, row in zip(lines, frame.to_dict("records"), strict=True)
    ]
    table = pd.DataFrame([row.model_dump() for row in rows], columns=COLUMNS)
    table = table.astype(dict.fromkeys(_WHOLE, "Int64"))
    floats = table.columns.difference([*_WHOLE, "case", "variant", "run_id", "source", "flag"])
    table = table.astype(dict.fromkeys(floats, float))
    table["n_params"] = table["n_params"].fillna(table["n_params_once"] + table["n_params_rec"])
    _require_unique(table, file, lines)
    return table


def _validate_row(values, file, row) -> Run:
    try:
        return Run(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else None
        problem = first["msg"].removeprefix("Value error, ")
        raise RecordError(
            "is missing" if first["type"] == "missing" else problem,
            file=file,
            row=row,
            field=field,
            value=None if field is None else values.get(field),
            fix=_remedy(field, first["type"]),
        ) from None


def _remedy(field, problem) -> str:
    if problem.endswith("_parsing"):
        return "Write a number with a decimal point and nothing else"
    return _REMEDIES.get(field, "Correct the value, or leave it empty if it is not known")


def _require_unique(table, file, lines):
    again = table.duplicated(KEY)
    if again.any():
        row = int(again.to_numpy().argmax())
        same = (table[KEY].astype(object).fillna("") == table.loc[row, KEY].fillna("")).all(axis=1)
        raise RecordError(
            f"the same run as row {lines[int(same.to_numpy().argmax())]}",
            file=file,
            row=lines[row],
            fix="Remove it, or add a `seed` column if it is a repetition",
        )


def _is_missing(value) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))
