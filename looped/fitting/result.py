"""Results of a fit and of a bootstrap: a law, its quality, its intervals and its warnings."""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from looped.files import write_whole
from looped.fitting import report
from looped.fitting.problem import Problem, build_problem
from looped.laws.base import Form
from looped.laws.law import Law


class FitStatus(StrEnum):
    """How far to trust an estimate; the worst problem gives the fit its status."""

    OK = "ok"
    FEW_STARTS = "few_starts"  # the optimum may not be the global one: give more starts
    AT_BOUND = "at_bound"  # a parameter stopped at the law's box
    NOT_IDENTIFIED = "not_identified"  # another value of a parameter fits as well


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """Refits on resampled runs: the whole distribution, one value a resample."""

    method: str  # block: whole (budget, r) cells are drawn; iid: single runs
    level: float
    resamples: int
    n_units: int  # number of cells or runs from which a resample draws
    starts: int  # per resample
    seed: int
    draws: dict[str, list[float]] = field(repr=False)  # free parameter -> value in each resample
    refits_worse: int  # resamples whose starts all missed the optimum that the fit led to
    warnings: tuple[str, ...] = ()

    def interval(self, param: str) -> tuple[float, float]:
        """Percentile interval of one parameter at `level`. Raises ValueError if it was held."""
        if param not in self.draws:
            raise ValueError(f"{param!r} was not resampled; resampled: {sorted(self.draws)}")
        low, high = self.percentiles(self.draws[param])
        return float(low), float(high)

    def percentiles(self, values: Any) -> tuple[Any, Any]:
        """Ends of the interval at `level` of values computed from each draw (first axis)."""
        tail = (1 - self.level) / 2
        low, high = np.quantile(values, [tail, 1 - tail], axis=0)
        return low, high

    def theta(self, form: Form, fixed: dict[str, float]) -> np.ndarray:
        """Coordinates of the law in each resample [resamples, p], with held parameters in place."""
        draws = self.draws | {name: [value] * self.resamples for name, value in fixed.items()}
        columns = [np.asarray(draws[name]) for name in form.param_names]
        return np.stack(
            [
                np.log(c) if name in form.linear else c
                for name, c in zip(form.param_names, columns, strict=True)
            ],
            axis=1,
        )

    def edge_errors(self, param: str) -> tuple[float, float]:
        """Monte Carlo standard errors of the interval's two ends.

        They come from the finite number of resamples: standard deviations of each end over
        bootstrap samples of the draws.
        """
        draws = np.asarray(self.draws[param])
        again = np.random.default_rng(self.seed).choice(draws, (1000, len(draws)))
        low, high = self.percentiles(again.T)
        return float(low.std()), float(high.std())

    def edge_error(self, param: str) -> float:
        """The larger of both ends' Monte Carlo errors."""
        return max(self.edge_errors(param))

    def touched(self, value: float) -> int:
        """Number of resamples in which φ is at most 0 (`value` 0), or at least 1 (`value` 1)."""
        if "phi" not in self.draws:
            raise ValueError(f"'phi' was not resampled; resampled: {sorted(self.draws)}")
        if value not in (0, 1):
            raise ValueError(f"touched: got {value!r}, expected 0 or 1")
        phi = np.asarray(self.draws["phi"])
        return int((phi <= 0).sum() if value == 0 else (phi >= 1).sum())

    @property
    def frame(self) -> pd.DataFrame:
        """The draws as a table, one row a resample."""
        return pd.DataFrame(self.draws)

    def to_dict(self) -> dict:
        """Plain values for JSON: the interval of each parameter, the draws and the settings."""
        values = asdict(self) | {"warnings": list(self.warnings)}
        values |= {name: list(self.interval(name)) for name in self.draws}
        if "phi" in self.draws:
            values |= {"touched_0": self.touched(0), "touched_1": self.touched(1)}
        return values

    @classmethod
    def from_dict(cls, values: dict) -> "Bootstrap":
        """The bootstrap of `to_dict`'s values; derived values are computed again."""
        derived = {*values.get("draws", ()), "touched_0", "touched_1"}
        own = _own_fields(cls, {k: v for k, v in values.items() if k not in derived})
        return cls(**own | {"warnings": tuple(own["warnings"])})


