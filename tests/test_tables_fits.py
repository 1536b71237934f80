"""Tables of fits: beside published values, by recurrence, by split, and in parameters."""

import numpy as np
import pandas as pd
import pytest

import looped
from looped import tables
from looped.registry.cells import CELL


@pytest.fixture(scope="module")
def fit(fit_paper):
    return fit_paper()


@pytest.fixture(scope="module")
def stacks(runs):
    return {r: looped.stack_of(runs, r) for r in (1, 2, 4, 8)}


@pytest.fixture(scope="module")
def splits():
    return looped.split_table()


def test_a_cell_of_the_wide_table_is_the_mean_residual_of_its_runs(runs, fit):
    wide = tables.by_recurrence(tables.mean_residuals(runs, fit), "residual").set_index("budget")
    assert list(wide) == ["r = 1", "r = 2", "r = 4", "r = 8"]
    of_cell = (runs["budget"] == 1e18) & (runs["n_recur"] == 4)
    actual = runs["val_loss"] - fit.law.loss(runs)
    assert wide.loc[1e18, "r = 4"] == pytest.approx(actual[of_cell].mean(), abs=1e-12)


def test_a_fit_stands_above_the_published_values_of_its_study(fit_paper):
    low4 = fit_paper(budget_max=4.64e18)
    table = tables.beside_published({"baseline": low4}, {"baseline": "low4"})
    assert list(table["fit"]) == ["baseline", "published"]
    fitted, printed = table["phi"]
    assert fitted == low4.params["phi"]
    claims = looped.published.claims().set_index("id")["value"]
    assert printed == float(claims["phi_low4"])
    assert fitted == pytest.approx(printed, abs=1e-3)
    assert table["n_runs"].isna().tolist() == [False, True]


def test_a_value_that_the_paper_does_not_print_is_missing(fit):
    table = tables.beside_published({"mine": fit}, {"mine": "truncated_bptt"})
    assert table.loc[1, "phi"] == 0.380
    assert table.loc[1, ["alpha", "beta", "E"]].isna().all()


def test_the_ratio_to_a_minimum_of_the_law_itself_is_one(fit, stacks):
    budgets = [1e18, 1e19]
    own = pd.concat([fit.law.optimal(budgets, stack) for stack in stacks.values()])
    table = tables.beside_minima(own, fit.law, stacks)
    assert len(table) == 8
    np.testing.assert_allclose(table["ratio"], 1, rtol=1e-9)
    np.testing.assert_allclose(table["difference"], 0, atol=1e-12)


def test_bootstraps_have_the_intervals_and_counts_of_each(runs, fit):
    options = {"resamples": 20, "starts": 3, "seed": 0}
    drawn = {
        name: looped.bootstrap(runs, fit, method=method, **options)
        for name, method in {"cells": "block", "single runs": "iid"}.items()
    }
    table = tables.bootstraps(drawn).set_index("resampled")
    assert table.loc["cells", "units"] == len(runs.groupby(CELL))
    assert table.loc["single runs", "units"] == len(runs)
    for name, each in drawn.items():
        ends = tuple(table.loc[name, ["phi_low", "phi_high"]])
        assert ends == each.interval("phi")


def test_exponents_by_each_method_are_those_of_its_definition(runs, stacks):
    by_r = runs.groupby("n_recur")
    fits = {r: looped.fit(by_r.get_group(r), law="chinchilla", starts=40) for r in (1, 4)}
    budgets = np.geomspace(5e17, 2e19, 5)
    optimal = pd.concat([each.law.optimal(budgets, stacks[r]) for r, each in fits.items()])
    minima = looped.isoflop_minima(runs[runs["n_recur"].isin([1, 4])])
    table = tables.exponents_by_method(fits, stacks, runs, optimal, minima).set_index("n_recur")
    for r in (1, 4):
        one = optimal[optimal["n_recur"] == r]
        slope = np.polyfit(np.log(one["budget"]), np.log(one["n_params_star"]), 1)[0]
        assert table.loc[r, "N* exact"] == pytest.approx(slope, abs=1e-9)
        p, kappa = fits[r].params, table.loc[r, "kappa"]
        power = p["beta"] / (p["alpha"] + kappa * p["beta"])
        assert table.loc[r, "N* power law"] == pytest.approx(power, rel=1e-3)


