"""Tables of shifts: intervals, parts, left-out recurrences, predicted widths, and words."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import looped
from looped import tables

QUICK = {"resamples": 40, "starts": 40, "resample_starts": 3, "seed": 0}


@pytest.fixture(scope="module")
def hyper_runs():
    return looped.load_runs("paper", case="hyperconnections")


@pytest.fixture(scope="module")
def hyper(runs, hyper_runs):
    return looped.delta_phi(runs, hyper_runs, split="stated", **QUICK)


def test_a_row_of_shifts_holds_the_shift_and_its_interval(hyper):
    (row,) = tables.shifts({"all r": hyper}, label="which").to_dict("records")
    assert row["which"] == "all r"
    assert row["split"] == "stated"
    assert row["phi_variant"] - row["phi_baseline"] == pytest.approx(row["delta_phi"])
    assert (row["delta_phi_low"], row["delta_phi_high"]) == hyper.interval


def test_a_shift_at_a_scale_has_parts_that_sum_to_the_measured_change(hyper):
    (row,) = tables.at_scales({"paper's": hyper}).to_dict("records")
    parts = [row[name] for name in ("tokens", "capacity", "rest", "misfit")]
    assert sum(parts) == pytest.approx(row["measured"], abs=1e-9)
    assert (row["budgets"], row["verdict"]) == (len(hyper.budgets), hyper.kind)


def test_parts_and_widths_by_recurrence_are_means_over_budgets(hyper):
    parts = tables.parts_by_recurrence(hyper).set_index("n_recur")
    cells = hyper.decomposition
    assert parts.loc[4, "tokens"] == pytest.approx(
        cells.loc[cells["n_recur"] == 4, "tokens"].mean()
    )
    assert not {"budget", "d_model"} & set(parts)
    widths = tables.widths_by_recurrence(hyper).set_index("n_recur")
    moved = hyper.width_shift
    assert widths.loc[8, "gain"] == pytest.approx(moved.loc[moved["n_recur"] == 8, "gain"].mean())


def test_warnings_are_one_a_row_and_follow_the_verdict(hyper):
    assert list(tables.warnings(hyper)["warning"]) == list(hyper.warnings)
    both = tables.verdict_and_warnings({"paper's": hyper})["verdict and warnings"]
    assert list(both) == [hyper.verdict, *hyper.warnings]
    assert tables.verdict_and_warnings({}).empty


def test_a_left_out_recurrence_takes_part_in_neither_fit(runs, hyper_runs):
    low4 = runs[runs["budget"] <= 4.64e18]
    table = tables.left_out(low4, hyper_runs, "stated", starts=40).set_index("left out")
    assert list(table.index) == ["r = 1", "r = 2", "r = 4", "r = 8"]
    alone = looped.fit(low4[low4["n_recur"] != 2], split="stated", starts=40)
    assert table.loc["r = 2", "phi_baseline"] == alone.params["phi"]
    # without the anchor the shift changes its sign (book: bring your own architecture)
    assert table.loc["r = 1", "delta_phi"] < 0 < table.loc["r = 2", "delta_phi"]


def test_a_study_is_repeated_only_on_budgets_with_three_widths_at_every_r(tmp_path):
    few = looped.load_runs("paper", case=None)
    cell = (few["budget"] == 1e18) & (few["n_recur"] == 8) & (few["case"] == "hyperconnections")
    few = few.drop(few[cell].index[2:])
    few[few["budget"] <= 2.15e18].to_csv(tmp_path / "three.csv", index=False)
    repeated = tables.repeat_shift(str(tmp_path / "three.csv"), "hyperconnections", **QUICK)
    assert repeated["measured here"].budgets == (4.64e17, 2.15e18)
    few[few["budget"] <= 1e18].to_csv(tmp_path / "one.csv", index=False)
    assert tables.repeat_shift(str(tmp_path / "one.csv"), "hyperconnections", **QUICK) == {}


def test_widths_of_the_law_itself_are_predicted_by_the_whole_law(runs, hyper_runs, hyper):
    table = tables.width_predictions(runs, {"hyperconnections": (hyper_runs, hyper)})
    assert list(table["n_recur"]) == [2, 4, 8]
    budgets = np.array(hyper.budgets)
    before = hyper.baseline.law.optimal(budgets, looped.stack_of(runs, 4))["d_model"]
    after = hyper.variant.law.optimal(budgets, looped.stack_of(hyper_runs, 4))["d_model"]
    row = table.set_index("n_recur").loc[4]
    assert row["whole law"] == pytest.approx(float((after / before).mean()))
    # a first-order estimate agrees with the exact one to a few per cent, and in direction
    assert row["φ, first order"] == pytest.approx(row["φ alone"], abs=0.03)
    assert row["isoFLOP"] == tables.widths_by_recurrence(hyper).set_index("n_recur")["d_model"][4]


def test_the_template_has_one_run_of_each_case_and_recurrence(all_runs):
    table = tables.template(all_runs, ["baseline", "hyperconnections"])
    assert set(table["case"]) == {"baseline", "hyperconnections"}
    assert not table.duplicated(["case", "n_recur"]).any()
    assert table["val_loss"].notna().all()


def test_designs_of_a_plan_keep_its_numbers_under_readable_names(runs):
    low4 = runs[runs["budget"] <= 4.64e18]
    planned = looped.plan(low4, [4.64e17, 1e18], (4,), split="stated", simulations=20)
    table = tables.plan_designs(planned)
    assert len(table) == len(planned.designs)
    assert list(table["standard error"]) == list(planned.designs["se"])


@pytest.mark.parametrize(
    ("borderline", "low", "words"),
    [
        (True, 0.001, "so near to 0 that another seed could change the verdict"),
        (False, 0.1, "above 0"),
        (False, -0.1, "below 0"),
    ],
)
def test_the_lower_end_in_words(borderline, low, words):
    shift = SimpleNamespace(borderline=borderline, interval=(low, 0.3))
    assert tables.end_in_words(shift) == words


def test_a_shift_without_warnings_gives_an_empty_table():
    table = tables.warnings(SimpleNamespace(warnings=()))
    assert isinstance(table, pd.DataFrame)
    assert table.empty


def test_moves_of_the_width_for_prose_are_relative_to_the_baseline():
    widths = pd.DataFrame({"case": "a", "φ alone": [0.98, 0.9], "isoFLOP": [1.1, 1.2]})
    widths = widths.assign(**{"isoFLOP, N": 1.3})
    found = looped.tables.width_numbers(widths, "a", "x")
    assert found["x_alone_least"] == pytest.approx(-0.1)
    assert found["x_alone_most"] == pytest.approx(-0.02)
    assert found["x_runs_most"] == pytest.approx(0.2)
    assert found["x_params_least"] == pytest.approx(0.3)


def test_the_numbers_of_a_shift_are_its_own(hyper):
    found = looped.tables.shift_numbers(hyper, "h_")
    assert found["h_delta"] == hyper.delta_phi
    assert (found["h_low"], found["h_high"]) == hyper.interval
    assert found["h_tokens"] == hyper.parts["mean"]["tokens"]
    assert found["h_wider_least"] <= found["h_wider_most"]
    assert found["h_n_own"] == 63
