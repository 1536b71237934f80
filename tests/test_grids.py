"""The named grids: their sizes, identities and budgets, and that they follow the facts."""

import math

import numpy as np
import pytest

import looped
from looped import accounting
from looped.paths import runs_dir
from looped.registry.record import is_record
from looped.studies.paper import case_config

SIZES = {
    "paper": 116,
    "paper-tbptt": 69,
    "paper-hyperconnect": 63,
    "paper-extrapolation": 2,
    "paper-lr-sweep": 32,
    "paper-injection": 4,
    "laptop": 68,
    "laptop-seeds": 16,
    "laptop-tbptt": 39,
    "laptop-hyperconnect": 39,
    "laptop-lr-sweep": 24,
    "laptop-lr-transfer": 12,
    "laptop-injection": 4,
    "smoke": 4,
}

TRAINED = sorted({path.parent.name for path in runs_dir().glob("*/*.json") if is_record(path)})


@pytest.mark.parametrize("name", looped.GRIDS)
def test_every_run_is_one_run_and_is_counted_in_its_description(name):
    specs = looped.get_grid(name)
    assert len({spec.run_id for spec in specs}) == len(specs) == SIZES[name]
    assert looped.GRIDS[name].__doc__.startswith(f"{len(specs)} runs")


def test_no_run_is_in_two_grids_of_a_scale():
    for scale in ("paper", "laptop"):
        named = [
            spec
            for name in looped.GRIDS
            if name.startswith(scale)
            for spec in looped.get_grid(name)
        ]
        assert len({spec.run_id for spec in named}) == len(named)


@pytest.mark.parametrize(
    ("grid", "case"),
    [("paper", "baseline"), ("paper-hyperconnect", "hyperconnections")],
)
def test_the_grid_of_the_paper_is_that_of_its_figure(grid, case, all_runs):
    """Same architectures, budgets and tokens as the digitised runs of the case."""
    shown = all_runs[all_runs["case"] == case]
    ours = {
        (s.budget, s.model.n_recur, s.model.d_model, s.train.n_tokens)
        for s in looped.get_grid(grid)
    }
    columns = ["budget", "n_recur", "d_model", "n_tokens"]
    assert ours == set(shown[columns].itertuples(index=False, name=None))


def test_truncation_runs_all_that_the_figure_shows_and_eight_more(all_runs):
    shown = all_runs[all_runs["case"] == "truncated_bptt"]
    columns = ["budget", "n_recur", "d_model"]
    ours = {(s.budget, s.model.n_recur, s.model.d_model) for s in looped.get_grid("paper-tbptt")}
    assert set(shown[columns].itertuples(index=False, name=None)) < ours
    for spec in looped.get_grid("paper-tbptt"):
        assert spec.model.bptt == math.ceil(spec.model.n_recur / 2)
        width = spec.model.d_model // 64
        counted = accounting.flops_per_token(
            case_config("truncated_bptt", spec.model.n_recur, width)
        )
        assert accounting.flops_per_token(spec.model) == counted


def test_the_extrapolation_pair_reads_47_billion_tokens():
    for spec in looped.get_grid("paper-extrapolation"):
        assert spec.n_steps == 89_645
        assert spec.batch_tokens == 524_288
        assert spec.model.d_model == 34 * 64
        assert spec.flops == pytest.approx(4e20, rel=0.03)


@pytest.mark.parametrize("name", [name for name in looped.GRIDS if name.startswith("laptop")])
def test_laptop_runs_stay_within_one_epoch(name):
    assert max(spec.train.n_tokens for spec in looped.get_grid(name)) < 10e6


def test_laptop_cases_share_the_cells_of_the_baseline():
    cells = {(s.budget, s.model.d_model, s.model.n_recur) for s in looped.get_grid("laptop")}
    for name in ("laptop-tbptt", "laptop-hyperconnect", "laptop-seeds"):
        for spec in looped.get_grid(name):
            assert (spec.budget, spec.model.d_model, spec.model.n_recur) in cells


def test_costs_are_sums_over_the_runs():
    costs = looped.cost_table().set_index("grid")
    assert costs["runs"].to_dict() == SIZES
    paper = looped.get_grid("paper")
    assert costs.loc["paper", "n_tokens"] == sum(spec.train.n_tokens for spec in paper)
    np.testing.assert_allclose(costs.loc["paper", "flops"], sum(s.budget for s in paper), rtol=1e-3)


def test_an_unknown_grid_says_which_there_are():
    with pytest.raises(ValueError, match="grid: got 'desktop', expected one of paper, "):
        looped.get_grid("desktop")


@pytest.mark.parametrize("name", TRAINED)
def test_every_committed_record_is_a_run_of_its_grid(name):
    """Run ids are hashes of specs, so a changed name or constant would orphan the records."""
    recorded = {record.run_id for record in looped.load_records(name)}
    assert recorded <= {spec.run_id for spec in looped.get_grid(name)}
