"""What is refused before it reaches a fit: other units, placeholders, and circular counts.

Nothing is converted: a wrong guess of the unit would bend every loss alike, and no residual would
show it. Each message says the conversion to apply.
"""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd

from looped.errors import RecordError
from looped.registry.ingest.columns import Mapped, plain

MOST_NATS = 20
"""Above it a loss is a perplexity or a sum: the loss of chance is ln(vocabulary), about 10."""

LEAST_TOKENS = 1e4
"""Below it tokens are counted in millions or billions."""

SAME = 1e-3
"""Relative distance at which parameters count as budget / (6 tokens)."""

LN_2 = f"ln 2 (= {math.log(2):.6f})"
UNITS = {
    "bits per byte": (
        "bpb|bits?_(?:per_)?bytes?",
        f"nats per token = bits per byte x {LN_2} x bytes per token of the validation text",
    ),
    "a perplexity": ("ppl|perplexity", "nats per token = ln(perplexity)"),
    "in bits": ("bits?|bpt|log2|base2", f"nats per token = bits per token x {LN_2}"),
}
"""Unit -> words in a column's plain name that give it away, and the conversion."""

VALIDATION = "(?:(?:val|valid|validation|eval|test|final|loss)_)*"
"""What stands before the unit in the name of a column that holds nothing but the loss."""

PER_TOKEN_OF = {"tokenizer", "tokenizer_name", "vocab_size", "vocab", "val_dataset", "val_set"}
PER_TOKEN_OF |= {"eval_dataset", "validation_dataset", "validation_set"}
UNIT_COLUMNS = {"unit", "units", "loss_unit", "loss_units", "val_loss_unit"}
"""Columns that say of what a loss is the mean."""


def check_units(rows: pd.DataFrame, mapped: Mapped, file: Path) -> None:
    """Refuse losses that are not in nats per token, or not all of the same tokens.

    Args:
        rows: all columns of the file, under its names.
    """
    if "val_loss" in mapped.origin:
        _refuse_unit(mapped.origin["val_loss"], mapped.origin["val_loss"], file)
    else:
        for name in rows:
            _refuse_unit(name, name, file, before=f"^{VALIDATION}", after="(_loss)?$")
        raise RecordError(
            f"no column of the validation loss; the file has {list(rows)}",
            file=file,
            fix="Name it: --map val_loss=COLUMN",
        )
    for name in rows:
        if plain(name) in UNIT_COLUMNS | PER_TOKEN_OF:
            _refuse_mixture(name, rows[name], file)
        if plain(name) in UNIT_COLUMNS:
            _refuse_unit(name, str(rows[name].iloc[0]), file)


def check_values(frame: pd.DataFrame, file: Path) -> None:
    """Refuse placeholders, losses that are no nats, and tokens counted in millions."""
    loss = numbers(frame, "val_loss")
    _refuse_row(
        frame["val_loss"].isna() | np.isinf(loss),
        frame["val_loss"],
        "is missing or infinite",
        "Leave out the rows of runs that diverged or did not end",
        file,
    )
    _refuse_row(
        loss == 0,
        frame["val_loss"],
        "is 0, which no trained model reaches",
        "0 stands for a run that failed: leave its row out",
        file,
    )
    _refuse_large_losses(frame["val_loss"], loss > MOST_NATS, file)
    if "n_tokens" in frame:
        tokens = numbers(frame, "n_tokens")
        _refuse_row(
            (tokens > 0) & (tokens < LEAST_TOKENS),
            frame["n_tokens"],
            "is too few for a training run",
            "Count tokens, not millions or billions: multiply by 1e6 or 1e9",
            file,
        )


def check_params_are_counted(frame: pd.DataFrame, file: Path) -> None:
    """Refuse parameters that are the budget over 6 x tokens in every row.

    Such an N holds nothing that budget and tokens do not: a law fitted to it is circular.
    """
    n_params = numbers(frame, "n_params")
    if n_params.isna().all():
        n_params = numbers(frame, "n_params_once") + numbers(frame, "n_params_rec")
    ratio = numbers(frame, "budget") / (6 * numbers(frame, "n_tokens") * n_params)
    if ((ratio - 1).abs() <= SAME).all():
        raise RecordError(
            f"n_params is budget / (6 x n_tokens) in all {len(frame)} rows: one of the three was "
            "guessed from the others, and with a guessed N the fit is circular",
            file=file,
            fix="Give counted parameters, or the model that counts them (--model, with "
            "--map n_params=-); if N is counted and the budget was guessed, --map budget=-",
        )


def numbers(frame: pd.DataFrame, name: str) -> pd.Series:
    """A column as numbers; missing where it is absent or not a number."""
    if name not in frame:
        return pd.Series(np.nan, index=frame.index)
    return pd.to_numeric(frame[name], errors="coerce").astype(float)


def _refuse_unit(column, text, file, before="(^|_)", after="(_|$)"):
    for unit, (words, conversion) in UNITS.items():
        if re.search(f"{before}({words}){after}", plain(text)):
            raise RecordError(
                f"the loss is {unit}, not in nats per token",
                file=file,
                field=column,
                value=None if text == column else text,
                fix=f"Convert it: {conversion}; give the result as val_loss",
            )


def _refuse_mixture(column, values, file):
    kinds = sorted(set(values.dropna().astype(str)))
    if len(kinds) > 1:
        raise RecordError(
            f"losses are means over different units: {', '.join(kinds)}",
            file=file,
            field=column,
            fix="Losses per token compare for one tokenizer and one validation set only: ingest "
            "each on its own",
        )


def _refuse_large_losses(values, large, file):
    if not large.any():
        return
    share = f"{large.sum()} of {len(values)} rows are above {MOST_NATS}"
    if large.sum() * 2 > len(values):
        fix = "They look like perplexities: give ln(perplexity); or a mean in place of a sum"
    else:
        fix = "Two units in one column (perplexity and nats), or runs that diverged: part them"
    _refuse_row(large, values, f"no loss in nats per token: {share}", fix, file)


def _refuse_row(refused, values, problem, fix, file):
    if refused.any():
        index = refused.idxmax()
        (value,) = values.loc[[index]].tolist()  # as Python writes it
        raise RecordError(
            problem,
            file=file,
            row=index + 2,
            field=values.name,
            value=None if pd.isna(value) else value,
            fix=fix,
        )
