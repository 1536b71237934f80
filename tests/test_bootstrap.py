"""The bootstrap: what it draws, that it is reproducible, and that its intervals cover."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import looped
from looped.fitting.bootstrap import METHODS


@pytest.fixture(scope="module")
def fit(fit_paper):
    return fit_paper()


@pytest.fixture(scope="module")
def interval(runs, fit):
    """The paper's protocol with fewer starts: 200 resamples of the 24 cells."""
    return looped.bootstrap(runs, fit, resamples=200, starts=20)


def test_published_interval_is_about_ours_and_touches_no_end(interval):
    assert interval.n_units == 24
    lo, hi = interval.interval("phi")
    assert 0.40 < lo < 0.43
    assert 0.49 < hi < 0.54
    assert interval.touched(0) == interval.touched(1) == 0


def test_every_parameter_has_its_distribution(interval, fit):
    assert list(interval.draws) == list(fit.params)
    assert interval.frame.shape == (200, 6)
    for name, value in fit.params.items():
        lo, hi = interval.interval(name)
        assert lo < value < hi
        assert (lo, hi) == pytest.approx(np.percentile(interval.draws[name], [2.5, 97.5]))


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_draws_whatever_the_threads(runs, fit, method):
    settings = {"resamples": 7, "starts": 5, "method": method}
    first, again, threads, other = (
        looped.bootstrap(runs, fit, seed=seed, jobs=jobs, **settings)
        for seed, jobs in [(3, 1), (3, 1), (3, 4), (4, 1)]
    )
    assert first == again == threads
    assert first.draws != other.draws


def test_same_resamples_whatever_the_starts(runs, fit):
    few, many = (looped.bootstrap(runs, fit, resamples=10, starts=n) for n in (5, 60))
    for name in fit.params:
        np.testing.assert_allclose(few.draws[name], many.draws[name], rtol=1e-4)


def test_the_error_of_the_ends_is_that_of_a_quantile(interval):
    """Of n normal draws: √(p (1 - p) / n) over the density at the quantile."""
    draws = np.random.default_rng(0).normal(size=4000).tolist()
    normal = replace(interval, draws={"phi": draws})
    expected = np.sqrt(0.025 * 0.975 / 4000) / norm.pdf(norm.ppf(0.025))
    assert normal.edge_error("phi") == pytest.approx(expected, rel=0.25)


@pytest.mark.slow
def test_resamples_at_a_bound_are_counted(runs):
    one = runs[runs["budget"] == 1e18]
    fit = looped.fit(one, starts=30)
    assert any("at the bound" in text for text in looped.bootstrap(one, fit, starts=5).warnings)


def test_row_order_does_not_matter_to_whole_cells(runs, fit):
    shuffled = runs.iloc[np.random.default_rng(0).permutation(len(runs))]
    plain, other = (looped.bootstrap(r, fit, resamples=5, starts=10) for r in (runs, shuffled))
    np.testing.assert_allclose(plain.draws["phi"], other.draws["phi"], rtol=1e-5)


def test_a_resample_is_a_fit_of_the_drawn_cells(runs, fit):
    """The first resample, drawn here from the same seed, fitted as a table of repeated runs."""
    drawn = np.random.default_rng(8).integers(0, 24, (2, 24))
    cell = runs.groupby(["n_recur", "budget"]).ngroup()
    repeated = runs.loc[np.concatenate([runs.index[cell == unit] for unit in drawn[0]])]
    assert len(set(drawn[0])) < 24  # some cells twice, some not at all
    alone = looped.fit(repeated, split="fitted", starts=30)
    resampled = looped.bootstrap(runs, fit, resamples=2, starts=30, seed=8)
    assert resampled.draws["phi"][0] == pytest.approx(alone.params["phi"], rel=1e-4)


def test_held_parameters_stay_held(runs, fit_paper):
    held = looped.bootstrap(runs, fit_paper(phi=0.0), resamples=3, starts=5)
    assert sorted(held.draws) == ["A", "B", "E", "alpha", "beta"]
    for ask in (lambda: held.interval("phi"), lambda: held.touched(0)):
        with pytest.raises(ValueError, match="'phi' was not resampled; resampled:"):
            ask()


def test_starts_that_miss_the_optimum_are_counted_and_reported(runs, fit):
    one = looped.bootstrap(runs, fit, resamples=20, starts=1, seed=1)
    assert one.refits_worse > 0
    assert f"in {one.refits_worse} of 20 resamples the starts missed" in one.warnings[0]
    enough = looped.bootstrap(runs, fit, resamples=20, starts=60, seed=1)
    assert (enough.refits_worse, enough.warnings) == (0, ())
    # the missed optima are replaced by those reached from the fit
    np.testing.assert_allclose(one.draws["phi"], enough.draws["phi"], rtol=1e-4)


