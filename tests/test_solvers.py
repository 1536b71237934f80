"""The minimisation: its objective, and solvers that agree on where it ends."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import huber

import looped
from looped import FitError
from looped.fitting import SOLVERS, bootstrap, get_solver
from looped.fitting.batched import race, solve_batched
from looped.fitting.fit import best_of
from looped.fitting.problem import Solution, build_problem
from looped.laws import get_form


@pytest.mark.parametrize("solver", list(SOLVERS))
@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_scale_of_the_objective_does_not_matter(runs, solver, scale):
    problem = build_problem(runs, get_form("joint"), "stated", 1e-3, {})
    heavier = replace(problem, weights=scale * problem.weights)
    starts = problem.draw_starts(20, np.random.default_rng(3))
    plain, scaled = (best_of(get_solver(solver)(each, starts)) for each in (problem, heavier))
    assert scaled[1] / scale == pytest.approx(plain[1], rel=1e-7)
    np.testing.assert_allclose(scaled[0], plain[0], rtol=1e-3)


def test_solvers_find_the_same_optimum(runs, fit_paper):
    reference = looped.fit(runs, split="fitted", starts=10, solver="lbfgsb")
    batched = fit_paper()
    assert batched.objective == pytest.approx(reference.objective, rel=1e-9)
    assert batched.params == pytest.approx(reference.params, rel=1e-4)
    assert batched.starts_at_optimum > 0.9 > reference.starts_at_optimum > 0


@pytest.mark.parametrize(("law", "n_runs", "draw"), [("joint", 12, 148), ("chinchilla", 14, 117)])
def test_small_mixed_tables_end_at_the_optimum_too(all_runs, law, n_runs, draw):
    """Few runs of all three cases at once: flat valleys that end at a bound of the box."""
    few = all_runs.sample(n_runs, random_state=draw)
    reference = looped.fit(few, law, starts=20, solver="lbfgsb")
    batched = looped.fit(few, law, starts=60)
    assert batched.objective == pytest.approx(reference.objective, rel=1e-6)
    assert batched.starts_at_optimum > 0.2


def test_huber_sum_is_that_of_scipy(runs):
    problem = build_problem(runs, get_form("joint"), "stated", 2e-3, {})
    rng = np.random.default_rng(0)
    residuals = rng.normal(scale=2e-3, size=(3, len(runs)))
    weights = rng.integers(0, 4, len(runs))
    expected = huber(2e-3, residuals)
    np.testing.assert_allclose(problem.huber_sum(residuals), expected.sum(axis=1), rtol=1e-13)
    weighted = replace(problem, weights=weights).huber_sum(residuals)
    np.testing.assert_allclose(weighted, expected @ weights, rtol=1e-13)


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_whole_weights_count_as_repeated_runs(runs, solver):
    weights = np.random.default_rng(1).integers(0, 4, len(runs))
    law, solve = get_form("joint"), get_solver(solver)
    weighted = build_problem(runs, law, "stated", 1e-3, {})
    weighted = replace(weighted, weights=weights.astype(float))
    repeated = build_problem(runs.loc[runs.index.repeat(weights)], law, "stated", 1e-3, {})
    starts = weighted.draw_starts(20, np.random.default_rng(3))
    by_weight, by_row = (best_of(solve(problem, starts))[1] for problem in (weighted, repeated))
    assert by_weight == pytest.approx(by_row, rel=1e-8)


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_each_start_may_have_weights_of_its_own(runs, solver):
    problem = build_problem(runs, get_form("joint"), "stated", 1e-3, {})
    starts = problem.draw_starts(3, np.random.default_rng(3))
    weights = np.random.default_rng(1).integers(0, 4, (3, len(runs))).astype(float)
    solve = get_solver(solver)
    together = solve(replace(problem, weights=weights), starts)
    for i, row in enumerate(weights):
        alone = solve(replace(problem, weights=row), starts[i : i + 1])
        assert together.objective[i] == pytest.approx(alone.objective[0], rel=1e-6)


def test_no_finite_start_is_no_estimate():
    nowhere = Solution(np.zeros((3, 6)), np.array([np.nan, np.inf, np.nan]))
    with pytest.raises(FitError, match=r"none of 3 starts .* check the units"):
        best_of(nowhere)


def test_a_start_without_objective_does_not_win():
    theta, objective = best_of(Solution(np.arange(6).reshape(3, 2), np.array([np.nan, 2.0, 3.0])))
    assert (theta.tolist(), objective) == ([2, 3], 2.0)


def six_models(rng):
    """Six models, each trained once: as many runs as a study of one cluster has."""
    n_params = np.array([2e7, 3.5e7, 6e7, 1e8, 1.4e8, 2e8])
    n_tokens = np.array([2e9, 2.2e9, 3e9, 2.5e9, 4e9, 3.5e9])
    return of_law(n_params, n_tokens, rng)


def ladder(rng):
    """D = 20 N exactly: N and D move together, and the exponents share one direction."""
    n_params = np.geomspace(2e7, 2e9, 12)
    return of_law(n_params, 20 * n_params, rng)


def one_budget(rng):
    """6 N D is the same in every run."""
    n_params = np.geomspace(2e7, 2e9, 12)
    return of_law(n_params, 1e19 / (6 * n_params), rng)


def of_law(n_params, n_tokens, rng):
    loss = 1.7 + 400 * n_params**-0.34 + 1000 * n_tokens**-0.33
    noisy = loss * np.exp(1e-3 * rng.standard_normal(len(loss)))
    return pd.DataFrame({"n_params": n_params, "n_tokens": n_tokens, "val_loss": noisy})


@pytest.mark.parametrize("table", [six_models, ladder, one_budget])
def test_races_on_hard_tables_end_where_all_starts_end(table, monkeypatch):
    """With a small sample there are races; with a sample of all, every start runs in each."""
    runs = table(np.random.default_rng(4))
    fit = looped.fit(runs, "chinchilla", starts=40)
    settings = {"resamples": 14, "method": "iid", "starts": 6}
    monkeypatch.setattr(bootstrap, "SAMPLE", 4)
    raced = looped.bootstrap(runs, fit, **settings)
    monkeypatch.setattr(bootstrap, "SAMPLE", 14)
    full = looped.bootstrap(runs, fit, **settings)
    assert raced.refits_worse <= full.refits_worse
    np.testing.assert_allclose(raced.draws["E"], full.draws["E"], atol=2e-3)


@pytest.mark.parametrize(
    "case", ["baseline", pytest.param("truncated_bptt", marks=pytest.mark.slow)]
)
def test_races_on_the_papers_runs_end_where_all_starts_end(case, monkeypatch):
    """Resamples of the truncated runs have two humps in φ."""
    runs = looped.load_runs("paper", case=case)
    fit = looped.fit(runs, split="fitted", starts=40)
    raced = looped.bootstrap(runs, fit, resamples=100)
    monkeypatch.setattr(bootstrap, "SAMPLE", 100)
    full = looped.bootstrap(runs, fit, resamples=100)
    np.testing.assert_allclose(raced.draws["phi"], full.draws["phi"], atol=2e-5)
    assert raced.refits_worse == full.refits_worse


def test_a_race_keeps_the_lowest_end(runs):
    problem = build_problem(runs, get_form("joint"), "stated", 1e-3, {})
    starts = problem.draw_starts(12, np.random.default_rng(3))
    optimum = best_of(solve_batched(problem, starts))
    one_row = replace(problem, weights=problem.weights[None])
    theta, objective = race(one_row, starts[None], rounds=((15, 8), (15, 4)))
    assert objective.min() == pytest.approx(optimum[1], rel=1e-7)
    np.testing.assert_allclose(theta[0], optimum[0], rtol=1e-3)
    assert np.isfinite(objective).sum() <= 4


def test_optima_at_rest_stay_unless_a_candidate_ends_lower(runs):
    problem = build_problem(runs, get_form("joint"), "stated", 1e-3, {})
    starts = problem.draw_starts(12, np.random.default_rng(3))
    optimum, _ = best_of(solve_batched(problem, starts))
    one_row = replace(problem, weights=problem.weights[None])
    candidates = np.vstack([optimum, starts[:3]])[None]
    theta, objective = race(one_row, candidates, rounds=((3, 3),), at_rest=1)
    assert objective.argmin() == 0 or objective[0].min() == pytest.approx(objective[0, 0], rel=1e-6)
    np.testing.assert_allclose(theta[0], optimum, rtol=1e-3)
