"""Hold-outs and predictions: against the law that made the runs, and against plain refits."""

import numpy as np
import pandas as pd
import pytest
from charts import PREDICTIONS, WIDTH_GAPS, csv_of, drawn_text, spec_of

import looped
from looped import figures

STARTS = {"starts": 40}


@pytest.fixture(scope="module")
def pair():
    """The s = 34 pair of the paper, as rows that a law can predict."""
    specs = looped.get_grid("paper-extrapolation")
    rows = [
        looped.runs_at_width(spec.model, spec.model.d_model, n_tokens=spec.train.n_tokens)
        for spec in specs
    ]
    return pd.concat(rows, ignore_index=True)


@pytest.fixture(scope="module")
def top(runs):
    return looped.hold_out(runs, [2.15e19], split="fitted", **STARTS)


@pytest.fixture(scope="module")
def resampled(runs, fit_paper):
    return looped.bootstrap(runs, fit_paper(), resamples=60, starts=10)


@pytest.mark.parametrize("law", ["joint", "chinchilla"])
def test_exact_runs_predict_what_was_held_out(exact_runs, truth, law, pair):
    exact = exact_runs(law, truth[law])
    held = looped.hold_out(exact, [1e19, 2.15e19], law, **STARTS)
    assert held.rmse < 1e-6
    assert held.runs["held_out"].sum() == 20 + 16
    beyond = held.fit.at(**truth[law]).loss(pair)
    np.testing.assert_allclose(held.fit.predict(pair), beyond, rtol=1e-6)


def test_the_fit_sees_nothing_of_what_is_held_out(runs, top):
    out = runs["budget"] == 2.15e19
    spoiled = runs.assign(val_loss=runs["val_loss"].where(~out, 3.0))
    again = looped.hold_out(spoiled, 2.15e19, split="fitted", **STARTS)
    assert again.fit.params == top.fit.params
    assert again.rmse > 10 * top.rmse
    plain = looped.fit(runs[~out], split="fitted", **STARTS)
    assert plain.params == top.fit.params


def test_residuals_are_actual_minus_predicted(runs, top):
    out = runs[runs["budget"] == 2.15e19]
    error = out["val_loss"].to_numpy() - top.fit.predict(out)
    assert top.rmse == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)
    fitted = top.fitted
    np.testing.assert_allclose(fitted["residual"], top.fit.residuals, atol=1e-12)
    assert len(fitted) == top.fit.n_runs == 100
    assert looped.bootstrap(fitted, top.fit, resamples=2, starts=2).n_units == 20
    assert top.label == "without 2.15e19"


def test_the_level_of_the_published_pair_is_over_predicted_and_its_gap_under(fit_paper, pair):
    """Reported: 2.047 and 2.108. By the law from our own fit of the paper's protocol."""
    at_1, at_4 = fit_paper().predict(pair)
    assert at_1 == pytest.approx(2.114, abs=2e-3)
    assert at_4 == pytest.approx(2.164, abs=2e-3)
    assert min(at_1 - 2.047, at_4 - 2.108) > 0.05 > abs(at_4 - at_1 - 0.061)


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ([3e18], r"got \[3e\+18\], expected one or more of the runs' \[4.64e\+17, 1e\+18"),
        ([2.15e19, 3e18], r"got \[3e\+18, 2.15e\+19\]"),
        ([], r"got \[\]"),
    ],
)
def test_unknown_budgets_are_refused(runs, budgets, message):
    with pytest.raises(ValueError, match=message):
        looped.hold_out(runs, budgets)


def test_too_few_runs_left_are_refused(runs):
    at_8 = runs[runs["n_recur"] == 8]
    with pytest.raises(ValueError, match=r"leaves 4 of 29 runs, but law 'chinchilla' has 5 free"):
        looped.hold_out(at_8, sorted(at_8["budget"].unique())[1:], "chinchilla")
    with pytest.raises(ValueError, match="leaves 0 of 116 runs"):
        looped.hold_out(runs, runs["budget"])
    held = looped.hold_out(
        at_8,
        sorted(at_8["budget"].unique())[1:],
        "chinchilla",
        fix={"alpha": 0.2, "beta": 0.3},
        **STARTS,
    )
    assert held.fit.n_runs == 4


def test_runs_without_budget_are_refused(runs):
    with pytest.raises(ValueError, match="hold_out needs budget of every run"):
        looped.hold_out(runs.drop(columns="budget"), [1e18])


