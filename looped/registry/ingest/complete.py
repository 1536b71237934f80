"""Count parameters and FLOPs from the description of each run's architecture.

The fields of an architecture come from the columns of the file, row by row, and from settings for
all rows. The counts are those of `looped.accounting`. Counts in the file must agree with them,
since a fit cannot distinguish a wrong N from a property of the law. The counts of a variant that
the accounting does not know are those of the file.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from looped import accounting
from looped.config import ModelConfig
from looped.errors import ConfigError, RecordError
from looped.registry.ingest.checks import check_params_are_counted
from looped.registry.ingest.columns import MODEL_FIELDS
from looped.registry.rules import line, numbers
from looped.variants import VARIANTS

COUNTS = ("n_params", "n_params_once", "n_params_rec", "flops_per_token")
"""n_params first: its message recognises embeddings and guesses."""

AGREE = 0.01
"""Relative distance within which counts agree; rounding, or a norm more or less, is smaller."""

COUNTED_BY = ("n_recur", "n_prelude", "n_coda", "vocab_size", "seq_len")
"""Fields that the counts depend on and that have a default."""


def complete(
    frame: pd.DataFrame, model: Mapping[str, Any] | None, file: Path
) -> tuple[pd.DataFrame, list[str]]:
    """The rows with the counts of their architectures, and notes on what was computed or assumed.

    Args:
        model: fields of ModelConfig for all rows, or n_layers instead of n_loop; None to count
            only if the columns of the file describe depth and width.

    Raises:
        RecordError: counts of the file that differ from those of the model.
        ConfigError: an impossible model, or a model without depth or width.
    """
    settings = dict(model or {})
    _check_settings(frame, settings)
    known = {*settings, *(set(MODEL_FIELDS) & set(frame))}
    lacking = [] if "d_model" in known else ["d_model"]
    lacking += [] if {"n_loop", "n_layers"} & known else ["n_loop (or n_layers)"]
    if lacking and model is not None:
        raise ConfigError(
            f"model: {' and '.join(lacking)} not known; set it for all runs "
            "(--set FIELD=VALUE), or map a column to it (--map FIELD=COLUMN)"
        )
    counted = pd.Series(not lacking, index=frame.index) & ~_has_own_counts(frame)
    if not counted.all():
        check_params_are_counted(frame[~counted], file)
    if not counted.any():
        return frame, []
    rows = frame[counted]
    configs = _configs(rows, settings, file)
    described, notes = _with_counts(rows, configs, file)
    notes = _assumed(rows, known, configs) + notes
    if counted.all():
        return described, notes
    names = ", ".join(sorted(frame.loc[~counted, "variant"].unique()))
    notes.append(f"not counted: the parameters of variant {names} are those of the file")
    return pd.concat([described, frame[~counted]]).loc[frame.index], notes


def _has_own_counts(frame: pd.DataFrame) -> pd.Series:
    """Whether a row has counts of a variant that the accounting does not know."""
    if "variant" not in frame:
        return pd.Series(False, index=frame.index)
    parts = numbers(frame, "n_params_once") + numbers(frame, "n_params_rec")
    unknown = frame["variant"].notna() & ~frame["variant"].isin(list(VARIANTS))
    return unknown & (parts.notna() | numbers(frame, "n_params").notna())


def _check_settings(frame: pd.DataFrame, settings: dict[str, Any]) -> None:
    if unknown := sorted(set(settings) - set(MODEL_FIELDS)):
        raise ConfigError(f"model: unknown fields {unknown}, expected some of {MODEL_FIELDS}")
    twice = sorted(name for name in settings if name in frame and frame[name].notna().any())
    if twice:
        raise ConfigError(
            f"model: {twice} are set and are columns of the file; "
            f"leave the setting out, or the column (--map {twice[0]}=-)"
        )


def _configs(frame: pd.DataFrame, settings: dict[str, Any], file: Path) -> list[ModelConfig]:
    """The architecture of each row; equal rows share one object."""
    described = frame[[name for name in MODEL_FIELDS if name in frame]]
    known: dict[tuple[Any, ...], ModelConfig] = {}
    configs = []
    for index, row in zip(frame.index, described.to_dict("records"), strict=True):
        values = {name: _whole(value) for name, value in row.items() if not pd.isna(value)}
        key = tuple(values.items())
        if key not in known:
            known[key] = _config(values, settings, file, line(index, file))
        configs.append(known[key])
    return configs


def _whole(value: Any) -> Any:
    """Undo the conversion of whole numbers to floats in a column with missing values."""
    return int(value) if isinstance(value, float | np.number) and value == int(value) else value


def _config(row: dict[str, Any], settings: dict[str, Any], file: Path, at: int) -> ModelConfig:
    values = {"n_recur": 1, "n_prelude": 2, "n_coda": 2, **settings, **row}
    values.setdefault("d_head", 2)  # no count depends on the heads
    try:
        if values["n_recur"] == 1 and "variant" not in row:
            values["variant"] = "none"
        n_layers = values.pop("n_layers", None)
        if n_layers is not None:
            values.setdefault("n_loop", _n_loop(n_layers, values))
        config = ModelConfig(**values)
        if n_layers not in (None, config.n_layers):
            raise ConfigError(f"n_layers: got {n_layers}, but {config.n_layers} are executed")
    except (ConfigError, TypeError) as error:
        raise RecordError(f"no such model: {error}", file=file, row=at) from None
    return config


def _n_loop(n_layers: int, values: dict[str, Any]) -> int:
    shared = n_layers - values["n_prelude"] - values["n_coda"]
    if shared < 1 or shared % values["n_recur"]:
        raise ConfigError(
            f"n_layers: got {n_layers} executed layers, of which {shared} are left for the loop "
            f"block, not a multiple of n_recur={values['n_recur']}; give n_loop"
        )
    return shared // values["n_recur"]


def _assumed(frame: pd.DataFrame, known: set[str], configs: list[ModelConfig]) -> list[str]:
    defaults = {f.name: f.default for f in fields(ModelConfig) if f.default is not MISSING}
    assumed = [f"{name} = {defaults[name]:,}" for name in COUNTED_BY if name not in known]
    plain_stack = np.array([config.n_recur == 1 for config in configs])
    unnamed = frame["variant"].isna() if "variant" in frame else True
    if (plain_stack & unnamed).any():
        assumed.append("variant none at n_recur = 1")
    return [f"assumed: {', '.join(assumed)}"] if assumed else []


def _with_counts(
    frame: pd.DataFrame, configs: list[ModelConfig], file: Path
) -> tuple[pd.DataFrame, list[str]]:
    """The rows with the schema's columns of their architectures, and notes on the counts."""
    columns = {config: accounting.columns(config) for config in set(configs)}
    counted = pd.DataFrame([columns[config] for config in configs], index=frame.index)
    notes = []
    for name in COUNTS:
        in_file, count = numbers(frame, name), counted[name].astype(float)
        off = (in_file / count - 1).abs() > AGREE
        if off.any() and name == "n_params" and _with_embedding(in_file, count, configs):
            notes.append(
                "computed: n_params without embeddings, which the file's n_params includes"
            )
        elif off.any():
            check_params_are_counted(frame, file)
            _refuse_count(name, in_file, count, off, file)
        elif in_file.notna().any():
            notes.append(f"computed: {name} from the model, with which the file's agrees")
        else:
            notes.append(f"computed: {name} from the model")
    return frame.assign(**{name: counted[name] for name in counted}), notes


def _with_embedding(in_file: pd.Series, counted: pd.Series, configs: list[ModelConfig]) -> bool:
    """Whether each N is too large by one embedding (tied) or by embedding and unembedding."""
    embedding = np.array([config.vocab_size * config.d_model for config in configs])
    return any(
        np.allclose(in_file, counted + times * embedding, rtol=AGREE, atol=0) for times in (1, 2)
    )


def _refuse_count(
    name: str, in_file: pd.Series, counted: pd.Series, off: pd.Series, file: Path
) -> None:
    index = off.idxmax()
    raise RecordError(
        f"the model has {counted[index]:.6g}",
        file=file,
        row=line(index, file),
        field=name,
        value=float(in_file[index]),
        fix=f"Correct the model, or leave the file's count out (--map {name}=-)",
    )
