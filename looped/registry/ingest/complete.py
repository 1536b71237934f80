"""What a model's configuration says about its runs: parameters and FLOPs per token.

Fields come from the file's columns, row by row, and from settings that hold for all rows. Where an
architecture is described, its counts are those of `looped.accounting`; counts in the file have to
agree with them, since a fit cannot tell a wrong N from a law.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import pandas as pd

from looped import accounting
from looped.config import ModelConfig
from looped.errors import ConfigError, RecordError
from looped.registry.ingest.checks import check_params_are_counted, numbers
from looped.registry.ingest.columns import MODEL_FIELDS
from looped.registry.schema import STACK

COUNTS = {
    "n_params": accounting.n_params,  # first: its message tells embeddings and guesses
    "n_params_once": accounting.n_params_once,
    "n_params_rec": accounting.n_params_rec,
    "flops_per_token": accounting.flops_per_token,
}

AGREE = 0.01
"""Relative distance to which the file's counts must agree; a rounded count or a norm is less."""

COUNTED_BY = ("n_recur", "n_prelude", "n_coda", "vocab_size", "seq_len")
"""Fields that the counts depend on and that have a default."""


def complete(
    frame: pd.DataFrame, model: Mapping | None, file: Path
) -> tuple[pd.DataFrame, list[str]]:
    """The rows with the counts of their architectures, and what was computed or assumed.

    Args:
        model: fields of ModelConfig for all rows, or n_layers in place of n_loop; None to count
            only where the columns of the file describe the depth and the width.

    Raises:
        RecordError: counts of the file that are not those of the model.
        ConfigError: a model that cannot exist, or one of which too little is said.
    """
    settings = dict(model or {})
    _check_settings(frame, settings)
    known = {*settings, *(set(MODEL_FIELDS) & set(frame))}
    lacking = [] if "d_model" in known else ["d_model"]
    lacking += [] if {"n_loop", "n_layers"} & known else ["n_loop (or n_layers)"]
    if lacking and model is not None:
        raise ConfigError(
            f"model: nothing says {' and '.join(lacking)}; set it for all runs "
            "(--set FIELD=VALUE), or map a column to it (--map FIELD=COLUMN)"
        )
    if lacking:
        check_params_are_counted(frame, file)
        return frame, []
    configs = [_config(row, settings, file, i + 2) for i, row in _rows(frame)]
    notes = _assumed(frame, known, configs)
    frame = _describe(frame, configs)
    return _counted(frame, configs, file, notes), notes


def _check_settings(frame, settings):
    if unknown := sorted(set(settings) - set(MODEL_FIELDS)):
        raise ConfigError(f"model: unknown fields {unknown}; there are {MODEL_FIELDS}")
    twice = sorted(name for name in settings if name in frame and frame[name].notna().any())
    if twice:
        raise ConfigError(
            f"model: {twice} are set and are columns of the file; "
            f"leave the setting out, or the column (--map {twice[0]}=-)"
        )


def _rows(frame):
    described = frame[[name for name in MODEL_FIELDS if name in frame]]
    for index, row in zip(described.index, described.to_dict("records"), strict=True):
        yield index, {name: _whole(value) for name, value in row.items() if not pd.isna(value)}


def _whole(value):
    """Pandas turns whole numbers into floats where a row lacks one."""
    return int(value) if isinstance(value, float | np.number) and value == int(value) else value


def _config(row, settings, file, line) -> ModelConfig:
    values = {"n_recur": 1, "n_prelude": 2, "n_coda": 2, **settings, **row}
    values.setdefault("d_head", 2)  # nothing here depends on the heads
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
        raise RecordError(f"no such model: {error}", file=file, row=line) from None
    return config


def _n_loop(n_layers, values) -> int:
    shared = n_layers - values["n_prelude"] - values["n_coda"]
    if shared < 1 or shared % values["n_recur"]:
        raise ConfigError(
            f"n_layers: got {n_layers} executed layers, of which {shared} are left for the loop "
            f"block, not a multiple of n_recur={values['n_recur']}; give n_loop"
        )
    return shared // values["n_recur"]


def _assumed(frame, known, configs) -> list[str]:
    defaults = {f.name: f.default for f in fields(ModelConfig) if f.default is not MISSING}
    assumed = [f"{name} = {defaults[name]:,}" for name in COUNTED_BY if name not in known]
    plain_stack = np.array([config.n_recur == 1 for config in configs])
    unnamed = frame["variant"].isna() if "variant" in frame else True
    if (plain_stack & unnamed).any():
        assumed.append("variant none at n_recur = 1")
    return [f"assumed: {', '.join(assumed)}"] if assumed else []


def _describe(frame, configs) -> pd.DataFrame:
    """The rows with the schema's columns of the architecture, as their models have them."""
    named = ("n_recur", "d_model", "variant", "bptt", *STACK)
    values = {name: [getattr(config, name) for config in configs] for name in named}
    return frame.assign(**{n: pd.Series(v, frame.index, object) for n, v in values.items()})


def _counted(frame, configs, file, notes) -> pd.DataFrame:
    for name, count in COUNTS.items():
        counted = pd.Series([float(count(config)) for config in configs], frame.index)
        given = numbers(frame, name)
        off = (given / counted - 1).abs() > AGREE
        if off.any() and name == "n_params" and _with_embedding(given, counted, configs):
            notes.append(
                "computed: n_params without embeddings, which the file's n_params counts in"
            )
        elif off.any():
            check_params_are_counted(frame, file)
            _refuse_count(name, given, counted, off, file)
        elif given.notna().any():
            notes.append(f"computed: {name} from the model, with which the file's agrees")
        else:
            notes.append(f"computed: {name} from the model")
        frame = frame.assign(**{name: counted})
    return frame


def _with_embedding(given, counted, configs) -> bool:
    """Whether each N is off by one embedding (tied) or by embedding and unembedding."""
    embedding = np.array([config.vocab_size * config.d_model for config in configs])
    return any(
        np.allclose(given, counted + times * embedding, rtol=AGREE, atol=0) for times in (1, 2)
    )


def _refuse_count(name, given, counted, off, file):
    index = off.idxmax()
    raise RecordError(
        f"the model has {counted[index]:.6g}",
        file=file,
        row=index + 2,
        field=name,
        value=float(given[index]),
        fix=f"Correct the model, or leave the file's count out (--map {name}=-)",
    )
