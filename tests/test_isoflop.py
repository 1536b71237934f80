"""IsoFLOP minima: the published ones, exact parabolas, and cells that have none."""

import numpy as np
import pytest

import looped
from looped import NoMinimum, isoflop_minima, loss_gaps
from looped.fitting.isoflop import parabola_minimum

DIGITISATION = 2.6e-5
"""Largest error of a minimum that the digitised heights allow, nats (see runs/paper/README.md)."""


def beside_published(case, minima):
    """Computed beside published minima of a case, by cell."""
    theirs = looped.published.minima()
    theirs = theirs[theirs["case"] == case]
    return minima.merge(theirs, on=["n_recur", "budget"], suffixes=("", "_published"))


def test_published_minima_of_the_baseline(runs):
    both = beside_published("baseline", isoflop_minima(runs))
    assert len(both) == 24
    assert (both["refusal"] == "").all()
    difference = both["val_loss_star"] - both["val_loss_star_published"]
    assert difference.abs().max() < DIGITISATION
    np.testing.assert_allclose(both["n_params_star"], both["n_params_star_published"], rtol=5e-4)


@pytest.mark.parametrize("case", ["truncated_bptt", "hyperconnections"])
def test_published_minima_of_the_case_studies(case):
    both = beside_published(case, isoflop_minima(looped.load_runs("paper", case=case)))
    kept = both[both["refusal"] == ""]
    assert len(both) == 12
    assert len(kept) >= 11
    difference = kept["val_loss_star"] - kept["val_loss_star_published"]
    assert difference.abs().max() < DIGITISATION


def test_a_published_minimum_beyond_its_runs_is_refused_here():
    both = beside_published(
        "truncated_bptt", isoflop_minima(looped.load_runs("paper", case="truncated_bptt"))
    )
    refused = both[both["refusal"] != ""]
    runs = looped.load_runs("paper", case="truncated_bptt")
    for cell in refused.itertuples():
        widest = runs[(runs["n_recur"] == cell.n_recur) & (runs["budget"] == cell.budget)]
        assert cell.n_params_star_published > widest["n_params"].max()
        assert "lies outside the runs" in cell.refusal
        assert np.isnan(cell.n_params_star)
        assert np.isnan(cell.val_loss_star)
    assert len(refused) == 1


def parabola(log_n, centre=18.0, level=2.5, curvature=0.06):
    return level + curvature * (log_n - centre) ** 2


@pytest.mark.parametrize("n_widths", [3, 7])
def test_an_exact_parabola_gives_its_vertex(n_widths):
    log_n = np.linspace(17, 18.5, n_widths)
    found = parabola_minimum(np.exp(log_n), parabola(log_n))
    assert found == pytest.approx(
        {"n_params_star": np.exp(18.0), "val_loss_star": 2.5, "curvature": 0.06}, rel=1e-9
    )


@pytest.mark.parametrize(
    ("log_n", "curvature", "message"),
    [
        ([17.5, 18.5], 0.06, "needs three widths, got 2; add runs"),
        ([17.5, 17.5, 18.5, 18.5], 0.06, "needs three widths, got 2; add runs"),
        ([17.0, 18.0, 19.0], -0.06, "opens downwards .*-0.06.*; add runs"),
        ([18.1, 18.5, 19.0], 0.06, "N = 6.57e.07 lies outside the runs .*; add narrower runs"),
        ([16.0, 17.0, 17.9], 0.06, "N = 6.57e.07 lies outside the runs .*; add wider runs"),
    ],
)
def test_a_cell_without_interior_minimum_is_refused(log_n, curvature, message):
    log_n = np.array(log_n)
    with pytest.raises(NoMinimum, match=message):
        parabola_minimum(np.exp(log_n), parabola(log_n, curvature=curvature))


def test_a_refused_cell_stays_in_the_table(runs):
    first = (runs["n_recur"] == 1) & (runs["budget"] == runs["budget"].min())
    thinned = runs[~first | (runs["n_params"] == runs.loc[first, "n_params"].min())]
    minima = isoflop_minima(thinned)
    assert len(minima) == 24
    refused = minima[minima["refusal"] != ""]
    assert refused[["n_recur", "budget", "n_runs"]].values.tolist() == [[1, 4.64e17, 1]]
    assert refused["n_params_star"].isna().all()


def test_gaps_to_the_non_looped_minimum_grow_with_r(runs):
    gaps = loss_gaps(isoflop_minima(runs))
    assert len(gaps) == 18
    means = gaps.groupby("n_recur")["gap"].mean()
    assert means.is_monotonic_increasing
    for n_recur, low, high in [(2, 0.03, 0.06), (4, 0.05, 0.08), (8, 0.09, 0.12)]:
        gap = gaps.loc[gaps["n_recur"] == n_recur, "gap"]
        assert low <= round(gap.min(), 2)
        assert round(gap.max(), 2) <= high


@pytest.mark.parametrize("column", ["budget", "n_recur", "n_params"])
def test_cells_need_their_columns(runs, column):
    with pytest.raises(ValueError, match=rf"an isoFLOP .* needs .*got {column} .no such column"):
        isoflop_minima(runs.drop(columns=column))
