"""Published and computed numbers: which claims are reproduced, and how verdicts are computed."""

import numpy as np
import pytest

from looped.claims import claims_table, computed, count_table, split_table, tables
from looped.claims.computed import Computed
from looped.registry import published


@pytest.fixture(scope="module")
def claims():
    return claims_table().set_index("id")


def test_every_claim_has_a_verdict(claims):
    assert list(claims.index) == list(published.claims()["id"])
    known = {tables.REPRODUCED, tables.WITHIN_READING, tables.DIFFERS, tables.REPORTED}
    assert set(claims["verdict"]) <= known


def test_all_derivable_claims_but_four_are_reproduced(claims):
    assert set(claims.index[claims["verdict"] == tables.DIFFERS]) == {
        "phi_interval",
        "beta_page",
        "B_page",
        "equiv_effective",
    }
    derived = claims[claims["verdict"] != tables.REPORTED]
    assert (derived["verdict"] == tables.REPRODUCED).sum() >= len(derived) - 8


def test_only_claims_of_trained_models_are_reported_only(claims):
    reported = claims.index[claims["verdict"] == tables.REPORTED]
    assert set(claims.loc[reported, "kind"]) == {"reported"}
    assert set(claims.index[claims["kind"] == "reported"]) == set(reported)


def test_exactly_the_claims_that_differ_have_a_reason(claims):
    assert set(claims.index[claims["why"] != ""]) == set(computed.WHY)


def test_every_computed_number_belongs_to_a_claim():
    assert set(computed.COMPUTED) <= set(published.claims()["id"])


@pytest.mark.parametrize(
    ("text", "unit"),
    [("0.459", 0.001), ("5.84e-5", 1e-7), ("410", 10), ("5e19", 1e19), ("-0.073", 0.001), ("0", 1)],
)
def test_printed_unit_is_that_of_the_last_significant_digit(text, unit):
    assert tables.printed_unit(text) == pytest.approx(unit)


@pytest.mark.parametrize(
    ("text", "number", "options", "verdict"),
    [
        ("0.459", 0.4594, {}, tables.REPRODUCED),
        ("0.459", 0.4597, {}, tables.DIFFERS),
        ("0.459", 0.4597, {"se": 0.0001}, tables.WITHIN_READING),
        ("0.459", 0.4600, {"se": 0.0001}, tables.DIFFERS),
        ("0.193", 0.1922, {"rounding": 1.0}, tables.REPRODUCED),
        ("0.193", 0.1918, {"rounding": 1.0}, tables.DIFFERS),
    ],
)
def test_the_verdict_follows_the_printed_digits_and_the_reading_error(
    text, number, options, verdict
):
    assert tables._compare(text, number, Computed(number, **options))[2] == verdict


def test_a_published_bound_is_met_from_below_only():
    verdicts = [
        tables._compare("0.006", n, Computed(), bound=True)[2] for n in (1e-4, 0.0064, 0.007)
    ]
    assert verdicts == [tables.REPRODUCED, tables.REPRODUCED, tables.DIFFERS]


def test_published_counts_are_reproduced_exactly():
    counts = count_table()
    assert counts["log_n_params_error"].abs().max() < 1e-9
    assert (counts["flops_computed"] == counts["flops_published"]).all()


def test_all_published_phi_follow_from_the_fitted_split_and_none_from_the_stated_one():
    hits = split_table().groupby("split")["reproduced"].agg(["sum", "size"])
    assert hits.loc["fitted", "sum"] == hits.loc["fitted", "size"]
    assert hits.loc["stated", "sum"] == 0


def test_splits_fit_equally_well():
    r2 = split_table().groupby("study")["r2"].agg(lambda values: values.max() - values.min())
    assert np.all(r2 < 1e-3)


def test_claims_of_a_case_study_have_its_name_in_their_id():
    ids = set(published.claims()["id"])
    for case in ("truncated_bptt", "hyperconnections"):
        assert {f"{name}_{case}" for name in ("phi", "dphi", "r2", "rmse")} <= ids
