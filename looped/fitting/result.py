"""What a fit and a bootstrap return: the law's parameters, how well and how surely found."""

import json
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
import pandas as pd

from looped.fitting.problem import Problem, build_problem
from looped.laws import get_law
from looped.laws.joint import n_params_effective
from looped.splits import split_params


class FitStatus(StrEnum):
    """How far the estimate is to be trusted; the worst finding names the fit."""

    OK = "ok"
    FEW_STARTS = "few_starts"  # the optimum may not be the global one: give more starts
    AT_BOUND = "at_bound"  # a parameter stopped at the law's box
    NOT_IDENTIFIED = "not_identified"  # another value of a parameter fits as well


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """Refits on resampled runs: the whole distribution, one entry a resample."""

    method: str  # block: whole (budget, r) cells were drawn; iid: single runs
    level: float
    resamples: int
    n_units: int  # cells or runs that were drawn from
    starts: int  # per resample
    seed: int
    draws: dict[str, list[float]]  # free parameter -> value in each resample
    refits_worse: int  # resamples whose own starts all missed the optimum reached from the fit
    warnings: tuple[str, ...] = ()

    def interval(self, param: str) -> tuple[float, float]:
        """Percentile interval of one parameter at `level`. Raises ValueError if it was held."""
        if param not in self.draws:
            raise ValueError(f"{param!r} was not resampled; resampled: {sorted(self.draws)}")
        low, high = self.percentiles(self.draws[param])
        return float(low), float(high)

    def percentiles(self, values) -> tuple[np.ndarray, np.ndarray]:
        """Ends at `level` of what was computed from every draw, over the first axis."""
        tail = (1 - self.level) / 2
        return tuple(np.quantile(values, [tail, 1 - tail], axis=0))

    def theta(self, law: str, fixed: dict[str, float]) -> np.ndarray:
        """Coordinates of the law in each resample [resamples, p], held parameters among them."""
        draws = self.frame.assign(**fixed).to_dict("records")
        return np.array([get_law(law).to_theta(draw) for draw in draws])

    def edge_errors(self, param: str) -> tuple[float, float]:
        """Monte Carlo errors of the interval's ends, from the finite number of resamples.

        Standard deviations of each end over bootstrap samples of the draws.
        """
        draws = np.asarray(self.draws[param])
        again = np.random.default_rng(self.seed).choice(draws, (1000, len(draws)))
        low, high = self.percentiles(again.T)
        return float(low.std()), float(high.std())

    def edge_error(self, param: str) -> float:
        """The larger of both ends' Monte Carlo errors."""
        return max(self.edge_errors(param))

    def touched(self, value: float) -> int:
        """How many resamples have φ at or beyond `value`, 0 or 1, seen from inside (0, 1)."""
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
        """The interval of each parameter by name, and what it rests on."""
        values = asdict(self) | {"warnings": list(self.warnings)}
        values |= {name: list(self.interval(name)) for name in self.draws}
        if "phi" in self.draws:
            values |= {"touched_0": self.touched(0), "touched_1": self.touched(1)}
        return values

    @classmethod
    def from_dict(cls, values: dict) -> "Bootstrap":
        """The bootstrap of `to_dict`'s values; the derived ones are computed anew."""
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
    """A fitted law. Losses and residuals in nats per token; residual = actual - predicted."""

    law: str
    split: str | None  # None where the law does not tell N_once from N_rec
    n_runs: int
    params: dict[str, float]
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
    versions: dict[str, str]  # of the packages that the numbers come from
    residuals: tuple[float, ...]  # in the order of the runs
    interval: Bootstrap | None = None

    @property
    def theta(self) -> np.ndarray:
        """The parameters as the law's coordinates."""
        return get_law(self.law).to_theta(self.params)

    def problem(self, runs: pd.DataFrame) -> Problem:
        """The minimisation that this fit solved. Raises ValueError for runs that are not its."""
        law = get_law(self.law)
        problem = build_problem(runs, law, self.split or "stated", self.delta, self.fixed)
        again = float(problem.objective(self.theta[None])[0])
        if len(runs) != self.n_runs or not np.isclose(again, self.objective, 1e-6, 1e-20):
            raise ValueError(
                f"{len(runs)} runs with objective {again:.6g} at the fit of {self.n_runs} runs "
                f"with {self.objective:.6g}; give the runs that were fitted"
            )
        return problem

    def predict(self, runs: pd.DataFrame) -> np.ndarray:
        """Loss of each run by the law, nats per token [n]; needs the law's columns only."""
        law = get_law(self.law)
        counted = runs if self.split is None else split_params(runs, self.split)
        return np.exp(law.predict(self.theta[None], law.design(counted)).log_loss[0])

    def n_params_effective(self, runs: pd.DataFrame) -> np.ndarray:
        """N_once + r^φ N_rec of each run [n]; N for a law without φ."""
        if "phi" not in self.params:
            return runs["n_params"].to_numpy(float)
        counted = split_params(runs, self.split)
        columns = (counted[name].to_numpy(float) for name in get_law(self.law).columns[:3])
        return n_params_effective(*columns, self.params["phi"])

    def with_interval(self, interval: Bootstrap) -> "FitResult":
        """The same fit, carrying its bootstrap."""
        return replace(self, interval=interval)

    def to_dict(self) -> dict:
        """Plain values by field name; `from_dict` is the exact inverse."""
        values = asdict(replace(self, interval=None))
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        interval = None if self.interval is None else self.interval.to_dict()
        return values | {"interval": interval}

    @classmethod
    def from_dict(cls, values: dict) -> "FitResult":
        """The fit of `to_dict`'s values. Raises ValueError on a missing field."""
        own = _own_fields(cls, values)
        own |= {name: tuple(own[name]) for name in ("warnings", "cases", "sources", "residuals")}
        if own["interval"] is not None:
            own["interval"] = Bootstrap.from_dict(own["interval"])
        return cls(**own | {"status": FitStatus(own["status"])})

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text, also written to `path` if one is given."""
        text = json.dumps(self.to_dict(), indent=2)
        if path is not None:
            Path(path).write_text(text + "\n")
        return text

    @classmethod
    def from_json(cls, text_or_path: str | Path) -> "FitResult":
        """The fit of JSON text, or of the file at that path."""
        text = str(text_or_path)
        return cls.from_dict(
            json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
        )
