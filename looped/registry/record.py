"""The record of a finished run: one JSON file, written once and atomically, read as a table row.

A record states the specification of the run (`spec`), its cost (`counts`, `flops`), its result
(`val_loss` with a standard error over the rows of the validation split) and its origin (seed,
versions, checksums of text and tokenizer, kind of hardware). It names no host and no user.
"""

import os
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from looped import accounting
from looped.errors import ConfigError, RecordError
from looped.files import write_whole
from looped.paths import runs_dir
from looped.registry.schema import validate
from looped.spec import RunSpec

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Result(_Part):
    """The result at the end of the run; losses in nats per token."""

    val_loss: Positive
    # over validation rows, taken as independent; two runs on the same rows differ by less
    val_loss_se: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    val_rows: Annotated[int, Field(gt=1)]
    train_loss: Positive  # mean of the last tenth of the steps
    n_tokens: Annotated[int, Field(gt=0)]
    n_steps: Annotated[int, Field(gt=0)]
    epochs: Positive  # passes over the training split
    flops: Positive  # achieved: n_tokens x flops_per_token
    seconds: Positive  # training time summed over all starts, without validation
    tokens_per_second: Positive


class Segment(_Part):
    """Consecutive steps on one hardware and software setup; a resumed run can have several."""

    first_step: Annotated[int, Field(ge=0)]  # counted from 0
    hardware: str  # kind of processor or card
    n_processes: Annotated[int, Field(gt=0)]
    precision: Literal["float32", "bfloat16"]  # of products under autocast; weights are float32
    attention: str
    compiled: bool
    versions: dict[str, str]
    code: str  # version of this package, with the commit if it is known


class Provenance(_Part):
    """Origin of the result."""

    created: str  # UTC date and time of the end, ISO 8601
    resumed: Annotated[int, Field(ge=0)]  # number of times the run resumed from a checkpoint
    stretches: Annotated[list[Segment], Field(min_length=1)]
    corpus_sha256: Sha256
    tokenizer_sha256: Sha256


class RunRecord(_Part):
    """One run: `spec` as in `RunSpec.to_dict`, `counts` as in `looped.counts`."""

    schema_version: Literal[1] = 1  # of the layout of the record
    run_id: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    spec: dict[str, Any]
    counts: dict[str, float]
    result: Result
    provenance: Provenance

    @model_validator(mode="after")
    def _is_consistent(self) -> "RunRecord":
        spec = self.run_spec
        if spec.run_id != self.run_id:
            raise ValueError(f"run_id {self.run_id} is not that of its spec, {spec.run_id}")
        if self.result.n_tokens != spec.train.n_tokens:
            raise ValueError(
                f"n_tokens {self.result.n_tokens} is not the spec's {spec.train.n_tokens}"
            )
        for name, count in accounting.counts(spec.model).items():
            if self.counts.get(name) != count:
                raise ValueError(
                    f"count {name} {self.counts.get(name)} is not the accounting's {count}"
                )
        return self

    @cached_property
    def run_spec(self) -> RunSpec:
        """The spec as an object."""
        return RunSpec.from_dict(self.spec)

    def row(self) -> dict[str, Any]:
        """This run as a row of the table of runs (`looped.registry.schema`)."""
        return self.run_spec.row() | {
            "val_loss": self.result.val_loss,
            "val_loss_se": self.result.val_loss_se,
            "source": "measured",
        }


def write_record(record: RunRecord, folder: str | Path) -> Path:
    """Write `folder/RUN_ID.json` atomically; an existing record is never replaced.

    Raises:
        FileExistsError: the folder already has a record of this run.
    """
    path = Path(folder) / f"{record.run_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_whole(aside, record.model_dump_json(indent=2) + "\n")
        os.link(aside, path)  # unlike a rename, a link fails if the name exists
    except FileExistsError:
        raise FileExistsError(
            f"{path} is recorded already; remove it first to record the run again"
        ) from None
    finally:
        aside.unlink(missing_ok=True)
    return path


def is_record(path: Path) -> bool:
    """Whether a file has the name of a record; other files of a run's folder do not."""
    return re.fullmatch(r"[0-9a-f]{16}\.json", path.name) is not None


def read_record(path: str | Path) -> RunRecord:
    """The record at `path`.

    Raises:
        RecordError: not a record, or a record that contradicts itself.
    """
    try:
        return RunRecord.model_validate_json(Path(path).read_text())
    except ValidationError as error:
        first = error.errors()[0]
        raise RecordError(
            first["msg"].removeprefix("Value error, "),
            file=path,
            field=".".join(map(str, first["loc"])) or None,
            fix="Records are written by looped.train and are not edited by hand",
        ) from None
    except ConfigError as error:
        raise RecordError(str(error), file=path) from None


def load_records(source: str | Path) -> list[RunRecord]:
    """All records of a folder in `runs/` (by its name), or of any folder (by its path).

    Raises:
        RecordError: a record that cannot be read, or a folder without records.
    """
    named = runs_dir() / source
    folder = named if named.is_dir() else Path(source)
    paths = sorted(path for path in folder.glob("*.json") if is_record(path))
    if not paths:
        raise RecordError(
            "no records", file=folder, fix="Name a folder of the JSON files of looped.train"
        )
    return [read_record(path) for path in paths]


def read_records(folder: str | Path) -> pd.DataFrame:
    """The table of all runs recorded in a folder, sorted by file name. See `load_records`."""
    return validate(pd.DataFrame([record.row() for record in load_records(folder)]))
