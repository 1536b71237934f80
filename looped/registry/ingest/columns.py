"""Which column of a file is which of ours: as told, by our own names, then by well-known ones.

Names are compared in plain form: `config.` or `summary.` in front and `.value` behind are dropped,
other characters than letters and digits become `_`, and case counts for single letters only
(D are tokens, d is a width).
"""

import re
from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd

from looped.config import ModelConfig
from looped.errors import RecordError
from looped.registry.schema import COLUMNS

MODEL_FIELDS = [*(field.name for field in fields(ModelConfig)), "n_layers"]
"""What describes an architecture; `n_layers`, the executed depth, may stand in for `n_loop`."""

KNOWN = list(dict.fromkeys([*COLUMNS, *MODEL_FIELDS]))

NOT_READ = "-"
"""In a mapping, in place of a column: none of the file's is this one of ours."""

ALIASES = {
    "val_loss": "validation_loss valid_loss eval_loss final_val_loss loss",
    "val_loss_se": "val_loss_stderr val_loss_std_err loss_se",
    "n_tokens": "D tokens train_tokens training_tokens total_tokens num_tokens n_train_tokens "
    "tokens_seen",
    "budget": "C flops compute total_flops train_flops training_flops total_compute flop_budget",
    "n_params": "N params num_params n_parameters num_parameters parameters non_embedding_params",
    "n_params_once": "n_once params_once",
    "n_params_rec": "n_rec params_rec",
    "flops_per_token": "train_flops_per_token",
    "n_recur": "r num_recurrences n_recurrences num_recur n_loops num_loops recurrence "
    "recurrences mean_recurrence",
    "d_model": "d hidden_size n_embd width model_dim hidden_dim embed_dim dim",
    "d_head": "head_dim head_size",
    "n_prelude": "num_prelude n_layers_in_prelude prelude_layers",
    "n_loop": "n_recur_block n_layers_in_recurrent_block loop_layers",
    "n_coda": "num_coda n_layers_in_coda coda_layers",
    "n_layers": "n_layer num_layers num_hidden_layers",
    "variant": "injection input_injection injection_type",
    "seq_len": "sequence_length block_size context_length max_seq_len max_position_embeddings",
    "vocab_size": "padded_vocab_size",
    "seed": "random_seed",
    "case": "study",
}
"""Our name -> what others call it."""

LAST_RESORT = "loss"
"""Taken for the validation loss only where no other column is: it may be that of training."""

MEANT = {
    "val_loss": "a mean over validation, in nats per token",
    "n_tokens": "of training",
    "budget": "of training, in FLOPs",
    "n_params": "without embedding and unembedding",
    "n_layers": "executed, not stored",
}
"""What a guessed column is taken for, for the reader to agree or not."""


@dataclass(frozen=True)
class Mapped:
    """The columns of a file that we know, under our names."""

    frame: pd.DataFrame
    origin: dict[str, str]  # our name -> the file's
    notes: list[str]


def plain(name: str) -> str:
    """A column's name without containers, punctuation and case."""
    name = re.sub(r"^(config\.(model\.|train\.)?|summary(_metrics)?\.|model\.)", "", name)
    name = re.sub(r"[^0-9A-Za-z]+", "_", name.removesuffix(".value")).strip("_")
    return name if len(name) == 1 else name.lower()


def map_columns(frame: pd.DataFrame, mapping: dict[str, str], file: Path) -> Mapped:
    """The known columns of a file's rows.

    Args:
        mapping: our name -> the file's, or NOT_READ; the rest is found by name.

    Raises:
        RecordError: a mapping of unknown names, or two columns that could be the same one.
    """
    _check_mapping(frame, mapping, file)
    told = {ours: theirs for ours, theirs in mapping.items() if theirs != NOT_READ}
    named = _find(frame, {ours: [ours] for ours in KNOWN}, mapping, file)
    taken = mapping | named
    guessed = _find(frame, {o: names.split() for o, names in ALIASES.items()}, taken, file)
    origin = told | named | guessed
    notes = [f"mapped: {ours} is {theirs!r}" for ours, theirs in told.items()]
    notes += _by_name(named)
    notes += _guesses(guessed)
    notes += _left_out([name for name in frame if name not in origin.values()])
    return Mapped(pd.DataFrame({o: frame[theirs] for o, theirs in origin.items()}), origin, notes)


def _find(frame, sought, taken, file) -> dict[str, str]:
    """Our name -> the one column whose plain name is among those sought."""
    free = [name for name in frame if name not in taken.values()]
    found = {}
    for ours, names in sought.items():
        if ours in taken:
            continue
        columns = [name for name in free if plain(name) in names]
        better = [name for name in columns if plain(name) != LAST_RESORT]
        if columns:
            found[ours] = _only(frame, ours, better or columns, file)
    return found


def _only(frame, ours, columns, file) -> str:
    if ours in columns:
        return ours
    first, *others = columns
    if all(frame[first].equals(frame[other]) for other in others):
        return first
    raise RecordError(
        f"columns {columns} could each be {ours!r}",
        file=file,
        fix=f"Name the right one: --map {ours}={first}",
    )


def _check_mapping(frame, mapping, file):
    if unknown := sorted(set(mapping) - set(KNOWN)):
        raise RecordError(
            f"there is no column {unknown} of ours; there are {KNOWN}",
            file=file,
            fix="Name one of them on the left of each mapping",
        )
    if absent := sorted(set(mapping.values()) - set(frame) - {NOT_READ}):
        raise RecordError(
            f"no column {absent}; the file has {list(frame)}",
            file=file,
            fix=f"Name one of them on the right of each mapping, or {NOT_READ} for none",
        )


def _by_name(named) -> list[str]:
    same = [ours for ours, theirs in named.items() if ours == theirs]
    notes = [f"mapped: {', '.join(same)} by their own names"] if same else []
    return notes + [f"mapped: {o} is {theirs!r}" for o, theirs in named.items() if o != theirs]


def _guesses(guessed) -> list[str]:
    notes = [
        f"guessed: {ours} is {theirs!r}" + (f", {MEANT[ours]}" if ours in MEANT else "")
        for ours, theirs in guessed.items()
    ]
    if notes:
        notes.append(f"guessed: to correct a guess, --map OURS=COLUMN, or OURS={NOT_READ} for none")
    return notes


def _left_out(names, shown=8) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return [f"left out: columns {', '.join(map(repr, names[:shown]))}{more}"]
