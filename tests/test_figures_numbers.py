"""Figures draw the numbers that they were given.

Numbers are read back from the CSV that the chart carries, from its specification, or from Vega's
own drawing of it.
"""

from dataclasses import replace

import numpy as np
import pytest
from charts import (
    PROFILE,
    STUDIES,
    TASK_GAPS,
    TASK_LOSSES,
    csv_of,
    drawn_of,
    drawn_text,
    ratios,
    sections,
    spec_of,
)

import looped
from looped import figures
from looped.figures.slider import predicted_loss


@pytest.fixture(scope="module")
def paper(runs, fit_paper):
    return drawn_of(runs, fit_paper())


class TestIsoflop:
    def test_stars_are_the_minima(self, paper):
        drawn = csv_of(figures.isoflop(paper.runs, paper.minima))
        stars = drawn[drawn["kind"] == "minimum"]
        np.testing.assert_allclose(stars["n_params"], paper.minima["n_params_star"], rtol=1e-12)
        np.testing.assert_allclose(stars["val_loss"], paper.minima["val_loss_star"], rtol=1e-12)

    def test_parabolas_are_least_squares_of_their_cells(self, paper):
        drawn = csv_of(figures.isoflop(paper.runs, paper.minima))
        curves = drawn[drawn["kind"] == "parabola"].groupby(["n_recur", "budget"])
        cells = paper.runs.groupby(["n_recur", "budget"])
        assert len(curves) == len(cells)
        for key, curve in curves:
            cell = cells.get_group(key)
            centre = np.log(cell["n_params"]).mean()
            parabola = np.polyfit(np.log(cell["n_params"]) - centre, cell["val_loss"], 2)
            expected = np.polyval(parabola, np.log(curve["n_params"]) - centre)
            np.testing.assert_allclose(curve["val_loss"], expected, rtol=1e-9)
            assert curve["n_params"].agg(["min", "max"]).to_list() == pytest.approx(
                cell["n_params"].agg(["min", "max"]).to_list()
            )

    def test_every_run_is_drawn(self, paper):
        drawn = csv_of(figures.isoflop(paper.runs, paper.minima))
        losses = drawn[drawn["kind"] == "run"]["val_loss"]
        assert sorted(losses) == sorted(paper.runs["val_loss"])

    def test_refused_cell_keeps_its_runs_only(self, paper):
        few = paper.runs.drop(paper.runs.query("n_recur == 2 and budget == 4.64e17").index[2:])
        chart = figures.isoflop(few, looped.isoflop_minima(few))
        cell = csv_of(chart).query("n_recur == 2 and budget == 4.64e17")
        assert cell["kind"].to_list().count("run") == 2
        assert set(cell["kind"]) == {"run", "minimum of r = 1"}
        assert "Without a minimum: 1 cell." in spec_of(chart)["description"]

    def test_all_cells_refused(self, paper):
        two = paper.runs.groupby(["n_recur", "budget"]).head(2)
        drawn = csv_of(figures.isoflop(two, looped.isoflop_minima(two)))
        assert set(drawn["kind"]) == {"run"}

    def test_curves_of_a_fit_are_its_predictions(self, paper):
        drawn = csv_of(figures.isoflop(paper.runs, paper.minima, paper.fit))
        curves = drawn[drawn["kind"] == "prediction"]["val_loss"]
        np.testing.assert_allclose(curves, paper.fit.predict(paper.runs), rtol=1e-12)
        assert "parabola" not in set(drawn["kind"])

    def test_one_budget(self, paper):
        one = paper.runs[paper.runs["budget"] == 1e18]
        assert (
            len(csv_of(figures.isoflop(one, looped.isoflop_minima(one))).query("kind == 'run'"))
            == 20
        )


