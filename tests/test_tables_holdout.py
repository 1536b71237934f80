"""Tables of extrapolations: the large pair, gaps at one width, and budgets that were held out."""

import numpy as np
import pandas as pd
import pytest

import looped
from looped import tables

PAIR, WIDTH, TOKENS = (1, 4), 2176, 46_999_797_760


@pytest.fixture(scope="module")
def fit(fit_paper):
    return fit_paper()


@pytest.fixture(scope="module")
def stacks(runs):
    return {r: looped.stack_of(runs, r) for r in (1, 2, 4, 8)}


@pytest.fixture(scope="module")
def large(stacks):
    rows = [looped.runs_at_width(stacks[r], WIDTH, n_tokens=TOKENS) for r in PAIR]
    return pd.concat(rows, ignore_index=True)


@pytest.fixture(scope="module")
def held(runs):
    return looped.hold_out(runs, [2.15e19], split="fitted", starts=40)


@pytest.fixture(scope="module")
def predictions(runs, fit, large):
    draw = {"resamples": 20, "starts": 3}
    by_r = runs.groupby("n_recur")
    per_r = {}
    for r in PAIR:
        own = by_r.get_group(r).reset_index(drop=True)
        alone = looped.fit(own, law="chinchilla", starts=40)
        per_r[r] = alone.with_interval(looped.bootstrap(own, alone, seed=r, **draw))
    joint = {"joint law": fit.with_interval(looped.bootstrap(runs, fit, seed=0, **draw))}
    reported = tables.reported_pair("paper", PAIR, WIDTH, TOKENS)
    return tables.pair_predictions(large, joint, per_r, reported)


def test_the_reported_losses_are_those_of_the_papers_pair_and_no_other():
    first, second, gap = tables.reported_pair("paper", PAIR, WIDTH, TOKENS)
    assert gap == pytest.approx(second - first, abs=2e-3)
    others = [("laptop", PAIR, WIDTH, TOKENS), ("paper", (1, 8), WIDTH, TOKENS)]
    others += [("paper", PAIR, WIDTH + 128, TOKENS), ("paper", PAIR, WIDTH, 10**10)]
    for other in others:
        assert np.isnan(tables.reported_pair(*other)).all()


def test_the_reach_of_the_pair_is_its_size_over_the_largest_of_the_grid(runs, large):
    reach = tables.pair_reach(runs, large).set_index(["size", "n_recur"])
    most = runs.loc[runs["n_recur"] == 4, "n_tokens"].max()
    assert reach.loc[("D", 4), "ratio"] == pytest.approx(TOKENS / most)
    assert reach.loc[("C (FLOPs)", 4), "ratio"] > 10


def test_predictions_of_the_pair_are_those_of_each_law(predictions, fit, large):
    by_fit = predictions.set_index(["fit", "quantity"])
    loss = fit.predict(large)
    joint = by_fit.loc["joint law"]
    np.testing.assert_allclose(joint["predicted"], [*loss, loss[1] - loss[0]], rtol=1e-12)
    assert (by_fit["low"] < by_fit["high"]).all()
    assert joint["predicted"].between(joint["low"], joint["high"]).all()
    # the laws per r share no parameter, so nothing cancels in their gap
    width = by_fit["high"] - by_fit["low"]
    assert width["law per r", "Gap"] > width["joint law", "Gap"]


def test_the_table_of_the_pair_has_a_row_of_reported_values_only_where_there_are_some(predictions):
    table = tables.pair_table(predictions)
    assert list(table["fit"]) == ["joint law", "law per r", "reported"]
    assert table["Loss at r = 1"].iloc[-1] == "2.047"
    unknown = tables.pair_table(predictions.assign(reported=np.nan))
    assert list(unknown["fit"]) == ["joint law", "law per r"]


def test_the_numbers_of_the_pair_say_what_lies_outside_its_interval():
    rows = [
        ("joint law", "Loss at r = 1", 2.10, 2.08, 2.12, 2.00),
        ("joint law", "Loss at r = 4", 2.20, 2.15, 2.25, 2.16),
        ("joint law", "Gap", 0.10, 0.05, 0.12, 0.16),
        ("law per r", "Loss at r = 1", 2.1, 2.0, 2.2, 2.00),
        ("law per r", "Loss at r = 4", 2.3, 2.1, 2.5, 2.16),
        ("law per r", "Gap", 0.20, -0.1, 0.5, 0.16),
    ]
    columns = ["fit", "quantity", "predicted", "low", "high", "reported"]
    predictions = pd.DataFrame(rows, columns=columns)
    predictions["off"] = predictions["predicted"] - predictions["reported"]
    numbers = tables.pair_numbers(predictions)
    assert numbers["outside"] == 1
    assert numbers["side"] == "outside"
    assert numbers["common"] == pytest.approx(0.07)
    assert numbers["gap_off"] == pytest.approx(-0.06)
    assert (numbers["own_low"], numbers["own_high"]) == (-0.1, 0.5)


