"""Fits: the published numbers, known truths, and what must not matter."""

import json
import re

import numpy as np
import pytest

import looped
from looped import FitResult, FitStatus
from looped.fitting import SOLVERS
from looped.fitting.problem import Solution

LOW4 = {"budget_max": 4.64e18}
CASES = {
    "joint": {},
    "low4": LOW4,
    "truncated": {"case": "truncated_bptt"},
    "truncated, no r = 2": {"case": "truncated_bptt", "n_recur": (1, 4, 8)},
    "hyperconnections": {"case": "hyperconnections"},
}


@pytest.mark.parametrize(
    ("split", "case", "phi"),
    [
        ("fitted", "joint", 0.4587),
        ("fitted", "low4", 0.4535),
        ("fitted", "truncated", 0.3800),
        ("fitted", "truncated, no r = 2", 0.3729),
        ("fitted", "hyperconnections", 0.6457),
        ("stated", "joint", 0.4330),
        ("stated", "low4", 0.4290),
        ("stated", "truncated", 0.3615),
        ("stated", "truncated, no r = 2", 0.3529),
        ("stated", "hyperconnections", 0.6497),
        ("once", "joint", 0.4576),
        ("none", "joint", 0.4721),
    ],
)
def test_phi_of_each_split_and_case(fit_paper, split, case, phi):
    fit = fit_paper(split=split, **CASES[case])
    assert round(fit.params["phi"], 4) == phi
    assert fit.status == FitStatus.OK
    assert fit.split == split


@pytest.mark.parametrize(
    ("half", "phi"), [({"budget_max": 2.15e18}, 0.444), ({"budget_min": 4.64e18}, 0.492)]
)
def test_phi_of_the_budget_halves(fit_paper, half, phi):
    assert round(fit_paper(**half).params["phi"], 3) == phi


def test_published_joint_law(fit_paper):
    fit = fit_paper()
    rounded = {name: round(fit.params[name], 4) for name in ("alpha", "beta")}
    assert rounded == {"alpha": 0.1994, "beta": 0.3688}
    assert round(fit.params["E"], 3) == 1.568
    assert round(fit.r2, 4) == 0.9972
    assert fit.n_runs == 116


@pytest.mark.parametrize(("phi", "r2"), [(0.0, 0.9858), (1.0, 0.9552)])
def test_published_quality_at_the_ends_of_phi(fit_paper, phi, r2):
    fit = fit_paper(phi=phi)
    assert round(fit.r2, 4) == r2
    assert fit.params["phi"] == phi
    assert fit.fixed == {"phi": phi}


@pytest.mark.parametrize(
    ("n_recur", "huber"), [(1, 5.84e-5), (2, 5.27e-5), (4, 6.81e-5), (8, 5.33e-5)]
)
def test_published_huber_sum_of_one_law_per_recurrence(fit_paper, n_recur, huber):
    fit = fit_paper(law="chinchilla", n_recur=n_recur)
    assert round(fit.objective, 7) == huber
    assert fit.split is None


def test_every_reported_number_follows_from_the_parameters(fit_paper, runs):
    fit = fit_paper()
    residuals = runs["val_loss"].to_numpy() - fit.predict(runs)
    np.testing.assert_allclose(fit.residuals, residuals, rtol=0, atol=1e-12)
    assert fit.rmse == pytest.approx(np.sqrt(np.mean(residuals**2)))
    assert fit.max_abs_residual == pytest.approx(np.abs(residuals).max())
    assert fit.r2 == pytest.approx(1 - residuals.var() / runs["val_loss"].var(ddof=0), abs=1e-5)
    log_residuals = np.abs(np.log(fit.predict(runs) / runs["val_loss"].to_numpy()))
    beyond = log_residuals > fit.delta
    huber = np.where(beyond, fit.delta * (log_residuals - fit.delta / 2), log_residuals**2 / 2)
    assert fit.objective == pytest.approx(huber.sum(), rel=1e-10)


@pytest.mark.parametrize("law", ["joint", "chinchilla"])
def test_noiseless_runs_give_their_law_back(exact_runs, truth, law):
    fit = looped.fit(exact_runs(law, truth[law]), law, starts=60)
    assert fit.params == pytest.approx(truth[law], rel=1e-6)
    assert fit.r2 == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("phi", [0.0, 1.0])
def test_fits_of_the_nested_laws_agree(runs, fit_paper, phi):
    executed = runs["n_params_once"] + runs["n_recur"] * runs["n_params_rec"]
    seen = runs if phi == 0 else runs.assign(n_params=executed)
    alone = looped.fit(seen, "chinchilla", starts=60)
    nested = fit_paper(split="stated", phi=phi)
    assert nested.objective == pytest.approx(alone.objective, rel=1e-9)
    assert nested.params == pytest.approx(alone.params | {"phi": phi}, rel=1e-4)