def test_resamples_without_an_anchor_are_counted(runs):
    """Of 8 cells, 2 of r = 1, a draw misses both with probability (6/8)^8, a tenth."""
    few = runs[runs["budget"].isin([1e18, 4.64e18])].reset_index(drop=True)
    found = looped.bootstrap(few, looped.fit(few, starts=40), resamples=300, starts=2)
    (text,) = [each for each in found.warnings if "drew no r = 1 run" in each]
    assert 15 <= int(text.split()[0]) <= 45
    looped_only = few[few["n_recur"] > 1].reset_index(drop=True)
    fit = looped.fit(looped_only, starts=40)
    found = looped.bootstrap(looped_only, fit, resamples=20, starts=2)
    assert not any("no r = 1 run" in each for each in found.warnings)


def test_progress_counts_every_resample(runs, fit):
    done = []
    looped.bootstrap(runs, fit, resamples=9, starts=5, progress=lambda *seen: done.append(seen))
    assert done[-1] == (9, 9)
    assert [finished for finished, _ in done] == sorted(finished for finished, _ in done)


@pytest.mark.slow
def test_whole_cells_cover_the_truth_where_single_runs_do_not(runs, exact_runs, truth):
    """Noise common to each cell, as of a budget's learning rate: single runs look too sure."""
    cells = runs.groupby(["budget", "n_recur"]).ngroup().to_numpy()
    covered = dict.fromkeys(METHODS, 0)
    for seed in range(16):
        rng = np.random.default_rng(seed)
        noise = 2e-3 * rng.standard_normal(24)[cells] + 5e-4 * rng.standard_normal(len(runs))
        noisy = exact_runs("joint", truth["joint"], noise)
        fit = looped.fit(noisy, starts=20)
        for method in METHODS:
            drawn = looped.bootstrap(noisy, fit, resamples=60, starts=3, method=method, seed=seed)
            lo, hi = drawn.interval("phi")
            covered[method] += lo <= truth["joint"]["phi"] <= hi
    assert covered["block"] >= 14
    assert covered["iid"] <= 12


def test_a_wider_level_gives_a_wider_interval(runs, fit, interval):
    narrow = looped.bootstrap(runs, fit, resamples=200, starts=20, level=0.5)
    assert narrow.draws == interval.draws
    (lo, hi), (low, high) = (each.interval("phi") for each in (narrow, interval))
    assert low < lo < hi < high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resamples": 1}, "got resamples=1, level=0.95; expected at least 2"),
        ({"level": 1.0}, r"level=1.0; expected .* a level in \(0, 1\)"),
        ({"method": "cell"}, r"method: got 'cell', expected one of \('block', 'iid'\)"),
    ],
)
def test_bad_arguments_are_refused(runs, fit, arguments, message):
    with pytest.raises(ValueError, match=message):
        looped.bootstrap(runs, fit, **arguments)


def test_runs_of_another_fit_are_refused(runs, fit):
    with pytest.raises(ValueError, match="pass the runs that were fitted"):
        looped.bootstrap(runs[:-1], fit)
    with pytest.raises(ValueError, match="pass the runs that were fitted"):
        looped.bootstrap(runs.assign(val_loss=runs["val_loss"] + 0.01), fit)


def test_cells_of_one_run_or_one_cell_are_no_blocks(runs, fit):
    achieved = runs.assign(budget=runs["n_tokens"] * runs["flops_per_token"])
    single = looped.bootstrap(achieved, fit, resamples=2, starts=3)
    assert "most cells hold a single run: is `budget` the nominal one?" in single.warnings
    cell = runs[(runs["budget"] == 2.15e19) | (runs["budget"] == 1e19)].assign(budget=1e19)
    one = cell[cell["n_recur"] == 8]
    alone = looped.fit(one, law="chinchilla", starts=5)
    with pytest.raises(ValueError, match="all runs are in one"):
        looped.bootstrap(one, alone)


@pytest.mark.slow
def test_a_hard_resample_is_not_given_up(all_runs):
    """Few runs of three architectures: starts creep, in some resamples all of them."""
    few = all_runs.sample(14, random_state=148)
    fit = looped.fit(few, starts=60)
    drawn = {"resamples": 40, "method": "iid", "seed": 1}
    some, many = (looped.bootstrap(few, fit, starts=n, **drawn) for n in (20, 60))
    np.testing.assert_allclose(some.draws["phi"], many.draws["phi"], atol=2e-3)


def test_cells_need_their_columns_and_single_runs_do_not(runs, fit):
    bare = runs.drop(columns="budget")
    with pytest.raises(ValueError, match=r"cell needs .*got budget .no such column.*iid"):
        looped.bootstrap(bare, fit)
    assert looped.bootstrap(bare, fit, resamples=2, starts=3, method="iid").n_units == 116
