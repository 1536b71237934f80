"""Runs and fits that many tests look at, made once a session."""

import os
from functools import cache

# SciPy's L-BFGS-B is up to ten times slower when its tiny systems are given several threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

import looped
from looped.laws import get_form

STARTS = 100
"""Enough for every fit here: about nine starts in ten arrive."""


@pytest.fixture(scope="session")
def runs():
    """The paper's 116 baseline runs."""
    return looped.load_runs("paper")


@pytest.fixture(scope="session")
def all_runs():
    """The 240 digitised runs of the three cases."""
    return looped.load_runs("paper", case=None)


@pytest.fixture(scope="session")
def fit_paper():
    """`looped.fit` on a selection of the paper's runs, each fit made once."""

    @cache
    def fitted(*, case="baseline", split="fitted", law="joint", phi=None, **selection):
        selected = looped.load_runs("paper", case=case, **selection)
        held = {} if phi is None else {"phi": phi}
        return looped.fit(selected, law, split, starts=STARTS, fix=held)

    return fitted


@pytest.fixture(scope="session")
def exact_runs(runs):
    """Function of a law and its parameters: the paper's grid with the losses of that law."""

    def exact(law, params, noise=None):
        known = get_form(law)
        log_loss = known.predict(known.to_theta(params)[None], known.design(runs)).log_loss[0]
        return runs.assign(val_loss=np.exp(log_loss + (0 if noise is None else noise)))

    return exact


@pytest.fixture(scope="session")
def truth():
    """Parameters of the laws from which synthetic runs are drawn."""
    joint = {"E": 1.6, "A": 30.0, "B": 900.0, "alpha": 0.2, "beta": 0.37, "phi": 0.46}
    return {"joint": joint, "chinchilla": {k: v for k, v in joint.items() if k != "phi"}}