def test_row_order_does_not_matter(runs, fit_paper):
    order = np.random.default_rng(0).permutation(len(runs))
    shuffled = looped.fit(runs.iloc[order], split="fitted", starts=60)
    assert shuffled.objective == pytest.approx(fit_paper().objective, rel=1e-12)
    assert shuffled.params == pytest.approx(fit_paper().params, rel=1e-5)
    np.testing.assert_allclose(
        shuffled.residuals, np.array(fit_paper().residuals)[order], atol=1e-7
    )


@pytest.mark.parametrize(("params_unit", "tokens_unit"), [(1e-6, 1.0), (1.0, 1e-9), (1e-9, 1e-6)])
def test_units_of_parameters_and_tokens_do_not_matter(runs, fit_paper, params_unit, tokens_unit):
    names = ["n_params_once", "n_params_rec", "n_params"]
    scaled = runs.assign(n_tokens=runs["n_tokens"] * tokens_unit)
    scaled = scaled.assign(**{name: runs[name] * params_unit for name in names})
    fit, plain = looped.fit(scaled, starts=60), fit_paper(split="stated")
    np.testing.assert_allclose(fit.predict(scaled), plain.predict(runs), rtol=1e-7)
    for name in ("E", "alpha", "beta", "phi"):
        assert fit.params[name] == pytest.approx(plain.params[name], rel=1e-5)


def test_a_held_parameter_stays_and_the_rest_adapts(runs, fit_paper):
    fit = looped.fit(runs, split="fitted", starts=60, fix={"A": 10.0, "beta": 0.4})
    assert (fit.params["A"], fit.params["beta"]) == (10.0, 0.4)
    assert fit.objective > fit_paper().objective


def test_same_seed_same_fit_and_more_starts_no_worse(runs):
    first, again = (looped.fit(runs, starts=20, seed=5) for _ in range(2))
    assert first == again
    other = looped.fit(runs, starts=40, seed=6)
    assert other.objective == pytest.approx(first.objective, rel=1e-9)


def test_delta_beyond_all_residuals_is_least_squares(runs):
    fit = looped.fit(runs, starts=20, delta=1.0)
    log_residuals = np.log(runs["val_loss"].to_numpy() / fit.predict(runs))
    assert fit.objective == pytest.approx(0.5 * (log_residuals**2).sum(), rel=1e-10)


@pytest.mark.parametrize("n_recur", [1, 4])
def test_phi_of_one_recurrence_is_not_identified(n_recur):
    fit = looped.fit(looped.load_runs("paper", n_recur=n_recur), starts=60)
    assert fit.status == FitStatus.NOT_IDENTIFIED
    assert any("phi" in text and "not identified" in text for text in fit.warnings)


def test_tokens_that_never_vary_leave_their_term_unidentified(runs):
    fit = looped.fit(runs.assign(n_tokens=1e9), "chinchilla", starts=60)
    assert fit.status == FitStatus.NOT_IDENTIFIED
    # of B and β, and of E where the term is not small, only the sum is seen
    assert re.match("B, (E, )?beta: not identified", fit.warnings[0])


def test_a_parameter_at_its_bound_is_reported(exact_runs, truth):
    steep = exact_runs("joint", truth["joint"] | {"phi": 3.2})
    fit = looped.fit(steep, starts=60)
    assert fit.status == FitStatus.AT_BOUND
    assert "phi: at the bound" in fit.warnings[0]
    assert fit.params["phi"] == 3.0
    held = looped.fit(steep, starts=60, fix={"phi": 3.0})
    assert fit.objective == pytest.approx(held.objective, rel=1e-6)


@pytest.mark.parametrize("arrived", [1, 2])
def test_few_arrived_starts_are_reported(runs, fit_paper, monkeypatch, arrived):
    optimum = fit_paper(split="stated")

    def solver(problem, starts):
        objective = np.full(len(starts), 2 * optimum.objective)
        objective[:arrived] = optimum.objective
        return Solution(np.tile(optimum.law.theta, (len(starts), 1)), objective)

    monkeypatch.setitem(SOLVERS, "batched", solver)
    fit = looped.fit(runs, starts=4)
    assert fit.starts_at_optimum == arrived / 4
    assert fit.status == (FitStatus.FEW_STARTS if arrived == 1 else FitStatus.OK)
    assert any("1 of 4 starts reached" in text for text in fit.warnings) == (arrived == 1)


