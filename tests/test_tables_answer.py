"""Numbers of the main result in words, and φ on the laptop beside φ on the paper's runs."""

import pandas as pd
import pytest

import looped
from looped import tables

DRAWS = {"resamples": 20, "starts": 4, "seed": 0}


@pytest.fixture(scope="module")
def resampled(runs, fit_paper):
    return looped.bootstrap(runs, fit_paper(), **DRAWS)


@pytest.fixture(scope="module")
def fits(runs):
    sources = {"laptop": looped.load_runs("laptop"), "paper": runs}
    return tables.fits_by_source(sources, ["fitted", "fitted"], {"starts": 100}, DRAWS)


def test_the_answer_is_phi_with_its_interval_and_what_four_passes_are_worth(fit_paper, resampled):
    fit = fit_paper()
    numbers = tables.answer(fit, resampled, starts=100)
    assert numbers["low"] < numbers["phi"] == fit.params["phi"] < numbers["high"]
    assert numbers["gain"] == pytest.approx(4 ** fit.params["phi"])
    assert (numbers["starts"], numbers["n_runs"], numbers["source"]) == (100, 116, "digitised")
    assert numbers["level"] == pytest.approx(100 * resampled.level)
    assert numbers["touched"] == 0


def test_the_equivalent_size_lies_between_the_unique_and_the_plain_one(fit_paper):
    pair = [looped.paper_config(2048, r) for r in (4, 1)]
    sizes = tables.answer_sizes(fit_paper(), *pair)
    assert sizes["unique"] == looped.counts(pair[0])["n_params"] / 1e6
    assert sizes["unique"] < sizes["equivalent"] < 1e3 * sizes["plain"]


def test_each_source_is_fitted_once_by_each_split(fits, fit_paper, resampled):
    assert list(fits) == [("laptop", "fitted"), ("paper", "fitted")]
    assert fits["paper", "fitted"].params == fit_paper().params
    assert fits["paper", "fitted"].interval.draws == resampled.draws


def test_each_fit_is_one_row_with_its_runs_and_interval(fits):
    table = tables.laptop_phi(fits)
    assert table["runs"].tolist() == ["laptop", "paper"]
    assert table["number of runs"].tolist() == [len(looped.load_runs("laptop")), 116]
    low, high = fits["laptop", "fitted"].interval.interval("phi")
    assert table.loc[0, ["phi_low", "phi_high"]].tolist() == [low, high]


def test_the_numbers_of_the_laptop_stand_beside_those_of_the_paper(fits, runs):
    laptop = looped.load_runs("laptop")
    numbers = tables.laptop_numbers(fits, "fitted", laptop, runs)
    assert numbers["phi"] == fits["laptop", "fitted"].params["phi"]
    assert numbers["paper_phi"] == fits["paper", "fitted"].params["phi"]
    assert numbers["width"] == pytest.approx(numbers["high"] - numbers["low"])
    assert numbers["ratio"] == runs["budget"].min() / laptop["budget"].min()
    assert numbers["n_cells"] == len(laptop.groupby(["budget", "n_recur"]))


def test_the_farthest_recurrence_has_the_largest_mean_of_either_sign():
    residuals = pd.DataFrame({"n_recur": [1, 2, 4], "mean": [0.01, -0.03, 0.02]})
    assert tables.farthest(residuals) == {"off_r": 2, "off": -0.03}