def _own_fields(cls, values: dict) -> dict:
    """The values if they are just those of a dataclass's fields. Raises ValueError otherwise."""
    names = {field.name for field in fields(cls)}
    if set(values) != names:
        raise ValueError(
            f"not a {cls.__name__}: missing {sorted(names - set(values))}, "
            f"unknown {sorted(set(values) - names)}"
        )
    return dict(values)


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """A fitted law and its quality. Losses in nats per token; residual = actual - predicted."""

    law: Law
    n_runs: int
    objective: float  # the Huber sum
    r2: float  # on raw nats
    rmse: float
    max_abs_residual: float
    starts: int
    starts_at_optimum: float  # share of the starts that ended at the best objective
    status: FitStatus
    warnings: tuple[str, ...]
    fixed: dict[str, float]
    delta: float
    solver: str
    seed: int
    cases: tuple[str, ...]
    sources: tuple[str, ...]
    versions: dict[str, str]  # of the packages that computed the numbers
    residuals: tuple[float, ...]  # in the order of the runs
    interval: Bootstrap | None = None

    @property
    def params(self) -> dict[str, float]:
        """Parameters of the law by name."""
        return self.law.params

    @property
    def split(self) -> str | None:
        """What counts as recurring; None for a law that does not distinguish N_once from N_rec."""
        return self.law.split

    @property
    def form(self) -> Form:
        """Form of the law: names, bounds, formula."""
        return self.law.form

    def at(self, **params: float) -> Law:
        """The law with some parameters changed and the others held: `fit.at(phi=0.7)`.

        It is not a fit: it carries no quality and no interval. `looped.fit(..., fix=...)` refits.
        """
        return self.law.at(**params)

    def predict(self, runs: pd.DataFrame) -> np.ndarray:
        """Loss of each run by the law, nats per token [n]; needs the law's columns only."""
        return self.law.loss(runs)

    def problem(self, runs: pd.DataFrame) -> Problem:
        """The minimisation that this fit solved. Raises ValueError for other runs than its own."""
        problem = build_problem(runs, self.form, self.split or "stated", self.delta, self.fixed)
        again = float(problem.objective(self.law.theta[None])[0])
        if len(runs) != self.n_runs or not np.isclose(again, self.objective, 1e-6, 1e-20):
            raise ValueError(
                f"got {len(runs)} runs with objective {again:.6g}, expected the {self.n_runs} runs "
                f"of the fit with {self.objective:.6g}; pass the runs that were fitted"
            )
        return problem

    def with_interval(self, interval: Bootstrap) -> "FitResult":
        """The same fit with its bootstrap."""
        return replace(self, interval=interval)

    @property
    def resampled(self) -> Bootstrap:
        """The bootstrap of the fit. Raises ValueError if it has none."""
        if self.interval is None:
            raise ValueError("the fit has no bootstrap; add one: fit.with_interval(bootstrap(...))")
        return self.interval

    def resampled_theta(self) -> np.ndarray:
        """Coordinates of the law in each resample [resamples, p]. Raises ValueError without any."""
        return self.resampled.theta(self.form, self.fixed)

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """Warnings of the fit and of its bootstrap."""
        return self.warnings + (self.interval.warnings if self.interval else ())

    def summary(self, warnings: bool = True) -> str:
        """The fit as text: formula, values with intervals, quality, status and warnings."""
        return report.text(self, warnings)

    def _repr_html_(self) -> str:
        return report.html(self)

    def __repr__(self) -> str:
        return report.short(self)

    def to_dict(self) -> dict:
        """Plain values by field name; `from_dict` is the exact inverse."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        own = {k: list(v) if isinstance(v, tuple) else v for k, v in own.items()}
        interval = None if self.interval is None else self.interval.to_dict()
        law = {"law": self.law.name, "split": self.split, "params": dict(self.params)}
        return law | {k: v for k, v in own.items() if k != "law"} | {"interval": interval}

    @classmethod
    def from_dict(cls, values: dict) -> "FitResult":
        """The fit of `to_dict`'s values. Raises ValueError on a missing field."""
        values = dict(values)
        parts = [values.pop(name, None) for name in ("params", "split")]
        own = _own_fields(cls, values)
        own["law"] = Law(own["law"], *parts)
        own |= {name: tuple(own[name]) for name in ("warnings", "cases", "sources", "residuals")}
        if own["interval"] is not None:
            own["interval"] = Bootstrap.from_dict(own["interval"])
        return cls(**own | {"status": FitStatus(own["status"])})

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text, also written to `path` if there is one."""
        text = json.dumps(self.to_dict(), indent=2)
        if path is not None:
            write_whole(path, text + "\n")
        return text

    @classmethod
    def from_json(cls, text_or_path: str | Path) -> "FitResult":
        """The fit of JSON text, or of the file at that path."""
        text = str(text_or_path)
        return cls.from_dict(
            json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
        )
