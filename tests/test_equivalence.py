"""What a looped model is worth in plain ones: published sizes and exact limits."""

from dataclasses import replace

import numpy as np
import pytest

import looped
from looped import accounting
from looped.diagnose.equivalence import plain_of
from looped.errors import NoMinimum
from looped.registry import published

BUDGET = 1e19


@pytest.fixture(scope="module")
def fit():
    runs = looped.load_runs("paper")
    found = looped.fit(runs, split="stated", starts=60)
    return found.with_interval(looped.bootstrap(runs, found, resamples=60, starts=4))


def test_the_papers_looped_model_and_its_equals(fit):
    """Appendix F.4: 410M unique parameters, the loss of 580M, the cost of 1B."""
    claims = published.claims().set_index("id")["value"]
    printed = {name: float(claims[name]) for name in ("equiv_unique", "equiv_effective")}
    found = looped.equivalence(fit, looped.paper_config(2048, 4))
    assert round(found["n_params"] / 1e6, -1) == printed["equiv_unique"]
    assert round(found["n_params_effective"] / 1e6, -1) == printed["equiv_effective"]
    assert found["n_params_equal_cost"] / 1e9 == pytest.approx(1.0, abs=0.05)
    low, high = (found[f"n_params_effective_{end}"] for end in ("low", "high"))
    assert low < found["n_params_effective"] < high


def test_effective_parameters_are_those_of_equal_loss_at_any_tokens(fit):
    config = looped.paper_config(1024, 8)
    plain = plain_of(config)
    target = looped.equivalence(fit, config)["n_params_effective"]
    widths = np.linspace(512, 1024, 4001)
    width = np.interp(target, accounting.n_params(plain, widths), widths)
    for n_tokens in (1e9, 1e11):
        looped_loss = fit.predict(looped.runs_at_width(config, 1024, n_tokens=n_tokens))[0]
        plain_loss = fit.predict(looped.runs_at_width(plain, width, n_tokens=n_tokens))[0]
        assert looped_loss == pytest.approx(plain_loss, abs=1e-6)


def test_a_plain_model_equals_itself(fit):
    found = looped.equivalence(fit, looped.paper_config(1024, 1))
    assert found["n_params"] == found["n_params_effective"]
    assert found["n_params_equal_cost"] == pytest.approx(found["n_params"], rel=1e-9)


def test_phi_zero_makes_looping_worth_nothing(fit):
    config = looped.paper_config(1024, 4)
    found = looped.equivalence(fit.at(phi=0.0), config)
    assert found["n_params_effective"] == pytest.approx(accounting.n_params(config))
    assert "n_params_effective_low" not in found


@pytest.mark.parametrize("n_recur", [2, 4, 8])
def test_a_free_loop_breaks_even_at_one(fit, n_recur):
    """Without an injection a recurrence costs just what a block of its own costs."""
    config = looped.paper_config(640, n_recur, "additive")
    assert looped.break_even_phi(fit, config, BUDGET) == pytest.approx(1, abs=1e-4)


def test_what_costs_more_has_to_be_worth_more(fit):
    """An injection costs FLOPs; where it counts as capacity (split stated) it pays for itself."""
    linear, truncated = (looped.paper_config(640, 4, bptt=bptt) for bptt in (None, 2))
    assert looped.break_even_phi(replace(fit.law, split="none"), linear, BUDGET) > 1.02
    assert looped.break_even_phi(fit, linear, BUDGET) == pytest.approx(1, abs=0.01)
    assert looped.break_even_phi(fit, truncated, BUDGET) < 0.95


def test_no_phi_breaks_even_if_loops_do_not_enter_the_law(fit):
    flat = fit.at(alpha=1e-9, beta=0.3)
    with pytest.raises(NoMinimum):
        looped.break_even_phi(flat, looped.paper_config(640, 4), BUDGET)


def test_a_plain_model_or_a_law_without_phi_has_nothing_to_compare(fit):
    with pytest.raises(ValueError, match="breaks even at any φ"):
        looped.break_even_phi(fit, looped.paper_config(640, 1), BUDGET)
    other = looped.fit(looped.load_runs("paper", n_recur=4), "chinchilla", starts=20)
    config = looped.paper_config(640, 4)
    for ask in (looped.break_even_phi, looped.matched_losses):
        with pytest.raises(ValueError, match="the chinchilla law has no φ"):
            ask(other, config, BUDGET)
    with pytest.raises(ValueError, match="the chinchilla law has no φ"):
        looped.equivalence(other, config)


def test_each_row_matches_what_it_says(fit):
    config = looped.paper_config(640, 4)
    table = looped.matched_losses(fit, config, BUDGET).set_index("matched")
    plain = plain_of(config)
    spent = table["n_tokens_plain"] * accounting.flops_per_token(plain, table["d_model_plain"])
    np.testing.assert_allclose(spent, BUDGET)
    for row, name in (("unique parameters", "n_params"), ("inference memory", "memory")):
        assert table.loc[row, f"{name}_looped"] == pytest.approx(table.loc[row, f"{name}_plain"])
    cost = accounting.flops_per_token(config, table["d_model_looped"].iloc[0])
    width = table.loc["FLOPs per token", "d_model_plain"]
    assert accounting.flops_per_token(plain, width) == pytest.approx(cost)
    assert table.loc["FLOPs per token", "n_tokens_plain"] == pytest.approx(
        table.loc["FLOPs per token", "n_tokens_looped"]
    )
    best = fit.law.optimal(BUDGET, plain)["val_loss_star"].iloc[0]
    assert table["val_loss_plain"].min() == pytest.approx(best) == table["val_loss_plain"].iloc[0]


def test_memory_is_all_weights_and_a_full_cache(fit):
    config = looped.paper_config(640, 4)
    row = looped.matched_losses(fit, config, BUDGET).iloc[0]
    whole = replace(config, d_model=1664)
    ratio = row["d_model_looped"] / whole.d_model
    weights = looped.counts(whole)["n_params"] + looped.counts(whole)["n_params_embed"]
    cache = 2048 * looped.counts(whole)["kv_cache_bytes_per_token"]
    assert 0.8 < row["memory_looped"] / (2 * weights * ratio**2 + cache * ratio) < 1.2
