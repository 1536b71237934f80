"""Refuse what would distort a fit: losses in other units, placeholders, and circular counts.

Nothing is converted: a wrong guess of the unit would bend all losses alike, and no residual would
show it. Each message gives the conversion to apply.
"""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd

from looped.errors import RecordError
from looped.registry.ingest.columns import Mapped, plain
from looped.registry.rules import Violation, numbers, refuse

MOST_NATS = 20
"""A loss above it is a perplexity or a sum: the loss of chance is ln(vocabulary), about 10."""

LEAST_TOKENS = 1e4
"""Smaller token counts are in millions or billions."""

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
"""Unit -> words in a column's plain name that reveal it, and the conversion."""

VALIDATION = "(?:(?:val|valid|validation|eval|test|final|loss)_)*"
"""Words before the unit in the name of a column that holds only the loss."""

UNIT_COLUMNS = {"unit", "units", "loss_unit", "loss_units", "val_loss_unit"}
SAME_FOR_ALL = UNIT_COLUMNS | {"tokenizer", "tokenizer_name", "vocab_size", "vocab"}
SAME_FOR_ALL |= {"val_dataset", "val_set", "eval_dataset", "validation_dataset", "validation_set"}
"""Columns that define the unit of the loss, and so must have one value in all rows."""


def check_units(rows: pd.DataFrame, mapped: Mapped, file: Path) -> None:
    """Refuse losses that are not in nats per token, or not means over the same tokens.

    Args:
        rows: all columns of the file, under the file's names.
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
        if plain(name) in SAME_FOR_ALL:
            _refuse_mixture(name, rows[name], file)
        if plain(name) in UNIT_COLUMNS:
            _refuse_unit(name, str(rows[name].iloc[0]), file)


def check_values(frame: pd.DataFrame, file: Path) -> None:
    """Refuse placeholders, losses that are not in nats, and tokens counted in millions."""
    loss, tokens = numbers(frame, "val_loss"), numbers(frame, "n_tokens")
    large = loss > MOST_NATS
    several = "Two units in one column (perplexity and nats), or diverged runs: separate them"
    perplexities = "They look like perplexities: give ln(perplexity); or a mean instead of a sum"
    violations = [
        Violation(
            frame["val_loss"].isna() | np.isinf(loss),
            "val_loss",
            "is missing or infinite",
            "Leave out the rows of runs that diverged or did not end",
        ),
        Violation(
            loss == 0,
            "val_loss",
            "is 0, which no trained model reaches",
            "0 is the placeholder of a run that failed: leave its row out",
        ),
        Violation(
            large,
            "val_loss",
            f"not a loss in nats per token: {large.sum()} of {len(frame)} rows are above "
            f"{MOST_NATS}",
            perplexities if large.mean() > 0.5 else several,
        ),
        Violation(
            (tokens > 0) & (tokens < LEAST_TOKENS),
            "n_tokens",
            "is too few for a training run",
            "Count tokens, not millions or billions: multiply by 1e6 or 1e9",
        ),
    ]
    refuse(violations, frame, file)


def check_params_are_counted(frame: pd.DataFrame, file: Path) -> None:
    """Refuse parameters that are budget / (6 x tokens) in every row.

    Such an N has no information beyond budget and tokens: a law fitted to it is circular.
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


def _refuse_unit(
    column: str, text: str, file: Path, before: str = "(^|_)", after: str = "(_|$)"
) -> None:
    for unit, (words, conversion) in UNITS.items():
        if re.search(f"{before}({words}){after}", plain(text)):
            raise RecordError(
                f"the loss is {unit}, not in nats per token",
                file=file,
                field=column,
                value=None if text == column else text,
                fix=f"Convert it: {conversion}; give the result as val_loss",
            )


def _refuse_mixture(column: str, values: pd.Series, file: Path) -> None:
    kinds = sorted(set(values.dropna().astype(str)))
    if len(kinds) > 1:
        raise RecordError(
            f"losses are means over different units: {', '.join(kinds)}",
            file=file,
            field=column,
            fix="Losses per token compare for one tokenizer and one validation set only: ingest "
            "the runs of each separately",
        )