class TestSlider:
    def test_law_of_the_browser_is_the_law_of_the_fit(self, paper):
        counted = looped.split_params(paper.runs, paper.fit.split)
        names = {"datum": counted.astype({"n_recur": float}), "pow": np.power}
        for phi in (0.0, paper.fit.params["phi"], 1.0):
            at = paper.fit.at(phi=phi)
            value = eval(predicted_loss(paper.fit, "phi"), names | {"phi": phi})
            np.testing.assert_allclose(value, at.loss(paper.runs), rtol=1e-12)

    def test_error_drawn_by_vega_is_that_of_the_fit(self, paper):
        drawn = drawn_text(figures.phi_slider(paper.runs, paper.fit))
        assert f"RMSE {paper.fit.rmse:.4f} nats" in drawn

    def test_starts_at_the_fit_and_offers_all_budgets(self, paper):
        phi, budget = spec_of(figures.phi_slider(paper.runs, paper.fit))["params"]
        assert phi["value"] == pytest.approx(paper.fit.params["phi"], abs=1e-4)
        assert (phi["bind"]["min"], phi["bind"]["max"]) == (0, 1)
        assert budget["bind"]["options"] == sorted(set(paper.runs["budget"]))

    def test_needs_a_law_with_phi(self, paper, fit_paper):
        with pytest.raises(ValueError, match="no φ"):
            figures.phi_slider(paper.runs, fit_paper(law="chinchilla"))


class TestOptima:
    def test_frontier_holds_minima_and_law(self, paper):
        drawn = csv_of(figures.frontier(paper.minima, paper.optimal))
        crosses, law = (drawn[drawn["kind"] == kind]["val_loss"] for kind in ("minimum", "law"))
        np.testing.assert_allclose(crosses, paper.minima["val_loss_star"], rtol=1e-12)
        np.testing.assert_allclose(law, paper.optimal["val_loss_star"], rtol=1e-12)

    def test_refused_minima_are_left_out(self, paper):
        refused = paper.minima.assign(
            val_loss_star=paper.minima["val_loss_star"].mask(lambda x: x > 2.9)
        )
        drawn = csv_of(figures.frontier(refused, paper.optimal))
        assert (
            drawn["kind"].to_list().count("minimum") == (paper.minima["val_loss_star"] <= 2.9).sum()
        )

    def test_gaps_carry_the_published_ranges(self, paper):
        gaps = looped.loss_gaps(paper.minima)
        drawn = csv_of(figures.gaps(gaps, {2: (0.03, 0.06), 3: (0.1, 0.2)}))
        np.testing.assert_allclose(drawn["gap"], gaps["gap"], rtol=1e-12)
        assert set(drawn.dropna()["n_recur"]) == {2}

    def test_sizes_of_minima_are_drawn(self, paper):
        drawn = csv_of(figures.optimal_sizes(paper.optimal, paper.minima))
        points = drawn.query("kind == 'minimum'")
        for size in ("n_params", "n_tokens"):
            np.testing.assert_allclose(points[size], paper.minima[f"{size}_star"], rtol=1e-12)


class TestQuality:
    def test_predictions_and_residuals_are_the_fits(self, paper):
        for figure in (figures.predicted_actual, figures.residuals):
            drawn = csv_of(figure({"joint": (paper.runs, paper.fit)}))
            np.testing.assert_allclose(drawn["residual"], paper.fit.residuals, atol=1e-12)
            np.testing.assert_allclose(drawn["predicted"] + drawn["residual"], drawn["val_loss"])

    def test_a_panel_a_fit_with_its_error(self, paper, fit_paper):
        one = paper.runs[paper.runs["n_recur"] == 1]
        plain = fit_paper(law="chinchilla", n_recur=1)
        spec = spec_of(
            figures.predicted_actual({"all": (paper.runs, paper.fit), "r = 1": (one, plain)})
        )
        titles = [(panel["title"]["text"], panel["title"]["subtitle"]) for panel in spec["concat"]]
        assert [label for label, _ in titles] == ["all", "r = 1"]
        assert f"RMSE {plain.rmse:.4f}" in titles[1][1]

    def test_refuses_runs_of_another_fit(self, paper):
        with pytest.raises(
            ValueError, match=r"115 runs with objective .* expected the 116 runs of the fit"
        ):
            figures.residuals({"joint": (paper.runs[1:], paper.fit)})

    def test_refuses_no_fit(self):
        with pytest.raises(ValueError, match="got no fit, expected at least one"):
            figures.predicted_actual({})


