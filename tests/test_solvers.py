"""The minimisation: its objective, and solvers that agree on where it ends."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import huber

import looped
from looped import FitError
from looped.fitting import SOLVERS, get_solver
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
