"""A law with values: its predictions, its copies, and what it refuses."""

import numpy as np
import pytest

import looped

PARAMS = {"E": 1.6, "A": 30.0, "B": 900.0, "alpha": 0.2, "beta": 0.37, "phi": 0.46}
COUNTS = {"n_once": 2e7, "n_rec": 8e7, "r": 4, "n_tokens": 1e9}


@pytest.fixture
def law():
    return looped.Law("joint", PARAMS, "stated")


def test_the_loss_is_the_published_formula(law):
    n_eff = COUNTS["n_once"] + COUNTS["r"] ** PARAMS["phi"] * COUNTS["n_rec"]
    by_hand = 1.6 + 30.0 * n_eff**-0.2 + 900.0 * COUNTS["n_tokens"] ** -0.37
    assert law.loss(**COUNTS)[0] == pytest.approx(by_hand, rel=1e-14)
    counts = {name: COUNTS[name] for name in ("n_once", "n_rec", "r")}
    assert law.n_eff(**counts)[0] == pytest.approx(n_eff, rel=1e-14)


def test_counts_by_keyword_and_a_table_give_one_loss(law, runs):
    names = {"n_once": "n_params_once", "n_rec": "n_params_rec", "r": "n_recur"}
    counts = {key: runs[column] for key, column in names.items()}
    np.testing.assert_array_equal(law.loss(**counts, n_tokens=runs["n_tokens"]), law.loss(runs))


def test_arrays_and_numbers_mix(law):
    losses = law.loss(**COUNTS | {"n_tokens": [1e9, 1e10, 1e11]})
    assert losses.shape == (3,)
    assert (np.diff(losses) < 0).all()


def test_the_split_of_the_law_counts_the_table(runs):
    laws = [looped.Law("joint", PARAMS, split) for split in ("stated", "fitted")]
    looped_runs = runs[runs["n_recur"] > 1]
    assert not np.allclose(*(law.loss(looped_runs) for law in laws), rtol=1e-6)


def test_a_changed_law_holds_the_other_parameters(law):
    moved = law.at(phi=0.7)
    assert moved.params == PARAMS | {"phi": 0.7}
    assert law.params == PARAMS
    assert moved.loss(**COUNTS)[0] < law.loss(**COUNTS)[0]


def test_a_fit_gives_its_law_and_no_quality_with_a_changed_one(fit_paper, runs):
    fit = fit_paper()
    np.testing.assert_array_equal(fit.law.loss(runs), fit.predict(runs))
    assert fit.at(phi=0.7) == fit.law.at(phi=0.7)
    assert not hasattr(fit.at(phi=0.7), "rmse")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda law, runs: law.loss(), "give a table of runs or counts by keyword, and not both"),
        (lambda law, runs: law.loss(runs, r=4), "and not both"),
        (lambda law, runs: law.loss(r=4, n_tokens=1e9), "law 'joint' needs .*n_params_once"),
        (lambda law, runs: law.loss(runs.drop(columns="n_tokens")), "n_tokens .no such column"),
        (lambda law, runs: law.loss(**COUNTS, depth=3), "unknown counts .'depth'"),
        (lambda law, runs: law.at(psi=1), "got parameters .*psi"),
        (lambda law, runs: looped.Law("joint", {"E": 1.0}), "got parameters .'E'"),
        (lambda law, runs: looped.Law("join", PARAMS), "did you mean 'joint'"),
    ],
)
def test_what_a_law_cannot_do_is_refused(law, runs, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(law, runs)
