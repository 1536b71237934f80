"""Rates carried from one scale to another, against numbers worked out from the paper's rules."""

import math

import pytest

from looped import ModelConfig, accounting, transfer
from looped.studies.base import run_at
from looped.studies.laptop import laptop_run
from looped.studies.paper import paper_run, reference_tokens

ADAMW = ("embed", "unembed", "norm", "lanes")
BASE = {"matrix": 0.014, "embed": 0.3, "unembed": 0.004, "norm": 0.005, "lanes": 0.01}
REFERENCE = {"ref_d_model": 64, "ref_tokens": 2**20, "ref_batch_tokens": 2**12}


def rates(d_model=64, n_tokens=2**20, batch_rows=16, **train):
    config = ModelConfig(d_model=d_model, d_head=32, seq_len=256)
    settings = REFERENCE | {"batch_rows": batch_rows} | train
    return transfer.learning_rates(run_at(config, None, n_tokens, settings, "laptop", "baseline"))


def test_reference_run_has_exactly_the_base_rates():
    assert rates() == BASE


def test_run_without_references_has_exactly_the_base_rates():
    none = dict.fromkeys(REFERENCE)
    assert rates(d_model=256, n_tokens=2**22, batch_rows=64, **none) == BASE


@pytest.mark.parametrize(
    ("change", "matrix", "adamw"),
    [
        ({"d_model": 128}, 1.0, 0.7071067811865476),  # 2^-½
        ({"d_model": 256}, 1.0, 0.5),  # 4^-½
        ({"d_model": 32}, 1.0, 1.4142135623730951),
        ({"batch_rows": 64}, 2.1674519, 2.1674519),  # 4^0.558 = 2^1.116
        ({"batch_rows": 8}, 0.6792431, 0.6792431),  # 2^-0.558
        ({"n_tokens": 2**24}, 0.4117955, 1.0),  # 16^-0.32 = 2^-1.28
        ({"n_tokens": 2**19}, 1.2483305, 1.0),  # 2^0.32
        ({"d_model": 256, "batch_rows": 64, "n_tokens": 2**24}, 0.8925470, 1.0837260),
    ],
)
def test_rules_for_width_batch_and_horizon(change, matrix, adamw):
    found = rates(**change)
    assert found["matrix"] == pytest.approx(BASE["matrix"] * matrix, rel=1e-6)
    for group in ADAMW:
        assert found[group] == pytest.approx(BASE[group] * adamw, rel=1e-6)


@pytest.mark.parametrize("factor", ["width_factor", "batch_factor", "horizon_factor"])
def test_factors_compose_and_invert(factor):
    rule = getattr(transfer, factor)
    assert rule(7, 3) * rule(3, 2) == pytest.approx(rule(7, 2))
    assert rule(7, 3) * rule(3, 7) == pytest.approx(1)
    assert rule(7, None) == 1


def test_reference_horizons_are_ten_tokens_per_executed_parameter():
    d = 640
    block = 12 * d**2 + 2 * d
    assert reference_tokens(1) == 10 * (20 * block + 3 * d)
    looped = 10 * ((4 + 4 * 4) * block + 4 * 2 * d**2 + 3 * d)
    for n_recur in (2, 4, 8):
        assert reference_tokens(n_recur) == looped
    assert 983_315_200 == reference_tokens(1)
    assert 1_016_083_200 == looped


@pytest.mark.parametrize(("step", "factor"), [(0, 1.0), (25, 0.775), (50, 0.55), (100, 0.1)])
def test_decay_is_a_line_from_one_to_the_final_share(step, factor):
    assert transfer.decay(step, 100, 0.1) == pytest.approx(factor)


def test_decay_can_end_at_zero_or_stay():
    assert transfer.decay(10, 10, 0.0) == 0
    assert transfer.decay(7, 10, 1.0) == 1


def test_executed_parameters_count_the_loop_as_often_as_it_runs():
    plain, looped = (paper_run(10, r, n_tokens=262_144).model for r in (1, 4))
    assert accounting.executed_params(looped) - accounting.executed_params(plain) == 4 * 2 * 640**2


@pytest.mark.parametrize(("n_recur", "reference"), [(1, 983_315_200), (4, 1_016_083_200)])
def test_paper_recipe_at_its_reference_has_the_base_rates(n_recur, reference):
    batches = round(reference / 262_144)
    found = transfer.learning_rates(paper_run(10, n_recur, n_tokens=batches * 262_144))
    assert found == pytest.approx(BASE, rel=1e-4)


def test_paper_recipe_at_twice_the_width():
    found = transfer.learning_rates(paper_run(20, 4, n_tokens=262_144 * 16_000))
    assert found["embed"] == pytest.approx(0.3 / 2**0.5)
    assert found["matrix"] == pytest.approx(0.014 * (262_144 * 16_000 / 1_016_083_200) ** -0.32)


def test_laptop_recipe_is_its_own_reference_at_its_defaults():
    rates = transfer.learning_rates(laptop_run(64, 4))
    wider = math.sqrt(10)  # from d_model 640, where the paper found the rates of AdamW
    expected = {"embed": 0.3, "unembed": 0.016, "norm": 0.005, "lanes": 0.01}
    assert rates.pop("matrix") == 0.03
    assert rates == pytest.approx({name: rate * wider for name, rate in expected.items()})