class TestPhi:
    def test_every_resample_is_in_a_bar(self, paper):
        drawn = csv_of(figures.bootstrap_histogram({"a": paper.boot, "b": paper.boot}))
        assert drawn.groupby("label")["n_resamples"].sum().to_dict() == {"a": 12, "b": 12}

    @pytest.mark.parametrize(
        ("draws", "near"), [([0.44, 0.5], []), ([0.02, 0.3], [0]), ([0.7, 0.97], [1])]
    )
    def test_ends_are_in_view_only_if_near(self, paper, draws, near):
        boot = replace(paper.boot, draws={"phi": draws})
        drawn = csv_of(figures.bootstrap_histogram({"a": boot}))
        low, high = drawn["phi"].min(), drawn["phi_end"].max()
        assert [value for value in (0, 1) if low <= value <= high] == near

    def test_one_value_in_all_resamples(self, paper):
        boot = replace(paper.boot, draws={"phi": [0.5] * 12})
        assert csv_of(figures.bootstrap_histogram({"a": boot}))["n_resamples"].max() == 12

    def test_study_without_published_value(self):
        spec = spec_of(figures.split_phi(STUDIES))
        assert sorted(len(rows) for rows in spec["datasets"].values()) == [1, 4]
        assert "low half: fitted 0.440 and stated 0.420." in spec["description"]

    def test_long_names_of_studies_are_broken_and_not_cut(self):
        drawn = drawn_text(figures.split_phi(STUDIES.assign(study="truncated BPTT without r = 2")))
        assert ">truncated BPTT<" in drawn
        assert ">without r = 2<" in drawn

    def test_profile_is_relative_to_its_minimum(self):
        chart = figures.profile(PROFILE)
        assert csv_of(chart)["relative_objective"].to_list() == [2, 1, 4]
        assert "1.00 at φ = 0.5" in spec_of(chart)["description"]

    def test_profile_marks_ends_of_a_grid_with_rounding_errors(self):
        grid = PROFILE.assign(phi=[-1e-17, 0.5, 1 - 1e-16])
        drawn = drawn_text(figures.profile(grid))
        assert "φ = 0<" in drawn
        assert "φ = 1<" in drawn


class TestCounts:
    def test_sections_without_parameters_are_left_out(self):
        counts = sections()
        drawn = csv_of(figures.params_by_section(counts))
        assert "lanes" in set(counts["section"]) - set(drawn["section"])
        assert drawn["value"].sum() == counts["value"].sum()

    def test_totals_are_written(self):
        assert "139M" in drawn_text(figures.params_by_section(sections()))

    def test_unknown_field(self):
        with pytest.raises(ValueError, match="field: got 'weight'"):
            figures.params_by_section(sections(), field="weight")

    def test_ratios_are_labelled_once_a_place(self):
        drawn = drawn_text(figures.recurrence_ratios(ratios()))
        assert drawn.count(">1.00<") == 1
        assert ">0.41<" in drawn


class TestDownstream:
    def test_tasks_stand_in_the_order_of_the_table(self):
        spec = spec_of(figures.task_gaps(TASK_GAPS))
        points = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "point")
        assert points["encoding"]["y"]["sort"] == ["TriviaQA", "CoQA"]
        assert points["encoding"]["x"]["field"] == "share"
        assert "reading: r = 2 -0.03, r = 8 +0.01." in spec["description"]

    def test_bars_are_two_standard_errors_and_lines_the_chance_of_their_panel(self):
        losses = TASK_LOSSES.assign(chance_listed=[1.8, 2.0, 1.3, 1.5])
        spec = spec_of(figures.task_losses(losses))
        drawn = [
            [row for layer in panel["layer"] for row in spec["datasets"][layer["data"]["name"]]]
            for panel in spec["concat"]
        ]
        for rows, listed, any_answer in zip(drawn, (1.9, 1.4), (2.9, 2.8), strict=True):
            runs = [row for row in rows if "low" in row]
            assert runs
            for row in runs:
                assert row["high"] - row["loss"] == pytest.approx(2 * row["se"])
                assert row["loss"] - row["low"] == pytest.approx(2 * row["se"])
            lines = {row["guess"]: row["loss"] for row in rows if "guess" in row}
            assert lines["among the listed answers"] == pytest.approx(listed)
            assert lines["among all answers"] == pytest.approx(any_answer)


def test_a_few_runaway_resamples_do_not_squeeze_the_histogram(paper):
    phi = np.concatenate([np.random.default_rng(0).normal(0.5, 0.05, 400), [-3.0, 2.9]])
    boot = replace(paper.boot, draws=paper.boot.draws | {"phi": phi.tolist()})
    chart = figures.bootstrap_histogram({"a": boot})
    drawn = csv_of(chart)
    assert drawn["n_resamples"].sum() == 400
    assert 0 < drawn["phi"].min() < drawn["phi_end"].max() < 1
    assert "2 resamples outside the view" in chart.to_dict()["title"]["text"][0]
