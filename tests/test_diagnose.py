"""Shifts of φ: published ones, exact limits, synthetic truth, and what is refused or warned of."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import looped
from looped.diagnose.decomposition import CASES, PARTS
from looped.diagnose.delta import _monte_carlo
from looped.registry import published

QUICK = {"resamples": 60, "starts": 60, "resample_starts": 4}
BUDGETS = (4.64e17, 1e18, 2.15e18, 4.64e18)
WIDTHS = np.array([384, 512, 640, 896, 1152, 1536, 2048, 2560])
LAW = {"E": 1.85, "A": 68.7, "B": 4495.0, "alpha": 0.2655, "beta": 0.4566, "phi": 0.43}


@pytest.fixture(scope="module")
def some_fit():
    return looped.fit(looped.load_runs("paper", budget_max=4.64e18), starts=60)


@pytest.fixture(scope="module")
def hyper():
    """The paper's hyperconnections, split stated, whose interval is clear of 0."""
    cases = (looped.load_runs("paper", case=case) for case in ("baseline", "hyperconnections"))
    return looped.delta_phi(*cases, split="stated", **QUICK | {"resamples": 400})


def study(case="baseline", *, fit, tokens=1.0, budgets=BUDGETS, n_recurs=(1, 2, 4, 8), **params):
    """Runs without noise of a law, on the paper's stacks; tokens multiplies D of looped runs."""
    rows = [
        looped.runs_at_width(looped.paper_config(640, r), WIDTHS, budget=budget)
        for budget in budgets
        for r in n_recurs
    ]
    runs = pd.concat(rows, ignore_index=True).assign(case=case, source="simulated")
    runs["d_model"] = runs["d_model"].astype(int)
    if tokens != 1:
        more = np.where(runs["n_recur"] > 1, tokens, 1.0)
        runs["n_tokens"] *= more
        runs["flops_per_token"] /= more
    return runs.assign(val_loss=fit.at(**LAW | params).loss(runs))


@pytest.mark.parametrize(
    ("case", "stated"), [("truncated_bptt", -0.0675), ("hyperconnections", 0.221)]
)
def test_the_published_shifts(case, stated):
    printed = float(published.claims().set_index("id").loc[f"dphi_{case}", "value"])
    cases = [looped.load_runs("paper", case=name) for name in ("baseline", case)]
    fitted, by_text = (
        looped.delta_phi(*cases, split=split, **QUICK) for split in ("fitted", "stated")
    )
    # the published shift is the difference of two rounded numbers
    assert fitted.delta_phi == pytest.approx(printed, abs=1e-3)
    assert by_text.delta_phi == pytest.approx(stated, abs=5e-4)
    assert fitted.interval[0] < fitted.delta_phi < fitted.interval[1]
    assert fitted.budgets == BUDGETS
    assert fitted.n_recur == (2, 4, 8)


def test_the_verdicts_on_the_papers_cases(hyper):
    assert hyper.kind == "architecture-side"
    assert hyper.resolved
    truncated = looped.delta_phi(
        *(looped.load_runs("paper", case=case) for case in ("baseline", "truncated_bptt")), **QUICK
    )
    assert truncated.kind == "training-side"
    assert not truncated.resolved
    assert "not resolved" in truncated.verdict
    assert any("r = 2 carries the misfit" in text for text in truncated.warnings)
    assert any("r = 2" in text and "single φ" in text for text in hyper.warnings)


def test_the_ends_are_as_uncertain_as_quantiles_of_so_many_normal_draws(hyper):
    n = 4000
    draws = [np.random.default_rng(0).normal(size=n).tolist(), [0.0] * n]
    fits = [
        replace(each, interval=replace(each.interval, draws={"phi": values}))
        for each, values in zip((hyper.variant, hyper.baseline), draws, strict=True)
    ]
    shift = replace(hyper, variant=fits[0], baseline=fits[1])
    end = norm.ppf(0.025)
    expected = np.sqrt(0.025 * 0.975 / n) / norm.pdf(end)
    assert shift.edge_error == pytest.approx(expected, rel=0.35)
    assert shift.interval[0] == pytest.approx(end, abs=3 * expected)


