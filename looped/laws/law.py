"""`Law`: a form with values. It predicts losses, effective parameters and optimal sizes."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from looped.config import ModelConfig
from looped.errors import require
from looped.laws import get_form
from looped.laws.base import Form
from looped.splits import split_params

COUNTS = {"n_once": "n_params_once", "n_rec": "n_params_rec", "r": "n_recur"}
"""Keyword of a count -> its column in the table of runs, where the two differ."""


@dataclass(frozen=True)
class Law:
    """A loss law with values, for example `Law("joint", {"E": 1.57, ..., "phi": 0.46}, "fitted")`.

    Raises:
        ConfigError: an unknown name of a law.
        ValueError: a parameter that is missing, unknown or out of range.
    """

    name: str  # in `looped.LAWS`
    params: dict[str, float]
    split: str | None = None  # what counts as recurring in a table of runs (`looped.splits`)

    def __post_init__(self) -> None:
        self.form.to_theta(self.params)

    @property
    def form(self) -> Form:
        """Names, bounds and formula of the law."""
        return get_form(self.name)

    @property
    def theta(self) -> np.ndarray:
        """The parameters as the form's coordinates [p]."""
        return self.form.to_theta(self.params)

    def at(self, **params: float) -> "Law":
        """The law with some parameters changed and the others held: `law.at(phi=0.7)`."""
        return replace(self, params=self.params | {k: float(v) for k, v in params.items()})

    def loss(self, runs: pd.DataFrame | None = None, **counts: ArrayLike) -> np.ndarray:
        """Loss of each run by the law, nats per token [n].

        Args:
            runs: a table with the law's columns; `split` decides what of it recurs. Or
            counts: by keyword, arrays or numbers: n_once, n_rec, r, n_tokens of the joint law,
                n_params, n_tokens of a law of one architecture.

        Raises:
            ValueError: neither or both, or a count that the law needs and that is missing.
        """
        table = self._table(runs, counts)
        if not set(self.form.columns) <= set(table):
            require(table, self.form.columns, f"law {self.name!r}")
        return np.exp(self.form.predict(self.theta[None], self.form.design(table)).log_loss[0])

    def n_eff(self, runs: pd.DataFrame | None = None, **counts: ArrayLike) -> np.ndarray:
        """N_once + r^φ N_rec of each run [n]; N by a law without φ. Arguments as of `loss`."""
        return self.form.n_eff(self.params, self._table(runs, counts))

    def optimal(self, budgets: ArrayLike, stack: ModelConfig) -> pd.DataFrame:
        """Compute-optimal N*, D*, L* of one architecture at each budget (training FLOPs).

        Args:
            stack: the architecture; its own d_model is not used.

        Returns:
            One row a budget: split, n_recur, budget, d_model (real), n_params_star, n_tokens_star,
            val_loss_star (nats per token), n_params_effective_star.

        Raises:
            ValueError: a budget that is not positive.
            NoMinimum: the loss still falls at the end of the searched widths.
        """
        from looped.laws.optimal import optima

        return optima(self, stack, np.atleast_1d(np.asarray(budgets, float)))

    def _table(self, runs: pd.DataFrame | None, counts: dict[str, ArrayLike]) -> pd.DataFrame:
        if (runs is None) == (not counts):
            raise ValueError(
                f"law {self.name!r}: give a table of runs or counts by keyword, and not both; it "
                f"reads {self.form.columns}"
            )
        if runs is not None:
            return runs if self.split is None else split_params(runs, self.split)
        columns = {COUNTS.get(name, name): value for name, value in counts.items()}
        if unknown := set(columns) - {*self.form.columns, *COUNTS.values()}:
            raise ValueError(
                f"law {self.name!r}: unknown counts {sorted(unknown)}; it reads {self.form.columns}"
            )
        arrays = [np.atleast_1d(np.asarray(value, float)) for value in columns.values()]
        return pd.DataFrame(dict(zip(columns, np.broadcast_arrays(*arrays), strict=True)))