class TestPredictions:
    def test_every_draw_is_the_law_at_its_parameters(self, fit_paper, resampled, pair):
        losses = looped.predict_draws(fit_paper(), resampled, pair)
        assert losses.shape == (60, 2)
        third = {name: values[3] for name, values in resampled.draws.items()}
        expected = fit_paper().at(**third).loss(pair)
        np.testing.assert_allclose(losses[3], expected, rtol=1e-12)

    def test_the_interval_is_of_the_draws_and_holds_the_prediction(
        self, fit_paper, resampled, pair
    ):
        interval = looped.predict_interval(fit_paper(), resampled, pair)
        losses = looped.predict_draws(fit_paper(), resampled, pair)
        np.testing.assert_allclose(interval["low"], np.percentile(losses, 2.5, axis=0))
        np.testing.assert_allclose(interval["high"], np.percentile(losses, 97.5, axis=0))
        assert (interval["low"] < interval["predicted"]).all()
        assert (interval["predicted"] < interval["high"]).all()

    def test_held_parameters_are_the_fits(self, runs, fit_paper, pair):
        fit = fit_paper(phi=1.0)
        resampled = looped.bootstrap(runs, fit, resamples=3, starts=5)
        losses = looped.predict_draws(fit, resampled, pair)
        one = {name: values[0] for name, values in resampled.draws.items()} | {"phi": 1.0}
        np.testing.assert_allclose(losses[0], fit.at(**one).loss(pair))

    def test_the_bootstrap_of_another_fit_is_refused(self, fit_paper, resampled, pair):
        with pytest.raises(ValueError, match="pass the bootstrap of this fit"):
            looped.predict_draws(fit_paper(phi=1.0), resampled, pair)


@pytest.mark.slow
def test_intervals_cover_the_truth_of_simulated_runs(exact_runs, truth, pair):
    """Independent normal noise in log loss: a 95 % interval misses far less than half the time."""
    rng = np.random.default_rng(0)
    true = looped.fit(exact_runs("joint", truth["joint"]), starts=20).predict(pair)
    covered = []
    for _ in range(12):
        noisy = exact_runs("joint", truth["joint"], rng.normal(0, 0.003, 116))
        fit = looped.fit(noisy, starts=20)
        resampled = looped.bootstrap(noisy, fit, resamples=60, starts=5, method="iid")
        interval = looped.predict_interval(fit, resampled, pair)
        covered.append((interval["low"] <= true) & (true <= interval["high"]))
    assert np.mean(covered) >= 0.75


class TestFigures:
    def test_shaded_budgets_are_those_held_out(self, runs):
        held = looped.hold_out(runs, [1e18, 2.15e19], split="fitted", **STARTS)
        chart = figures.held_out_residuals([held])
        drawn = csv_of(chart)
        assert set(drawn.loc[drawn["held_out"], "budget"]) == {1e18, 2.15e19}
        np.testing.assert_allclose(drawn["residual"], held.runs["residual"], rtol=1e-9)
        bands = [
            row
            for rows in spec_of(chart)["datasets"].values()
            for row in rows
            if set(row) == {"budget", "end"}
        ]
        spans = [(band["budget"], band["end"]) for band in bands]
        for (low, high), budget in zip(spans, held.budgets, strict=True):
            assert low < budget < high
        assert all(not low < 2.15e18 < high for low, high in spans)
        assert f"{held.rmse:.4f} where held out" in spec_of(chart)["description"]

    def test_no_hold_out_is_refused(self):
        with pytest.raises(ValueError, match="no hold-out"):
            figures.held_out_residuals([])

    def test_only_reported_values_have_a_line(self):
        description = spec_of(figures.prediction_intervals(PREDICTIONS))["description"]
        assert description.count("reported 2.047") == 2
        assert description.count("reported") == 2
        alone = figures.prediction_intervals(PREDICTIONS.assign(reported=np.nan))
        assert "line: reported" not in drawn_text(alone)
        assert "line: reported" in drawn_text(figures.prediction_intervals(PREDICTIONS))

    def test_every_width_is_labelled_and_the_published_pair_stands_alone(self):
        text = drawn_text(figures.gaps_at_width(WIDTH_GAPS))
        assert text.count(">768<") == 1
        assert text.count(">2,176<") + text.count(">2176<") == 2
        assert "ring: published" in text
        measured = WIDTH_GAPS.assign(source="measured")
        assert "ring: published" not in drawn_text(figures.gaps_at_width(measured))
