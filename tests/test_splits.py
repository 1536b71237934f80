"""Splits: what each convention counts as recurring."""

import numpy as np
import pytest

from looped import SPLITS, ConfigError, accounting, paper_config, split_params
from looped.splits import FITTED_RECURRENCES
from looped.variants import n_params_injection


def counts(runs, split):
    """N_once and N_rec of the runs, each [n]."""
    counted = split_params(runs, split)
    return counted["n_params_once"].to_numpy(), counted["n_params_rec"].to_numpy(float)


@pytest.fixture(scope="module")
def injection(all_runs):
    """Parameters of each run's injection layer, [n]."""
    return np.where(all_runs["variant"] == "linear", 2.0 * all_runs["d_model"] ** 2, 0.0)


def test_stated_is_the_table_itself(all_runs):
    assert split_params(all_runs, "stated").equals(all_runs)


def test_once_moves_the_injection_and_keeps_the_sum(all_runs, injection):
    (once, rec), stated = counts(all_runs, "once"), counts(all_runs, "stated")
    np.testing.assert_array_equal(once + rec, sum(stated))
    np.testing.assert_array_equal(once - stated[0], injection)


def test_none_leaves_the_injection_out(all_runs, injection):
    (once, rec), stated = counts(all_runs, "none"), counts(all_runs, "stated")
    np.testing.assert_array_equal(once, stated[0])
    np.testing.assert_array_equal(stated[1] - rec, injection)


def test_fitted_is_the_least_squares_of_the_four_counts_at_each_width(all_runs):
    recurrences = FITTED_RECURRENCES.tolist()
    shapes = np.array([[1, 16 / r] for r in recurrences])
    for run, once, rec in zip(all_runs.itertuples(), *counts(all_runs, "fitted"), strict=True):
        d_model, r = int(run.d_model), int(run.n_recur)
        n_params = [accounting.n_params(paper_config(d_model, r)) for r in recurrences]
        expected_once, block = np.linalg.lstsq(shapes, np.array(n_params, float), rcond=None)[0]
        # lane scalars are no part of the linear-injection counts, and run once
        config = paper_config(d_model, r, run.variant)
        lanes = accounting.params_by_section(config)["lanes"]
        assert once == pytest.approx(expected_once + lanes, rel=1e-12)
        assert rec == pytest.approx(16 / r * block, rel=1e-12)


def test_no_split_changes_the_loss_or_the_tokens(all_runs):
    untouched = all_runs.columns.difference(["n_params_once", "n_params_rec"])
    for split in SPLITS:
        assert split_params(all_runs, split)[untouched].equals(all_runs[untouched])


def test_an_unknown_split_is_refused(runs):
    with pytest.raises(ValueError, match=r"split: got 'even', expected one of .*fitted"):
        split_params(runs, "even")


@pytest.mark.parametrize("split", ["fitted", "once", "none"])
def test_a_split_that_moves_the_injection_needs_to_know_it(runs, split):
    with pytest.raises(ValueError, match=rf"'{split}' needs .*d_model \(no such .*'stated'"):
        split_params(runs.drop(columns="d_model"), split)
    unknown = runs.assign(variant=runs["variant"].where(runs.index > 0))
    with pytest.raises(ValueError, match=r"needs .*got variant \(missing in row 0\)"):
        split_params(unknown, split)


def test_a_variant_of_any_name_is_split_as_stated_and_refused_where_it_would_be_counted(runs):
    gated = runs.assign(variant=runs["variant"].replace("linear", "gated"))
    assert split_params(gated, "stated").equals(gated)
    for split in ("fitted", "once", "none"):
        with pytest.raises(ConfigError, match=r"variant: got 'gated', expected one of .*'stated'"):
            split_params(gated, split)


def test_injections_are_counted_for_each_run_by_its_own_variant():
    names, widths = np.array(["none", "linear", "additive", "linear"], object), np.arange(1.0, 5)
    np.testing.assert_array_equal(n_params_injection(names, widths), [0, 8, 0, 32])
    assert n_params_injection("linear", 640) == 2 * 640**2