def drawn(shift, draws):
    """The same shift, had the paired resamples come out as these."""
    before = np.array(shift.baseline.interval.draws["phi"][: len(draws)])
    pair = {"baseline": before, "variant": before + draws}
    fits = {
        name: each.with_interval(replace(each.interval, draws={"phi": phi.tolist()}))
        for name, each in (("baseline", shift.baseline), ("variant", shift.variant))
        for phi in (pair[name],)
    }
    return replace(shift, **fits)


def test_an_interval_that_ends_near_zero_is_borderline(hyper):
    spread = np.random.default_rng(0).normal(0, 0.05, 400)
    far, near = (_monte_carlo(drawn(hyper, centre + spread)) for centre in (0.3, 0.098))
    assert far == []
    assert len(near) == 1
    assert drawn(hyper, 0.098 + spread).borderline
    assert "another seed could change whether the shift is resolved" in near[0]


def test_an_end_that_few_resamples_decide_is_warned_of(hyper):
    draws = np.random.default_rng(0).normal(0.3, 0.05, 400)
    draws[:10] = np.linspace(1.5, 3, 10)  # 2.5 % of them: the quantile stands at the gap
    (text,) = _monte_carlo(drawn(hyper, draws))
    assert "the ends of the interval of Δφ have Monte Carlo errors of ±" in text


def test_fits_at_their_bounds_resolve_nothing(hyper):
    assert replace(hyper, variant=replace(hyper.variant, status="at_bound")).kind == "not resolved"


def test_the_parts_add_up_to_what_was_measured(hyper):
    table = hyper.decomposition
    np.testing.assert_allclose(
        table[[*PARTS, "misfit"]].sum(axis=1), table["measured"], rtol=0, atol=1e-12
    )
    assert len(table) == 12
    parts = hyper.parts["mean"]
    assert parts.drop("measured").sum() == pytest.approx(parts["measured"], abs=1e-12)


def test_the_parts_are_the_mean_over_all_orders_of_exchange(hyper):
    cases = [looped.load_runs("paper", case=case) for case in ("baseline", "hyperconnections")]
    cells, _ = looped.diagnose.delta._cells(
        *looped.diagnose.pairing.paired(*cases)[:2], hyper.variant.split
    )
    pair = (hyper.baseline, hyper.variant)

    def loss(row, tokens, capacity, rest):
        params = pair[rest].params | {"phi": pair[capacity].params["phi"]}
        once, rec = (row[f"n_params_{part}_{CASES[capacity]}"] for part in ("once", "rec"))
        effective = once + row["n_recur"] ** params["phi"] * rec
        d = row[f"n_tokens_{CASES[tokens]}"]
        return (
            params["E"]
            + params["A"] * effective ** -params["alpha"]
            + params["B"] * d ** -params["beta"]
        )

    for i, row in cells.iterrows():
        shares = np.zeros(3)
        for order in itertools.permutations(range(3)):
            state = [0, 0, 0]
            for player in order:
                before = loss(row, *state)
                state[player] = 1
                shares[player] += (loss(row, *state) - before) / 6
        np.testing.assert_allclose(hyper.decomposition.loc[i, list(PARTS)].tolist(), shares)


def test_a_case_against_itself_does_not_shift_in_any_resample():
    """The same cells are drawn for both: unpaired, the spread of φ itself would show."""
    runs = looped.load_runs("paper", budget_max=4.64e18)
    same = looped.delta_phi(runs, runs.assign(case="again"), **QUICK)
    assert same.delta_phi == 0
    assert not same.draws.any()
    assert np.std(same.variant.interval.draws["phi"]) > 0.01
    assert same.kind == "not resolved"
    np.testing.assert_array_equal(same.decomposition[["measured", *PARTS, "misfit"]], 0)
    np.testing.assert_array_equal(same.width_shift[["d_model", "n_params"]], 1)


def test_a_shift_of_phi_alone_is_all_capacity(some_fit):
    found = looped.delta_phi(study(fit=some_fit), study("better", fit=some_fit, phi=0.63), **QUICK)
    assert found.delta_phi == pytest.approx(0.2, abs=1e-4)
    assert found.kind == "architecture-side"
    means = found.parts["mean"]
    assert means["capacity"] == pytest.approx(means["tokens":"rest"].sum(), abs=1e-5)
    assert means["capacity"] < -0.01