def test_the_gap_falls_by_the_share_of_its_first_value():
    gaps = pd.DataFrame(
        {
            "n_recur": [2, 2, 2, 4, 4],
            "budget": [3.0, 1.0, 2.0, 1.0, 2.0],
            "gap": [0.06, 0.10, 0.08, 0.20, np.nan],
        }
    )
    assert dict(tables.gap_fall(gaps).round(12)) == {2: 0.4, 4: 0.0}


def test_the_tables_by_split_hold_the_fits_of_each_split(splits, fit_paper):
    phis = tables.phi_by_split(splits).set_index("study")
    assert list(phis)[-len(looped.SPLITS) :] == list(looped.SPLITS)
    low4 = fit_paper(budget_max=4.64e18)
    assert phis.loc["four lower budgets", "fitted"] == pytest.approx(low4.params["phi"], abs=1e-5)
    shift = tables.shift_by_split(splits).set_index("split")
    for study in ("truncated BPTT", "hyperconnections"):
        expected = phis.loc[study, "fitted"] - phis.loc["four lower budgets", "fitted"]
        assert shift.loc["fitted", study] == pytest.approx(expected, abs=1e-12)


def test_the_summary_of_the_splits_counts_the_published_values_that_each_reproduces(splits):
    summary = tables.split_summary(splits)
    assert summary["fitted_hits"] == summary["n_studies"]
    assert summary["stated_hits"] < summary["n_studies"]
    # hyperconnections have no injection, so their shift varies as φ of the baseline does
    assert summary["spread_truncated"] < summary["spread_phi"]
    assert summary["spread_hyper"] == pytest.approx(summary["spread_phi"], abs=1e-3)


def test_effective_parameters_lie_between_unique_and_executed_ones(runs, fit):
    resampled = looped.bootstrap(runs, fit, resamples=20, starts=3, seed=0)
    config = looped.paper_config(2048, 4)
    (row,) = tables.equivalents({"fitted": fit.with_interval(resampled)}, config).to_dict("records")
    assert row["split"] == "fitted"
    assert row["unique"] < row["low"] < row["equal in loss"] < row["high"] < row["equal in cost"]
    assert row["unique"] == pytest.approx(looped.counts(config)["n_params"] / 1e6)


def test_the_matched_quantity_has_the_ratio_one(fit):
    table = tables.matched(fit, looped.paper_config(640, 4), 1e19).set_index("matched")
    ratios = {"unique parameters": "N ratio", "FLOPs per token": "D ratio"}
    ratios |= {"inference memory": "memory ratio"}
    for name, column in ratios.items():
        assert table.loc[name, column] == pytest.approx(1, abs=1e-6)
    # the plain model at its own optimum is the best of all plain ones
    assert table["difference"].idxmax() == "own optimum"


def test_a_law_at_its_break_even_exponent_has_the_loss_of_the_plain_model(fit, stacks):
    loops = {("baseline", 4): stacks[4]}
    (row,) = tables.break_even(fit, loops, 1e19).to_dict("records")
    law = fit.at(phi=row["r = 4"])
    four, plain = (law.optimal([1e19], stacks[r])["val_loss_star"].iloc[0] for r in (4, 1))
    assert four == pytest.approx(plain, abs=1e-5)


def test_a_study_without_a_published_phi_is_refused(fit_paper):
    with pytest.raises(ValueError, match="no claim has the id phi_nowhere"):
        looped.tables.beside_published({"a": fit_paper()}, {"a": "nowhere"})
