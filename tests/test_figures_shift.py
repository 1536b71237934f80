"""Figures of a shift of φ: the bars are the decomposition, the points the paired resamples."""

from dataclasses import replace

import numpy as np
import pytest
from charts import csv_of, drawn_text, spec_of

import looped
from looped import figures


@pytest.fixture(scope="module")
def deltas(runs):
    few = {"split": "fitted", "resamples": 60, "starts": 40, "resample_starts": 5}
    return {
        case: looped.delta_phi(runs, looped.load_runs("paper", case=case), **few)
        for case in ("truncated_bptt", "hyperconnections")
    }


def test_bars_are_the_mean_parts_and_add_up_to_what_was_measured(deltas):
    drawn = csv_of(figures.loss_change(deltas))
    for label, delta in deltas.items():
        rows = drawn[drawn["label"] == label].set_index(["n_recur", "part"])
        expected = delta.decomposition.groupby("n_recur").mean()
        for (n_recur, part), row in rows.iterrows():
            assert row["change"] == pytest.approx(expected.loc[n_recur, part], abs=1e-12)
        sums = rows["change"].groupby("n_recur").sum()
        np.testing.assert_allclose(sums, expected["measured"], atol=1e-12)


def test_bars_are_stacked_away_from_zero_on_both_sides(deltas):
    spec = spec_of(figures.loss_change({"cut": deltas["truncated_bptt"]}))
    bars, _, ticks = spec["concat"][0]["layer"]
    low, high = bars["encoding"]["y"]["scale"]["domain"]
    means = (
        deltas["truncated_bptt"]
        .decomposition.groupby("n_recur")[["tokens", "capacity", "rest", "misfit"]]
        .mean()
    )
    assert low == pytest.approx(means.clip(upper=0).sum(axis=1).min())
    assert high == pytest.approx(means.clip(lower=0).sum(axis=1).max())
    assert bars["encoding"]["y"]["stack"] == "zero"
    assert ticks["encoding"]["y"]["field"] == "measured"


def test_every_resample_is_in_the_data_and_those_out_of_view_are_counted(deltas):
    delta = deltas["truncated_bptt"]
    chart = figures.phi_pairs({"cut": delta})
    drawn = csv_of(chart)
    np.testing.assert_allclose(drawn["phi_variant"] - drawn["phi_baseline"], delta.draws)
    outside = int((~drawn["in_view"]).sum())
    assert 0 < outside < 10  # resamples without most cells of r = 4 and 8 leave φ to the misfit
    assert f"{outside} of {len(drawn)} resamples outside the view" in drawn_text(chart)
    points = spec_of(chart)["concat"][0]["layer"][0]["data"]["name"]
    assert len(spec_of(chart)["datasets"][points]) == len(drawn) - outside


def test_the_line_of_equal_phi_is_in_view_though_no_resample_comes_near(deltas):
    delta = deltas["hyperconnections"]
    boot = delta.variant.interval
    far = replace(boot, draws=boot.draws | {"phi": [2.0 + phi for phi in boot.draws["phi"]]})
    params = delta.variant.params | {"phi": 2.6}
    moved = replace(
        delta, variant=replace(delta.variant, interval=far, law=delta.variant.at(**params))
    )
    points = spec_of(figures.phi_pairs({"far": moved}))["concat"][0]["layer"][0]["encoding"]
    (x_low, x_high), (y_low, _) = (points[axis]["scale"]["domain"] for axis in "xy")
    assert x_low <= y_low <= x_high


@pytest.mark.parametrize("figure", [figures.loss_change, figures.phi_pairs])
def test_split_source_and_case_are_named(figure, deltas):
    spec = spec_of(figure(deltas))
    assert spec["title"]["text"][0] == "digitised runs · split fitted"
    assert all(label in spec["description"] for label in deltas)


@pytest.mark.parametrize("figure", [figures.loss_change, figures.phi_pairs])
def test_nothing_to_draw_is_refused(figure):
    with pytest.raises(ValueError, match="got no shift, expected at least one"):
        figure({})


def test_a_shift_without_decomposition_is_refused_with_its_reason(deltas):
    shift = deltas["truncated_bptt"]
    pair = [runs.drop(columns="d_model") for runs in shift.runs]
    without = looped.delta_phi(*pair, resamples=4, starts=4, resample_starts=1)
    with pytest.raises(ValueError, match=r"\['own'\] have no decomposition.*need d_model"):
        figures.loss_change({"own": without})
