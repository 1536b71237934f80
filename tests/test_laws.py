"""The laws: every one that is registered, and what the two of them have in common."""

import numpy as np
import pandas as pd
import pytest

from looped import LAWS, ConfigError
from looped.laws import get_form

EACH_LAW = pytest.mark.parametrize("law", list(LAWS.values()), ids=list(LAWS))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def draw(law, rng, n):
    """Coordinate vectors uniform in the law's box, [n, p]."""
    low, high = np.array(law.bounds, float).T
    return low + (high - low) * rng.random((n, len(low)))


@EACH_LAW
def test_gradient_is_that_of_central_differences(law, runs, rng):
    design, theta = law.design(runs), draw(law, rng, 50)
    gradient = law.predict(theta, design).gradient()
    for k in range(theta.shape[1]):
        step = np.zeros(theta.shape[1])
        step[k] = 1e-5
        ahead, behind = (law.predict(theta + s, design).log_loss for s in (step, -step))
        numeric = (ahead - behind) / 2e-5
        np.testing.assert_allclose(gradient[:, k], numeric, rtol=1e-5, atol=1e-6)


@EACH_LAW
def test_shares_are_those_of_the_terms_and_sum_to_one(law, runs, rng):
    shares = law.predict(draw(law, rng, 50), law.design(runs)).shares
    assert len(shares) == len(law.intercepts)
    np.testing.assert_allclose(sum(shares), 1, rtol=1e-12)


@EACH_LAW
def test_parameters_and_coordinates_are_inverse(law, rng):
    for theta in draw(law, rng, 5):
        np.testing.assert_allclose(law.to_theta(law.to_params(theta)), theta, rtol=1e-12)


@EACH_LAW
def test_the_box_names_each_coordinate(law):
    assert len(law.bounds) == len(law.coordinates) == len(law.param_names)
    assert all(low < high for low, high in law.bounds)


@EACH_LAW
def test_loss_falls_with_tokens_to_the_floor(law, runs, truth):
    params = truth[law.name]
    theta = law.to_theta(params)[None]
    few, many = (
        np.exp(law.predict(theta, law.design(runs.assign(n_tokens=n))).log_loss)
        for n in (1e9, 1e10)
    )
    assert (many < few).all()
    assert (many > params["E"]).all()


@EACH_LAW
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 1.0}, "got parameters .*gamma.* expected"),
        ({"A": -1.0}, "A: got -1.0, expected a positive number"),
        ({"alpha": float("nan")}, "alpha: got nan, expected a finite number"),
    ],
)
def test_parameters_that_are_none_are_refused(law, truth, change, message):
    with pytest.raises(ValueError, match=message):
        law.to_theta(truth[law.name] | change)


def test_a_law_that_is_not_registered_is_refused():
    with pytest.raises(ConfigError, match=r"law: got 'kaplan', expected one of chinchilla, joint"):
        get_form("kaplan")


@pytest.mark.parametrize("phi", [0.0, 1.0])
def test_joint_law_is_chinchilla_at_the_ends_of_phi(runs, truth, phi):
    """φ = 0 sees the unique parameters N, φ = 1 the executed ones N_once + r N_rec."""
    executed = runs["n_params_once"] + runs["n_recur"] * runs["n_params_rec"]
    seen = runs.assign(n_params=runs["n_params"] if phi == 0 else executed)
    joint = predict("joint", truth["joint"] | {"phi": phi}, runs)
    np.testing.assert_allclose(joint, predict("chinchilla", truth["chinchilla"], seen), rtol=1e-13)


def test_phi_does_not_matter_without_recurrence(runs, truth):
    plain = runs[runs["n_recur"] == 1]
    low, high = (predict("joint", truth["joint"] | {"phi": phi}, plain) for phi in (-3, 3))
    np.testing.assert_array_equal(low, high)


def predict(name, params, runs):
    law = LAWS[name]
    return law.predict(law.to_theta(params)[None], law.design(runs)).log_loss[0]


def test_chinchilla_by_hand():
    law = LAWS["chinchilla"]
    theta = law.to_theta({"E": 1.5, "A": 8.0, "B": 27.0, "alpha": 0.5, "beta": 1 / 3})
    run = pd.DataFrame({"n_params": [16.0], "n_tokens": [27.0]})
    loss = np.exp(law.predict(theta[None], law.design(run)).log_loss)
    assert loss[0, 0] == pytest.approx(1.5 + 8 / 4 + 27 / 3)
