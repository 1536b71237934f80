"""Find the columns of a file: by the mapping, then by the schema's names, then by aliases.

Names are compared in plain form: without a leading `config.` or `summary.` and a trailing `.value`,
in lower case, with `_` for all characters but letters and digits. Single letters are case-sensitive
(D is tokens, d is a width).
"""

import re
from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd

from looped.config import ModelConfig
from looped.errors import RecordError
from looped.registry.read import check_mapping
from looped.registry.schema import COLUMNS

MODEL_FIELDS = [*(field.name for field in fields(ModelConfig)), "n_layers"]
"""Fields of an architecture; `n_layers`, the executed depth, can replace `n_loop`."""

KNOWN = list(dict.fromkeys([*COLUMNS, *MODEL_FIELDS]))

NOT_READ = "-"
"""In a mapping, instead of a column: the file has no such column."""

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
"""Name in the schema -> names in other codebases."""

LAST_RESORT = "loss"
"""Read as the validation loss only if no other column fits: it may be the training loss."""

MEANING = {
    "val_loss": "a mean over validation, in nats per token",
    "n_tokens": "of training",
    "budget": "of training, in FLOPs",
    "n_params": "without embedding and unembedding",
    "n_layers": "executed, not stored",
}
"""How a guessed column is understood, for the reader to confirm."""


@dataclass(frozen=True)
class Mapped:
    """The known columns of a file, under the schema's names."""

    frame: pd.DataFrame
    origin: dict[str, str]  # name in the schema -> name in the file
    notes: list[str]


def plain(name: str) -> str:
    """A column's name in plain form."""
    name = re.sub(r"^(config\.(model\.|train\.)?|summary(_metrics)?\.|model\.)", "", name)
    name = re.sub(r"[^0-9A-Za-z]+", "_", name.removesuffix(".value")).strip("_")
    return name if len(name) == 1 else name.lower()


def map_columns(frame: pd.DataFrame, mapping: dict[str, str], file: Path) -> Mapped:
    """The known columns of a file's rows.

    Args:
        mapping: name in the schema -> name in the file, or NOT_READ; other columns are found by
            their names.

    Raises:
        RecordError: unknown names in the mapping, or two columns that fit one name.
    """
    mapped = {name: column for name, column in mapping.items() if column != NOT_READ}
    check_mapping(mapping, mapped.values(), KNOWN, list(frame), file)
    named = _find(frame, {name: [name] for name in KNOWN}, mapping, file)
    aliases = {name: others.split() for name, others in ALIASES.items()}
    guessed = _find(frame, aliases, mapping | named, file)
    origin = mapped | named | guessed
    notes = _notes(mapped, named, guessed)
    notes += _left_out([name for name in frame if name not in origin.values()])
    table = pd.DataFrame({name: frame[column] for name, column in origin.items()})
    return Mapped(table, origin, notes)


def _find(
    frame: pd.DataFrame, candidates: dict[str, list[str]], known: dict[str, str], file: Path
) -> dict[str, str]:
    """Name in the schema -> the only column whose plain name is a candidate for it."""
    free = [column for column in frame if column not in known.values()]
    found = {}
    for name in candidates:
        if name in known:
            continue
        columns = [column for column in free if plain(column) in candidates[name]]
        better = [column for column in columns if plain(column) != LAST_RESORT]
        if columns:
            found[name] = _only(frame, name, better or columns, file)
    return found


def _only(frame: pd.DataFrame, name: str, columns: list[str], file: Path) -> str:
    if name in columns:
        return name
    first, *others = columns
    if all(frame[first].equals(frame[other]) for other in others):
        return first
    raise RecordError(
        f"columns {columns} could each be {name!r}",
        file=file,
        fix=f"Name the right one: --map {name}={first}",
    )


def _notes(mapped: dict[str, str], named: dict[str, str], guessed: dict[str, str]) -> list[str]:
    same = [name for name, column in named.items() if name == column]
    renamed = mapped | {name: column for name, column in named.items() if name != column}
    notes = [f"mapped: {name} is {column!r}" for name, column in renamed.items()]
    notes += [f"mapped: {', '.join(same)} by the same names"] if same else []
    for name, column in guessed.items():
        meaning = f", {MEANING[name]}" if name in MEANING else ""
        notes.append(f"guessed: {name} is {column!r}{meaning}")
    if guessed:
        notes.append(f"guessed: to correct a guess, --map NAME=COLUMN, or NAME={NOT_READ} for none")
    return notes


def _left_out(columns: list[str], shown: int = 8) -> list[str]:
    if not columns:
        return []
    more = f" and {len(columns) - shown} more" if len(columns) > shown else ""
    return [f"left out: columns {', '.join(map(repr, columns[:shown]))}{more}"]
