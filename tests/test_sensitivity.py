"""Sensitivity of a fit: standard errors against known noise, and the profile against refits."""

import numpy as np
import pytest

import looped


def test_standard_errors_are_the_spread_of_refits_to_independent_noise(exact_runs, truth):
    """Noise of a known size, drawn here and by `propagate_se`, spreads φ alike."""
    exact = exact_runs("joint", truth["joint"]).assign(val_loss_se=0.002)
    fit = looped.fit(exact, starts=20)
    rng = np.random.default_rng(5)
    phis = [
        looped.fit(
            exact.assign(val_loss=exact["val_loss"] + rng.normal(0, 0.002, len(exact))), starts=4
        ).params["phi"]
        for _ in range(60)
    ]
    found = looped.propagate_se(exact, fit, draws=400)
    assert found["phi"] == pytest.approx(np.std(phis, ddof=1), rel=0.3)


def test_standard_errors_grow_with_those_of_the_runs(runs, fit_paper):
    fit = fit_paper()
    small, large = (
        looped.propagate_se(runs.assign(val_loss_se=se), fit, draws=200) for se in (1e-5, 1e-4)
    )
    np.testing.assert_allclose(large / small, 10, rtol=0.05)


def test_a_held_parameter_has_no_error(runs, fit_paper):
    assert looped.propagate_se(runs, fit_paper(phi=1.0), draws=5)["phi"] == 0


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"draws": 1}, "draws: got 1, expected at least 2"),
        ({"val_loss_se": np.nan}, {}, "propagate_se needs val_loss_se of every run"),
        ({"val_loss_se": 0.5}, {}, "val_loss_se is above a tenth of val_loss"),
        ({"val_loss": 3.0}, {}, "val_loss is the same in every run"),
        ({"n_tokens": 1e9}, {}, "pass the runs that were fitted"),
    ],
)
def test_runs_without_usable_errors_are_refused(runs, fit_paper, change, options, message):
    with pytest.raises(ValueError, match=message):
        looped.propagate_se(runs.assign(**change), fit_paper(), **options)


def test_the_profile_is_the_refit_at_each_phi_and_lowest_at_the_fit(runs, fit_paper):
    fit = fit_paper()
    profile = looped.profile_phi(runs, fit, [1.0, fit.params["phi"], 0.0], starts=40)
    assert profile["phi"].tolist() == [0.0, fit.params["phi"], 1.0]
    assert profile["split"].eq("fitted").all()
    assert profile["objective"][1] == pytest.approx(fit.objective, rel=1e-6)
    assert profile["objective"][0] == pytest.approx(fit_paper(phi=0.0).objective, rel=1e-6)
    assert profile["rmse"][2] == pytest.approx(fit_paper(phi=1.0).rmse, rel=1e-5)
