"""Compute-optimal sizes: against a search by force, and against closed forms."""

from dataclasses import replace

import numpy as np
import pytest

from looped import (
    NoMinimum,
    accounting,
    exponents,
    isoflop_minima,
    paper_config,
    power_law_exponents,
    runs_at_width,
)
from looped.laws.optimal import exponent

BUDGETS = [1e18, 1e20]


@pytest.mark.parametrize("n_recur", [1, 8])
def test_no_width_of_a_fine_grid_is_better(fit_paper, n_recur):
    fit, config = fit_paper(), paper_config(640, n_recur)
    for best in fit.law.optimal(BUDGETS, config).itertuples():
        widths = best.d_model * np.exp(np.linspace(-1, 1, 20_001))
        losses = fit.predict(runs_at_width(config, widths, budget=best.budget))
        assert widths[losses.argmin()] == pytest.approx(best.d_model, rel=2e-4)
        assert best.val_loss_star <= losses.min()
        assert best.val_loss_star == pytest.approx(losses.min(), abs=1e-9)


@pytest.mark.parametrize("n_recur", [1, 4])
def test_the_optimum_spends_its_budget(fit_paper, n_recur):
    fit, config = fit_paper(), paper_config(640, n_recur)
    best = fit.law.optimal(BUDGETS, config)
    width = best["d_model"].to_numpy()
    spent = best["n_tokens_star"] * accounting.flops_per_token(config, width)
    np.testing.assert_allclose(spent, BUDGETS, rtol=1e-12)
    np.testing.assert_allclose(best["n_params_star"], accounting.n_params(config, width))


def test_sizes_follow_the_closed_form_where_flops_are_a_power_law(fit_paper):
    """Almost without vocabulary and context F = 6 N: N* = (α A / β B (C / 6)^β)^(1 / (α + β))."""
    fit = fit_paper(law="chinchilla", n_recur=1)
    config = replace(paper_config(640, 1), vocab_size=1, vocab_used=None, seq_len=1)
    a, b, alpha, beta = (fit.params[name] for name in ("A", "B", "alpha", "beta"))
    budgets = np.array([1e20, 1e22, 1e24])
    best = fit.law.optimal(budgets, config)
    expected = (alpha * a / (beta * b) * (budgets / 6) ** beta) ** (1 / (alpha + beta))
    np.testing.assert_allclose(best["n_params_star"], expected, rtol=2e-3)
    assert exponent(budgets, best["n_params_star"]) == pytest.approx(
        beta / (alpha + beta), abs=1e-3
    )
    approximate = power_law_exponents(fit.law, config, best["d_model"])
    assert approximate["kappa"] == pytest.approx(1, abs=1e-3)
    assert approximate["n_params_star"] == pytest.approx(beta / (alpha + beta), abs=1e-3)
    assert approximate["n_params_star"] + approximate["n_tokens_star"] == pytest.approx(1, abs=1e-3)


def test_published_exponents_of_unique_parameters(fit_paper, runs):
    """They follow from F taken as a power law of N; the exact F gives smaller ones."""
    expected = [(1, 0.57, 0.495), (2, 0.70, 0.623), (4, 0.76, 0.667), (8, 0.67, 0.599)]
    for n_recur, power_law, exact in expected:
        fit, config = fit_paper(law="chinchilla", n_recur=n_recur), paper_config(640, n_recur)
        d_model = runs.loc[runs["n_recur"] == n_recur, "d_model"]
        approximate = power_law_exponents(fit.law, config, d_model)
        assert approximate["n_params_star"] == pytest.approx(power_law, abs=0.006)
        budgets = runs["budget"].unique()
        best = fit.law.optimal(budgets, config)
        found = exponents(best).loc[n_recur]
        assert found["n_params_star"] == pytest.approx(exact, abs=0.001)
        assert found["n_tokens_star"] == exponent(budgets, best["n_tokens_star"])


def test_exponents_leave_refused_minima_out(runs):
    minima = isoflop_minima(runs)
    refused = minima.assign(
        n_params_star=minima["n_params_star"].mask(minima["n_recur"].eq(2) & (minima.index % 2))
    )
    found = exponents(refused)
    assert list(found.index) == [1, 2, 4, 8]
    assert found.loc[[1, 4, 8]].equals(exponents(minima).loc[[1, 4, 8]])


def test_an_exponent_is_the_slope_in_logarithms():
    budgets = np.array([1e18, 1e19, 1e20])
    assert exponent(budgets, 3 * budgets**0.7) == pytest.approx(0.7)


def test_a_budget_without_optimum_in_reach_is_refused(fit_paper):
    with pytest.raises(NoMinimum, match=r"no compute-optimal width at 1e\+03 FLOPs, r = 4"):
        fit_paper().law.optimal(1e3, paper_config(640, 4))


@pytest.mark.parametrize("budget", [0.0, -1e18, float("nan")])
def test_a_budget_that_is_none_is_refused(fit_paper, budget):
    with pytest.raises(ValueError, match=r"budgets: got .*, expected positive numbers of FLOPs"):
        fit_paper().law.optimal([1e18, budget], paper_config(640, 4))


def test_width_rows_are_counted_as_the_runs_are(runs):
    looped_runs = runs[runs["n_recur"] == 4]
    config = paper_config(640, 4)
    widths = looped_runs["d_model"].to_numpy(float)
    rows = runs_at_width(config, widths, n_tokens=looped_runs["n_tokens"].to_numpy())
    for name in ("n_params_once", "n_params_rec", "n_params", "flops_per_token"):
        np.testing.assert_array_equal(rows[name], looped_runs[name])
    np.testing.assert_allclose(rows["budget"], looped_runs["budget"], rtol=0.01)


@pytest.mark.parametrize("given", [{}, {"budget": 1e18, "n_tokens": 1e9}])
def test_width_rows_need_either_a_budget_or_tokens(given):
    with pytest.raises(ValueError, match="give budget or n_tokens, and not both"):
        runs_at_width(paper_config(640, 4), 640, **given)
