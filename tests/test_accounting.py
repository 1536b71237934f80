"""Counts against the published ones, and against what they are counts of."""

import math

import numpy as np
import pytest

from looped import ModelConfig, accounting, d_model_of_width, paper_config
from looped.registry import published
from looped.studies.paper import BATCH_TOKENS, case_config
from looped.variants import VARIANTS

COUNTS = [
    (row.n_recur, row.width, row.log_n_params, row.log_flops_per_token)
    for row in published.counts().itertuples()
]


@pytest.mark.parametrize(("n_recur", "width", "log_n_params", "log_flops"), COUNTS)
def test_published_counts(n_recur, width, log_n_params, log_flops):
    config = paper_config(d_model_of_width(width), n_recur)
    assert np.log(accounting.n_params(config)) == pytest.approx(log_n_params, rel=0, abs=1e-9)
    # the published logarithms are those of numbers printed to five significant digits
    flops = accounting.flops_per_token(config)
    assert f"{flops:.4e}" == f"{np.exp(log_flops):.4e}"


CONFIGS = [
    pytest.param(paper_config(384, n_recur, variant), id=f"{variant}-{n_recur}")
    for variant in VARIANTS
    for n_recur in ([1] if variant == "none" else [1, 2, 4, 8])
]


@pytest.mark.parametrize("config", CONFIGS)
def test_parameters_are_those_of_the_tensors(config):
    d = config.d_model
    block = [(d, d)] * 4 + [(d, 4 * d), (4 * d, d)] + [(d,)] * 2
    tensors = block * (config.n_prelude + config.n_loop + config.n_coda) + [(d,)] * 3
    if config.variant == "linear":
        tensors += [(d, 2 * d)]
    if config.variant == "hyperconnect":
        lanes = config.n_lanes
        tensors += [(lanes,), (lanes, lanes), (lanes,)] * config.n_recur
    assert accounting.n_params(config) == sum(int(np.prod(shape)) for shape in tensors)
    embeddings = 2 * config.vocab_size * d
    assert sum(accounting.params_by_section(config).values()) == (
        accounting.n_params(config) + embeddings
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_full_training_costs_three_forward_passes(config):
    forward = accounting.inference_flops_per_token(config)
    assert accounting.flops_per_token(config) == 3 * forward


@pytest.mark.parametrize("config", CONFIGS)
def test_real_widths_agree_with_whole_ones(config):
    widths = np.array([256.0, float(config.d_model)])
    for count in (
        accounting.n_params_once,
        accounting.n_params_rec,
        accounting.flops_per_token,
        accounting.inference_flops_per_token,
        accounting.kv_cache_bytes_per_token,
    ):
        assert count(config, widths).shape == (2,)
        assert count(config, widths)[1] == count(config)


@pytest.mark.parametrize("n_recur", [2, 4, 8])
def test_injection_adds_r_over_120_to_the_forward_pass(n_recur):
    looped, plain = paper_config(640, n_recur), paper_config(640, 1)
    d = 1e6  # so wide that the norms do not count
    executed = accounting.n_params_once(looped, d) + n_recur * accounting.n_params_rec(looped, d)
    assert executed / accounting.n_params(plain, d) - 1 == pytest.approx(n_recur / 120, rel=1e-4)


@pytest.mark.parametrize(("variant", "millions"), [("linear", "954.8"), ("additive", "973.0")])
def test_tokens_of_the_injection_ablation(variant, millions):
    config, budget = paper_config(d_model_of_width(10), 4, variant), 1e18
    # the paper divides by FLOPs rounded to five digits, and its runs take whole batches
    printed = budget / float(f"{accounting.flops_per_token(config):.4e}")
    assert f"{printed / 1e6:.1f}" == millions
    tokens, batch = accounting.tokens_at_budget(config, budget, BATCH_TOKENS), 262_144
    assert tokens % batch == 0
    assert abs(tokens - printed) < batch


@pytest.mark.parametrize(("n_recur", "bptt"), [(2, 1), (4, 1), (4, 2), (8, 4)])
def test_a_detached_recurrence_costs_its_forward_pass(n_recur, bptt):
    full = paper_config(640, n_recur)
    truncated = paper_config(640, n_recur, bptt=bptt)
    # per detached recurrence, 4 FLOPs a parameter are saved and 8 d T a layer of attention
    attention = full.n_loop * full.d_model * full.seq_len
    saved = 4 * accounting.n_params_rec(full) + 8 * attention
    difference = accounting.flops_per_token(full) - accounting.flops_per_token(truncated)
    assert difference == (n_recur - bptt) * saved
    assert accounting.flops_per_token(paper_config(640, n_recur, bptt=n_recur)) == (
        accounting.flops_per_token(full)
    )


def test_truncation_buys_the_published_share_of_tokens(all_runs):
    """Published median 1.315; which cells it is over is not said, and all choices come close."""
    looped = all_runs[all_runs["n_recur"] > 1]
    truncated = looped[looped["case"] == "truncated_bptt"]
    baseline = looped[(looped["case"] == "baseline") & looped["budget"].isin(truncated["budget"])]
    medians = [
        np.median([token_ratio(run) for run in cells.itertuples()])
        for cells in (truncated, baseline)
    ]
    assert min(medians) < 1.315 < max(medians)
    assert np.ptp(medians) < 0.002


def token_ratio(run) -> float:
    width, n_recur = run.d_model / 64, int(run.n_recur)
    tokens = [
        accounting.tokens_at_budget(case_config(case, n_recur, width), run.budget, BATCH_TOKENS)
        for case in ("truncated_bptt", "baseline")
    ]
    return tokens[0] / tokens[1]


def test_cache_holds_keys_and_values_of_the_executed_layers():
    config = paper_config(640, 4)
    assert accounting.kv_cache_bytes_per_token(config) == 2 * 2 * config.n_layers * 640
    per_recurrence = 2 * 2 * config.n_loop * 640
    kept = [accounting.kv_cache_bytes_per_token(config, kept=k) for k in range(1, 5)]
    assert np.diff(kept).tolist() == [per_recurrence] * 3
    for wrong in (0, 5):
        with pytest.raises(ValueError, match=f"kept: got {wrong} recurrences, expected 1 to"):
            accounting.kv_cache_bytes_per_token(config, kept=wrong)


def test_decoding_cost_grows_with_the_context_by_attention_alone():
    config = paper_config(640, 4)
    near, far = (accounting.inference_flops_per_token(config, context=c) for c in (0, 100))
    assert far - near == 4 * 100 * 640 * config.n_layers
    executed = accounting.n_params_once(config) + 4 * accounting.n_params_rec(config)
    norms = 3 * config.d_model  # scales outside the blocks cost nothing that is counted
    assert near == 2 * (executed - norms + config.vocab_size * 640)


def test_tokens_are_the_nearest_whole_batches_and_at_least_one():
    config = ModelConfig(d_model=128)
    flops = accounting.flops_per_token(config)
    assert accounting.tokens_at_budget(config, flops * 1_499, batch_tokens=1_000) == 1_000
    assert accounting.tokens_at_budget(config, flops * 1_501, batch_tokens=1_000) == 2_000
    assert accounting.tokens_at_budget(config, 1.0, batch_tokens=1_000) == 1_000


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ValueError, match=r"budget: got .* expected a positive number of FLOPs"):
        accounting.tokens_at_budget(ModelConfig(d_model=128), budget, 1_000)


@pytest.mark.parametrize("n_recur", [1, 2, 4, 8])
def test_executed_layers_store_what_is_counted_and_run_what_is_executed(n_recur):
    config = paper_config(640, n_recur, bptt=math.ceil(n_recur / 2))
    layers = accounting.executed_layers(config)
    assert [layer["position"] for layer in layers] == list(range(1, config.n_layers + 1))
    stored = {layer["layer"] for layer in layers}
    assert stored == set(range(1, config.n_prelude + config.n_loop + config.n_coda + 1))
    assert sum(not layer["reused"] for layer in layers) == len(stored)
    assert sum(layer["injection"] for layer in layers) == (n_recur if n_recur > 1 else 0)
    cut = sum(not layer["gradient"] for layer in layers)
    assert cut == (config.n_recur - config.n_recur_grad) * config.n_loop