def test_more_tokens_alone_are_all_tokens(some_fit):
    found = looped.delta_phi(
        study(fit=some_fit), study("cheaper", fit=some_fit, tokens=1.3), **QUICK
    )
    assert found.delta_phi == pytest.approx(0, abs=1e-4)
    means = found.parts["mean"]
    assert means["tokens"] == pytest.approx(means["tokens":"rest"].sum(), abs=1e-5)
    assert means["tokens"] < -0.01
    assert found.kind == "training-side"
    assert found.verdict.startswith("training-side: ")


def test_both_sides_at_once(some_fit):
    variant = study("both", fit=some_fit, tokens=1.3, phi=0.63)
    assert looped.delta_phi(study(fit=some_fit), variant, **QUICK).kind == "both"


def test_cells_that_only_one_case_has_are_left_out_and_named(some_fit):
    variant = study("less", fit=some_fit, n_recurs=(1, 2, 4), budgets=BUDGETS[:3], phi=0.5)
    found = looped.delta_phi(study(fit=some_fit), variant, **QUICK)
    assert found.n_recur == (2, 4)
    assert found.budgets == BUDGETS[:3]
    assert found.baseline.n_runs == found.variant.n_runs == 3 * 3 * len(WIDTHS)
    assert any(text.startswith("baseline: 56 runs in cells") for text in found.warnings)
    assert any("only 9 cells" in text for text in found.warnings)


def test_budgets_can_be_chosen(some_fit):
    found = looped.delta_phi(
        study(fit=some_fit), study("x", fit=some_fit, phi=0.5), budgets=BUDGETS[1:], **QUICK
    )
    assert found.budgets == BUDGETS[1:]


def test_a_variant_takes_the_baselines_anchor(some_fit):
    baseline, variant = study(fit=some_fit), study("x", fit=some_fit, phi=0.5)
    alone = variant[variant["n_recur"] > 1]
    own, taken = (looped.delta_phi(baseline, each, **QUICK) for each in (variant, alone))
    assert own.variant.n_runs == taken.variant.n_runs == len(variant)
    assert own.delta_phi == pytest.approx(taken.delta_phi, abs=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.assign(val_loss=v["val_loss"] + 0.001), "different r = 1 runs"),
        (lambda v: v[v["n_recur"] == 1], "no .budget, r. cell with r > 1"),
        (lambda v: v.assign(budget=v["budget"] * 1.01), "no .budget, r. cell with r > 1"),
        (lambda v: v.drop(columns="budget"), "budget"),
        (lambda v: pd.concat([v, v.assign(case="y")]), "several cases"),
    ],
)
def test_cases_that_cannot_be_compared_are_refused(some_fit, change, message):
    baseline, variant = study(fit=some_fit), study("x", fit=some_fit)
    with pytest.raises(ValueError, match=message):
        looped.delta_phi(baseline, change(variant), **QUICK)


def test_a_budget_that_a_case_lacks_is_refused(some_fit):
    with pytest.raises(ValueError, match="which case 'baseline' does not have"):
        looped.delta_phi(study(fit=some_fit), study("x", fit=some_fit), budgets=[3e18], **QUICK)


def test_an_anchor_is_needed(some_fit):
    runs = study(fit=some_fit, n_recurs=(2, 4, 8))
    with pytest.raises(ValueError, match="no non-looped anchor"):
        looped.delta_phi(runs, runs.assign(case="x"), **QUICK)


def test_inference_costs_follow_the_widths(hyper):
    cases = [looped.load_runs("paper", case=case) for case in ("baseline", "hyperconnections")]
    sizes = [
        looped.isoflop_minima(runs).set_index(["n_recur", "budget"])["n_params_star"]
        for runs in cases
    ]
    for row in hyper.width_shift.dropna().itertuples():
        before, after = (each[row.n_recur, row.budget] for each in sizes)
        assert row.n_params == pytest.approx(after / before)
        # twenty layers of cache in both, so the ratio is that of the widths
        assert row.kv_cache_bytes_per_token == pytest.approx(row.d_model)
        assert 1 < row.d_model < row.inference_flops_per_token < row.n_params


