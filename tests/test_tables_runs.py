"""Tables of runs: counted cells, minima beside the published ones, reading errors, gaps."""

import numpy as np
import pandas as pd
import pytest

import looped
from looped import tables


@pytest.fixture(scope="module")
def minima(runs):
    return looped.isoflop_minima(runs)


def test_the_cells_of_runs_by_case_add_up_to_all_runs(all_runs, runs):
    counted = tables.runs_by_case(all_runs).set_index("case")
    assert list(counted) == ["r = 1", "r = 2", "r = 4", "r = 8"]
    assert counted.to_numpy().sum() == len(all_runs)
    assert counted.loc["baseline"].sum() == len(runs)
    assert counted.loc["hyperconnections", "r = 1"] == 0


def test_tokens_by_width_has_billions_of_the_plain_runs_only(runs):
    wide = tables.tokens_by_width(runs).set_index("d_model")
    one = runs[(runs["n_recur"] == 1) & (runs["budget"] == 1e18)].iloc[0]
    assert wide.loc[one["d_model"], "1e+18"] == one["n_tokens"] / 1e9
    assert wide.notna().to_numpy().sum() == (runs["n_recur"] == 1).sum()


def test_each_bracketed_minimum_stands_beside_a_published_one_that_agrees(minima):
    both = tables.minima_beside_published(minima)
    np.testing.assert_allclose(both["val_loss_star"], both["L* published"], rtol=0, atol=2e-4)
    np.testing.assert_allclose(both["n_params_star"], both["N* published"], rtol=0.01)


def test_the_errors_of_minima_are_the_largest_of_any_row():
    beside = pd.DataFrame(
        {
            "n_params_star": [102.0, 97.0],
            "N* published": [100.0, 100.0],
            "val_loss_star": [3.002, 2.999],
            "L* published": [3.0, 3.0],
        }
    )
    errors = tables.minima_errors(beside)
    assert errors == pytest.approx({"loss_error": 0.002, "size_error": 0.03})


def test_refused_cells_are_those_without_a_minimum():
    every = tables.minima_of_cases("paper", ["baseline", "hyperconnections"])
    assert set(every["case"]) == {"baseline", "hyperconnections"}
    shown = tables.refused(every)
    assert len(shown) == every["val_loss_star"].isna().sum() > 0
    assert (shown["refusal"] != "").all()


def test_runs_without_a_flag_are_counted_as_none():
    runs = pd.DataFrame({"flag": ["", "", "hidden"], "val_loss_se": [1e-5, 3e-5, 4e-4]})
    table = tables.reading_errors(runs).set_index("flag")
    assert table.loc["none"].to_dict() == pytest.approx(
        {"runs": 2, "median error": 2e-5, "largest error": 3e-5}
    )
    assert table.loc["hidden", "largest error"] == 4e-4


def test_a_budget_lists_its_widths_in_order_and_the_range_of_its_tokens():
    runs = pd.DataFrame(
        {"budget": 1e12, "n_recur": [4, 1, 4], "d_model": [96, 64, 64], "n_tokens": [5, 9, 7]}
    )
    minima = pd.DataFrame({"budget": 1e12, "refusal": ["", "not bracketed"]})
    row = tables.budgets(runs, minima).iloc[0]
    assert (row["runs"], row["r"], row["widths"]) == (3, "1, 4", "64, 96")
    assert (row["fewest tokens"], row["most tokens"], row["bracketed"]) == (5, 9, "1 of 2")
    assert "bracketed" not in tables.budgets(runs)


def test_only_gaps_of_more_than_two_deviations_are_resolved():
    numbers = tables.gap_numbers(pd.DataFrame({"gap": [0.01, 0.03, 0.05]}), sd=0.01)
    assert numbers == {"gap_least": 0.01, "gap_most": 0.05, "resolved": 2, "n_gaps": 3}


def test_the_foreign_file_has_the_losses_of_the_law_with_the_stated_noise(runs, fit_paper):
    fit = fit_paper()
    file = tables.foreign_file(runs, fit, seed=3, sd=1e-3)
    assert {"r", "hidden_size", "D", "eval/loss"} <= set(file)
    assert not {"n_params", "n_params_once", "budget", "val_loss"} & set(file)
    noise = np.log(file["eval/loss"] / fit.law.loss(runs))
    assert noise.std() == pytest.approx(1e-3, rel=0.2)
    pd.testing.assert_frame_equal(file, tables.foreign_file(runs, fit, seed=3, sd=1e-3))


def test_each_step_of_a_trained_model_carries_the_loss_after_its_last_step():
    record = looped.load_records("laptop")[0]
    results = tables.training_results({4: record})
    assert results.loc[0, ["n_recur", "val_loss"]].tolist() == [4, record.result.val_loss]
    metrics = {4: [{"step": 1, "loss": 7.0}, {"step": 2, "loss": 6.0}]}
    steps = tables.training_steps({4: record}, metrics)
    assert steps["loss"].tolist() == [7.0, 6.0]
    assert set(steps["val_loss"]) == {record.result.val_loss}
    assert tables.training_steps({}, {}).empty
