"""Tables of counts: against the published counts, `looped.counts`, and closed forms by hand."""

import numpy as np
import pytest

import looped
from looped import tables

RECURRENCES = (1, 2, 4, 8)


@pytest.fixture(scope="module")
def configs():
    return [looped.paper_config(640, r) for r in RECURRENCES]


@pytest.fixture(scope="module")
def checked():
    return looped.count_table()


def test_every_paper_stack_executes_twenty_layers_in_the_order_of_its_sections():
    layers = tables.layers({f"r = {r}": looped.paper_config(640, r) for r in RECURRENCES})
    assert layers.groupby("stack").size().to_dict() == {f"r = {r}": 20 for r in RECURRENCES}


def test_the_sizes_of_stacks_are_those_of_table_4(configs):
    table = tables.stacks(configs).set_index("n_recur")
    assert table["prelude"].tolist() == table["coda"].tolist() == [2, 2, 2, 2]
    assert table["loop"].tolist() == [16, 8, 4, 2]
    assert set(table["executed"]) == {20}
    assert table.loc[1, "injection"] == "none"


def test_counts_are_those_of_looped_counts(configs):
    table = tables.counts(configs)
    assert table["n_recur"].tolist() == list(RECURRENCES)
    assert table.loc[2].drop("n_recur").to_dict() == pytest.approx(looped.counts(configs[2]))


def test_stored_sections_add_up_to_all_stored_parameters(configs):
    stored = tables.stored_by_section(configs)
    assert (stored["value"] > 0).all()
    total = stored.groupby("n_recur")["value"].sum()
    counted = [looped.counts(config) for config in configs]
    assert total.tolist() == [count["n_params"] + count["n_params_embed"] for count in counted]


def test_parameters_by_width_are_millions_of_the_closed_form(checked):
    wide = tables.params_by_width(checked).set_index("d_model")
    d, layer = 640, 12 * 640**2 + 2 * 640
    assert wide.loc[d, "r = 1"] == pytest.approx((20 * layer) / 1e6, rel=1e-3)
    assert wide.loc[d, "r = 4"] == pytest.approx((8 * layer + 2 * d**2) / 1e6, rel=1e-3)


def test_a_count_that_is_changed_no_longer_agrees(checked):
    numbers = tables.count_agreement(checked)
    assert numbers["n_equal"] == numbers["flops_equal"] == numbers["n_published"] == len(checked)
    spoilt = checked.copy()
    spoilt.loc[spoilt.index[0], "log_n_params_error"] = 1e-6
    assert tables.count_agreement(spoilt)["n_equal"] == len(checked) - 1


def test_ratios_are_relative_to_the_first_architecture(configs, fit_paper):
    fit = fit_paper()
    ratios = tables.ratios(configs, fit)
    assert ratios.loc[ratios["n_recur"] == 1, "ratio"].tolist() == [1, 1, 1]
    wide = tables.ratios_by_recurrence(ratios).set_index("quantity")
    plain, looped4 = (looped.counts(configs[i])["n_params"] for i in (0, 2))
    assert wide.loc["Unique parameters", "r = 4"] == pytest.approx(looped4 / plain)
    unique, flops = (wide.loc[q, "r = 4"] for q in ("Unique parameters", "Forward FLOPs"))
    assert unique < wide.loc["Effective parameters", "r = 4"] < flops


def test_truncation_saves_two_thirds_of_a_looped_recurrences_share(configs):
    table = tables.truncation_savings(640, RECURRENCES).set_index("n_recur")
    assert list(table.index) == [2, 4, 8]  # r = 1 has nothing to truncate
    np.testing.assert_allclose(
        table["more tokens"], table["FLOPs saved"] / (1 - table["FLOPs saved"])
    )
    largest = tables.largest_savings(table.reset_index())
    assert largest["saved"] == 100 * table["FLOPs saved"].max()
    # half of the recurrences lose their backward pass, 2 of 3 parts of their FLOPs
    d, layer = 640, 12 * 640**2 + 2 * 640
    saved = 4 * 2 * (4 * layer + 2 * d**2) + 8 * 2 * 4 * d * 2048 * 1
    assert table.loc[4, "FLOPs saved"] * looped.counts(configs[2])["flops_per_token"] == (
        pytest.approx(saved, rel=1e-3)
    )
