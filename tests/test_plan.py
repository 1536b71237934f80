"""Planning a study: noise that is found again, designs that can be trained, errors that hold."""

import numpy as np
import pytest

import looped
from looped.diagnose.plan import Noise, design, noise_of, own_design, simulated_errors, summary

BUDGETS = [1e18, 2.15e18, 4.64e18]


@pytest.fixture(scope="module")
def runs():
    return looped.load_runs("paper", budget_max=4.64e18)


@pytest.fixture(scope="module")
def law(runs):
    return looped.fit(runs, starts=60)


@pytest.fixture(scope="module")
def planned(runs):
    return looped.plan(runs, BUDGETS, target_se=0.06, starts=60, simulations=200)


@pytest.mark.slow
def test_noise_is_found_again_from_the_residuals_of_fits(runs, law):
    """The fit takes up part of it, most between cells; that is put back."""
    rng = np.random.default_rng(0)
    cells = runs.groupby(["n_recur", "budget"]).ngroup().to_numpy()
    found = []
    for _ in range(40):
        noise = rng.normal(0, 0.005, 16)[cells] + rng.normal(0, 0.004, len(runs))
        noisy = runs.assign(val_loss=law.predict(runs) + noise)
        found.append(noise_of(noisy, looped.fit(noisy, starts=12)))
    cell, run = (
        np.sqrt(np.mean([getattr(each, name) ** 2 for each in found])) for name in ("cell", "run")
    )
    assert cell == pytest.approx(0.005, rel=0.12)
    assert run == pytest.approx(0.004, rel=0.05)


def test_the_cheapest_design_that_is_sure_enough_is_chosen(planned):
    enough = planned.designs[planned.designs["se"] <= 0.06]
    assert planned.runs["flops"].sum() == enough["flops"].min()
    assert (planned.designs["flops"].diff().dropna() >= 0).all()
    assert planned.own["n_runs"] == 20 + 60 + 60
    assert planned.own["n_runs_variant"] == 60


def test_its_runs_bracket_the_laws_optimum_and_spend_their_budgets(planned, runs):
    table = planned.runs
    assert set(table["role"]) == {"anchor", "baseline", "variant"}
    assert (table.loc[table["role"] == "anchor", "n_recur"] == 1).all()
    assert not (table["d_model"] % 128).any()
    np.testing.assert_allclose(table["flops"], table["budget"])
    for (r, budget), cell in table.groupby(["n_recur", "budget"]):
        best = planned.fit.law.optimal(budget, looped.stack_of(runs, r))["d_model"][0]
        assert cell["d_model"].min() < best < cell["d_model"].max()


def test_a_target_out_of_reach_leaves_no_runs(runs):
    missed = looped.plan(runs, BUDGETS[:2], target_se=1e-4, starts=60, simulations=50)
    assert missed.runs is None
    assert len(missed.designs) == 4


def test_without_noise_there_is_no_error(runs, law):
    table = design(runs, law, BUDGETS, (2, 4), 4)
    none = {"baseline": Noise(cell=0.0, run=0.0)}
    errors = simulated_errors(table, law, none, simulations=5)
    np.testing.assert_allclose(errors, 0, atol=1e-6)


@pytest.mark.slow
def test_errors_are_those_of_whole_fits_from_many_starts(runs, law):
    """The planner refits from the law alone; here each study is fitted as a reader would."""
    table = own_design(runs, (2, 4, 8))
    noise = Noise(cell=0.006, run=0.004)
    both = {"baseline": noise}
    quick = summary(simulated_errors(table, law, both, simulations=300, seed=1))["se"]
    rng = np.random.default_rng(2)
    anchor = (table["role"] == "anchor").to_numpy()
    cells = table.groupby(["role", "n_recur", "budget"]).ngroup().to_numpy()
    shifts = []
    for _ in range(100):
        common = rng.normal(0, noise.cell, cells.max() + 1)[cells]
        losses = law.predict(table) + common + rng.normal(0, noise.run, len(table))
        simulated = table.assign(val_loss=losses)
        phi = [
            looped.fit(simulated[anchor | (table["role"] == role)], starts=6).params["phi"]
            for role in ("baseline", "variant")
        ]
        shifts.append(phi[1] - phi[0])
    assert quick == pytest.approx(summary(np.array(shifts))["se"], rel=0.25)


def test_more_budgets_are_surer(runs, law):
    noise = {"baseline": Noise(cell=0.006, run=0.004)}
    few, many = (
        summary(simulated_errors(design(runs, law, budgets, (2, 4, 8), 4), law, noise))["se"]
        for budgets in (BUDGETS[:2], [4.64e17, *BUDGETS, 1e19, 2.15e19])
    )
    assert many < 0.8 * few


@pytest.mark.parametrize(
    ("budgets", "n_recur", "target"),
    [([1e18], [2], 0.03), (BUDGETS, [1], 0.03), (BUDGETS, [0, 2], 0.03), (BUDGETS, [2], 0.0)],
)
def test_bad_studies_are_refused(runs, budgets, n_recur, target):
    with pytest.raises(ValueError, match="expected at least two budgets"):
        looped.plan(runs, budgets, n_recur, target_se=target)


def test_a_variant_that_the_law_fits_worse_is_less_sure(runs):
    truncated = looped.load_runs("paper", case="truncated_bptt")
    options = {"starts": 60, "simulations": 100}
    like = looped.plan(runs, BUDGETS[:2], like=truncated, **options)
    plain = looped.plan(runs, BUDGETS[:2], **options)
    assert plain.noise["variant"] == plain.noise["baseline"] == like.noise["baseline"]
    assert like.noise["variant"].cell > 2 * plain.noise["variant"].cell
    assert like.own["se"] > 1.3 * plain.own["se"]


@pytest.mark.parametrize("n_recur", [[16], [4, 16]])
def test_an_r_that_the_runs_lack_is_refused(runs, n_recur):
    with pytest.raises(ValueError, match=r"r = \[16\]: the runs have only r = \[1, 2, 4, 8\]"):
        looped.plan(runs, BUDGETS, n_recur)


def test_an_anchor_is_needed(runs):
    with pytest.raises(ValueError, match=r"r = \[1\]: the runs have only"):
        looped.plan(runs[runs["n_recur"] > 1], BUDGETS)


def test_too_few_simulations_are_refused(runs):
    with pytest.raises(ValueError, match="expected at least 20"):
        looped.plan(runs, BUDGETS, simulations=1)


def test_noise_needs_runs_that_share_a_cell(runs, law):
    single = runs.drop_duplicates(["n_recur", "budget"]).reset_index(drop=True)
    with pytest.raises(ValueError, match="two or more runs"):
        noise_of(single, looped.fit(single, starts=20))