def test_a_gap_at_one_width_is_the_difference_of_two_runs(runs, fit):
    gaps = tables.gaps_at_width(runs, fit, PAIR)
    row = gaps.iloc[0]
    at = runs[(runs["budget"] == row["budget"]) & (runs["d_model"] == row["d_model"])]
    loss = at.set_index("n_recur")["val_loss"]
    assert row["gap"] == pytest.approx(loss[4] - loss[1])
    assert set(gaps["n_recur"]) == {4}


def test_growth_of_the_gap_compares_the_two_largest_budgets_of_a_width():
    gaps = pd.DataFrame(
        {
            "d_model": [640, 640, 640, 896],
            "budget": [3e18, 1e18, 2e18, 1e18],
            "n_tokens": [3e9, 1e9, 2e9, 1e9],
            "gap": [0.03, 0.01, 0.02, 0.05],
            "law": 0.02,
        }
    )
    growth = tables.gap_growth(gaps).set_index("d_model")
    assert tuple(growth.loc[640, ["before", "gap", "budget"]]) == (0.02, 0.03, 3e18)
    assert np.isnan(growth.loc[896, "before"])


def test_means_and_rmse_of_held_out_runs_are_of_these_runs_only(held):
    key = (held.label, "joint")
    (mean,) = tables.held_out_means({key: held.runs}).to_dict("records")
    out = held.runs[held.runs["held_out"]]
    assert mean["budget"] == 2.15e19
    assert mean["r = 4"] == pytest.approx(out.loc[out["n_recur"] == 4, "residual"].mean())
    (quality,) = tables.held_out_rmse({key: held.runs}).to_dict("records")
    assert quality["held out"] == pytest.approx(held.rmse)
    assert quality["rmse"] == pytest.approx(held.fit.rmse)
    assert quality["times"] == pytest.approx(held.rmse / held.fit.rmse)


def test_gaps_at_a_held_out_budget_come_from_the_law_that_did_not_see_it(held, fit, stacks, runs):
    minima = looped.isoflop_minima(runs)
    table = tables.held_out_gaps([held], fit, stacks, minima)
    row = table.set_index("n_recur").loc[4]
    for name, law in {"predicted": held.fit.law, "fitted to all": fit.law}.items():
        four, one = (law.optimal([2.15e19], stacks[r])["val_loss_star"].iloc[0] for r in (4, 1))
        assert row[name] == pytest.approx(four - one, abs=1e-9)
    assert set(table["fit"]) == {held.label}


def test_numbers_for_prose_are_those_of_their_tables():
    reach = pd.DataFrame({"size": ["D", "D", "D / N", "C (FLOPs)"], "ratio": [2.0, 3.0, 0.5, 9.0]})
    found = looped.tables.reach_numbers(reach)
    assert found == {"beyond_tokens": 3.0, "beyond_c": 9.0, "least_ratio": 0.5}
    growth = pd.DataFrame(
        {"d_model": [8, 16], "n_tokens": [10, 20], "before": [0.1, np.nan], "gap": [0.2, 0.3]}
    ).assign(law=0.25)
    found = looped.tables.growth_numbers(growth, 16, 60)
    assert (found["n_widths"], found["n_rise"], found["widest"]) == (1, 1, 0.3)
    assert found["times"] == pytest.approx(3)
    assert np.isnan(looped.tables.growth_numbers(growth, 99, 60)["widest"])
    means = pd.DataFrame({"fit": ["a"], "r = 1": [-0.02], "r = 2": [0.01]})
    found = looped.tables.held_out_numbers(means, pd.DataFrame({"times": [2.0, 4.0]}))
    assert (found["n_off"], found["n_high"], found["most"]) == (2, 1, 0.02)
    assert (found["times_least"], found["times_most"]) == (2.0, 4.0)
    fits = pd.DataFrame({"phi": [0.4, 0.5], "E": [1.5, 1.7], "phi_low": 0.3, "phi_high": 0.6})
    found = looped.tables.spread_numbers(fits)
    assert found == pytest.approx({"phi_spread": 0.1, "E_step": 0.2, "phi_width": 0.3})