def test_doubtful_data_are_reported_and_still_fitted(runs):
    copy = runs.assign(source=runs["source"].where(runs.index > 0, "measured"))
    twice = looped.fit(copy.iloc[[0, 0, *range(1, 116)]], starts=20)
    assert any(text.startswith("1 runs repeat the settings") for text in twice.warnings)
    assert "runs of mixed sources: digitised, measured" in twice.warnings
    looped_only = looped.fit(looped.load_runs("paper", n_recur=[2, 4, 8]), starts=20)
    assert "no r = 1 runs: φ has no non-looped anchor" in looped_only.warnings
    one = looped.fit(runs[runs["budget"] == 1e18], starts=20)
    assert any(text.startswith("only one budget") for text in one.warnings)
    billions = looped.fit(runs.assign(n_tokens=runs["n_tokens"] / 1e9), starts=20)
    assert any(text.startswith("n_tokens from 0.") for text in billions.warnings)
    mixed = looped.fit(runs[runs["n_recur"] < 4], law="chinchilla", starts=20)
    assert "a law of one architecture on runs of r = 1, 2" in mixed.warnings


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({}, {"law": "kaplan"}, "law: got 'kaplan', expected one of"),
        ({}, {"split": "even"}, "split: got 'even', expected one of"),
        ({}, {"solver": "adam"}, "solver: got 'adam', expected one of"),
        ({}, {"starts": 0}, "starts: got 0, expected at least 1"),
        ({}, {"delta": 0.0}, "delta: got 0.0, expected a positive number"),
        ({}, {"fix": {"psi": 1.0}}, "no parameter 'psi'; it has .*'phi'"),
        ({}, {"fix": {"A": -1.0}}, "A: got -1.0, expected a positive number"),
        ({}, {"fix": {"phi": float("nan")}}, "phi: got nan, expected a finite number"),
        ({"val_loss": -1.0}, {}, "val_loss: got -1 in row 0, expected a positive number"),
        ({"n_tokens": np.inf}, {}, "n_tokens: got inf in row 0, expected a positive number"),
        ({"n_params_rec": -1.0}, {}, "n_params_rec: got -1 in row 0"),
        ({"val_loss": 2.5}, {}, "val_loss is the same in every run"),
        ({"n_tokens": np.nan}, {}, "needs the columns .*'n_tokens': 'missing in row 0'"),
    ],
)
def test_what_cannot_be_fitted_is_refused(runs, change, arguments, message):
    with pytest.raises(ValueError, match=message):
        looped.fit(runs.assign(**change), **arguments)


def test_too_few_runs_and_no_free_parameter_are_refused(runs, truth):
    with pytest.raises(ValueError, match="6 free parameters, got 6 runs; give more runs or hold"):
        looped.fit(runs[:6])
    with pytest.raises(ValueError, match=r"needs the columns .*'n_recur': 'no such column'"):
        looped.fit(runs.drop(columns="n_recur"))
    with pytest.raises(ValueError, match="fix holds every parameter of law 'joint'"):
        looped.fit(runs, fix=truth["joint"])


def test_fit_survives_json_exactly(fit_paper, runs, tmp_path):
    fit = fit_paper().with_interval(
        looped.bootstrap(runs, fit_paper(), resamples=3, starts=10, jobs=1)
    )
    assert FitResult.from_json(fit.to_json()) == fit
    path = tmp_path / "fit.json"
    fit.to_json(path)
    assert FitResult.from_json(path) == fit
    assert json.loads(path.read_text())["interval"]["phi"] == list(fit.interval.interval("phi"))


def test_a_file_of_another_kind_is_no_fit(fit_paper):
    values = fit_paper().to_dict()
    with pytest.raises(ValueError, match=r"not a FitResult: missing \['r2'\], unknown \['R2'\]"):
        FitResult.from_dict({"R2" if k == "r2" else k: v for k, v in values.items()})


def test_effective_parameters_are_unique_ones_where_nothing_recurs(fit_paper, runs):
    fit = fit_paper(split="stated")
    effective = fit.law.n_eff(runs)
    plain = (runs["n_recur"] == 1).to_numpy()
    np.testing.assert_allclose(effective[plain], runs["n_params"][plain], rtol=1e-12)
    assert (effective[~plain] > runs["n_params"][~plain]).all()
    per_r = fit_paper(law="chinchilla", n_recur=4)
    np.testing.assert_array_equal(per_r.law.n_eff(runs), runs["n_params"])


def test_a_fit_shows_itself_in_a_line_a_text_and_a_table(fit_paper, runs):
    bare = fit_paper()
    fit = bare.with_interval(looped.bootstrap(runs, bare, resamples=300, starts=4))
    assert len(repr(fit)) < 1000
    assert len(repr(fit.interval)) < 1000
    low, high = fit.interval.interval("phi")
    for shown in (fit.summary(), fit._repr_html_()):
        assert f"{fit.params['phi']:.6g}" in shown
        assert f"{low:.5g} to {high:.5g}" in shown
        assert "R² 0.99723" in shown
        assert "split fitted" in shown
        assert all(warning in shown for warning in fit.interval.warnings)
    assert "held" in fit_paper(phi=0.0).summary()
    assert "[" not in repr(bare)