def test_an_architecture_unknown_to_the_accounting_has_no_inference_costs(some_fit):
    baseline = study(fit=some_fit)
    variant = study("gated", fit=some_fit, phi=0.5)
    looped_rows = variant["n_recur"] > 1
    variant["n_params_rec"] += np.where(looped_rows, variant["d_model"] ** 2, 0)
    variant["n_params"] = variant["n_params_once"] + variant["n_params_rec"]
    found = looped.delta_phi(baseline, variant, **QUICK)
    assert found.width_shift["inference_flops_per_token"].isna().all()
    assert found.width_shift["n_params"].notna().all()
    assert "inference_flops_per_token" not in found.to_dict()["width_shift"]


def test_without_widths_the_shift_still_stands(some_fit):
    pair = [study(fit=some_fit), study("x", fit=some_fit, phi=0.63)]
    found = looped.delta_phi(*(runs.drop(columns="d_model") for runs in pair), **QUICK)
    assert found.delta_phi == pytest.approx(0.2, abs=1e-4)
    assert "could not be separated" in found.verdict
    assert any("need d_model" in text for text in found.warnings)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["decomposition"]["cells"] == []


def test_a_cell_whose_optimum_is_not_bracketed_is_left_out_and_named(some_fit):
    baseline = study(fit=some_fit)
    first = (baseline["budget"] == BUDGETS[0]) & (baseline["n_recur"] == 8)
    baseline = baseline[~first | (baseline["d_model"] > 1000)]
    found = looped.delta_phi(baseline, study("x", fit=some_fit, phi=0.5), **QUICK)
    assert len(found.decomposition) == 11
    assert any("r = 8, 4.64e+17 FLOPs is left out" in text for text in found.warnings)


@pytest.mark.slow
def test_the_block_interval_covers_the_truth_and_that_of_single_runs_does_not(some_fit):
    """Noise that all runs of a cell share, in simulated studies with a shift of 0.1."""
    rng = np.random.default_rng(0)
    n_recurs = (1, 2, 8)
    baseline = study(fit=some_fit, n_recurs=n_recurs)
    variant = study("x", fit=some_fit, n_recurs=n_recurs, phi=LAW["phi"] + 0.1)
    cells = baseline.groupby(["budget", "n_recur"]).ngroup().to_numpy()
    covered = {"block": [], "iid": []}
    for seed in range(100):
        noisy = []
        for runs in (baseline, variant[variant["n_recur"] > 1]):
            noise = rng.normal(0, 0.008, 12)[cells[runs.index]] + rng.normal(0, 0.001, len(runs))
            noisy.append(runs.assign(val_loss=runs["val_loss"] + noise))
        for method in covered if seed < 50 else ("block",):
            found = looped.delta_phi(
                *noisy, method=method, resamples=60, starts=4, resample_starts=1, seed=seed
            )
            covered[method].append(found.interval[0] <= 0.1 <= found.interval[1])
    assert np.sum(covered["block"]) >= 90
    assert np.mean(covered["iid"]) <= 0.8


def test_diagnostics_are_computed_only_when_they_are_read(hyper, monkeypatch):
    shift = replace(hyper)
    monkeypatch.setattr(looped.diagnose.delta, "decompose", pytest.fail)
    monkeypatch.setattr(looped.diagnose.delta, "cautions", pytest.fail)
    assert shift.resolved
    assert shift.interval[0] > 0
    assert repr(shift) == repr(hyper)


def test_a_shift_shows_itself_in_a_line_a_text_and_a_table(hyper):
    assert len(repr(hyper)) < 200
    text, html = hyper.summary(), hyper._repr_html_()
    for shown in (hyper.verdict, *hyper.warnings, f"{hyper.delta_phi:+.4f}", "split stated"):
        assert shown in text
    assert html.count("<table") == 3
    assert f"{hyper.delta_phi:+.4f}" in html
    assert hyper.split == "stated"
