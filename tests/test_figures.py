"""Every figure is valid, described and downloadable, for the paper's runs and for others."""

import numpy as np
import pandas as pd
import pytest
from charts import (
    PREDICTIONS,
    PROFILE,
    STUDIES,
    TASK_GAPS,
    TASK_LOSSES,
    WIDTH_GAPS,
    csv_of,
    curves,
    drawn_of,
    layers,
    ratios,
    sections,
    spec_of,
    sweep,
)

import looped
from looped import figures
from looped.config import ModelConfig
from looped.figures import parts, theme

BUDGETS = np.geomspace(1e18, 1e20, 9)
ODD_RECURRENCES = (1, 3, 6, 16)


@pytest.fixture(scope="module")
def paper(runs, fit_paper):
    drawn = drawn_of(runs, fit_paper())
    variant = looped.load_runs("paper", case="hyperconnections")
    drawn.shift = looped.delta_phi(runs, variant, resamples=12, starts=20, resample_starts=5)
    return drawn


@pytest.fixture(scope="module")
def odd(paper):
    """Runs of someone else: other r, nine budgets, no errors, flags, source or case."""
    configs = [
        ModelConfig(
            d_model=128, n_recur=n_recur, n_loop=4, variant="linear" if n_recur > 1 else "none"
        )
        for n_recur in ODD_RECURRENCES
    ]
    widths = [192, 384, 768, 1536, 3072, 6144]
    rows = [
        looped.runs_at_width(config, widths, budget=budget)
        for config in configs
        for budget in BUDGETS
    ]
    table = pd.concat(rows, ignore_index=True)
    table["budget"] = np.repeat(np.tile(BUDGETS, len(configs)), len(widths))
    return table.assign(val_loss=paper.fit.predict(table))


FIGURES = {
    "isoflop": lambda p: figures.isoflop(p.runs, p.minima),
    "isoflop of a fit": lambda p: figures.isoflop(p.runs, p.minima, p.fit),
    "phi_slider": lambda p: figures.phi_slider(p.runs, p.fit),
    "recurrence_ratios": lambda p: figures.recurrence_ratios(ratios()),
    "frontier": lambda p: figures.frontier(p.minima, p.optimal, p.optimal),
    "gaps": lambda p: figures.gaps(looped.loss_gaps(p.minima), {2: (0.03, 0.06)}),
    "gaps_at_width": lambda p: figures.gaps_at_width(WIDTH_GAPS),
    "held_out_residuals": lambda p: figures.held_out_residuals(
        [looped.hold_out(p.runs, out, starts=20) for out in ([2.15e19], [1e18, 1e19])]
    ),
    "prediction_intervals": lambda p: figures.prediction_intervals(PREDICTIONS),
    "loss_change": lambda p: figures.loss_change({"own": p.shift}),
    "phi_pairs": lambda p: figures.phi_pairs({"own": p.shift}),
    "optimal_sizes": lambda p: figures.optimal_sizes(p.optimal, p.minima),
    "predicted_actual": lambda p: figures.predicted_actual({"joint": (p.runs, p.fit)}),
    "residuals": lambda p: figures.residuals({"joint": (p.runs, p.fit)}),
    "bootstrap_histogram": lambda p: figures.bootstrap_histogram({"block": p.boot}, (0.41, 0.53)),
    "split_phi": lambda p: figures.split_phi(STUDIES),
    "params_by_section": lambda p: figures.params_by_section(sections()),
    "profile": lambda p: figures.profile(PROFILE),
    "rate_sweep": lambda p: figures.rate_sweep(sweep()),
    "rate_sweep in panels": lambda p: figures.rate_sweep(sweep().assign(panel=list("aaabbb"))),
    "schematic": lambda p: figures.schematic(layers()),
    "task_gaps": lambda p: figures.task_gaps(TASK_GAPS),
    "task_losses": lambda p: figures.task_losses(TASK_LOSSES),
    "task_losses without chance": lambda p: figures.task_losses(TASK_LOSSES.iloc[:, :4]),
    "training_curves": lambda p: figures.training_curves(curves()),
}


@pytest.mark.parametrize("name", FIGURES)
def test_is_valid_described_and_downloadable(name, paper):
    chart = FIGURES[name](paper)
    spec = spec_of(chart)
    assert len(csv_of(chart)) > 1
    assert any(digit in spec["description"] for digit in "0123456789")
    assert "nan" not in spec["description"]


def test_every_figure_is_tried():
    tried = {name.split()[0] for name in FIGURES}
    assert tried == set(figures.__all__) - {"enable_book_renderer", "glue", "note", "table"}


@pytest.mark.parametrize(
    "name", ["isoflop of a fit", "phi_slider", "predicted_actual", "residuals"]
)
def test_names_split_and_source(name, paper):
    spec = spec_of(FIGURES[name](paper))
    assert "split fitted" in spec["description"]
    title = " ".join(spec["title"]["text"])
    assert "split fitted" in title
    assert "digitised runs" in title


class TestOtherRuns:
    def test_every_figure_of_runs(self, odd, paper):
        minima = looped.isoflop_minima(odd)
        fit = looped.fit(odd, split="stated", starts=40)
        charts = [
            figures.isoflop(odd, minima),
            figures.isoflop(odd, minima, fit),
            figures.phi_slider(odd, fit),
            figures.predicted_actual({"own": (odd, fit)}),
            figures.residuals({"own": (odd, fit)}),
            figures.frontier(minima, paper.optimal),
            figures.gaps(looped.loss_gaps(minima)),
        ]
        for chart in charts:
            assert set(ODD_RECURRENCES[1:]) <= set(csv_of(chart)["n_recur"])

    def test_budgets_and_recurrences_have_their_own_colours(self):
        budgets = theme.budget_color(BUDGETS)["scale"]
        assert len(set(budgets["range"])) == len(budgets["domain"]) == len(BUDGETS)
        scale = theme.recur_color([16, 1, 3, 6, 8])["scale"]
        assert scale["domain"] == [1, 3, 6, 8, 16]
        assert len(set(scale["range"])) == 5
        known = theme.RECUR_COLORS
        assert (scale["range"][0], scale["range"][3]) == (known[1], known[8])

    def test_flags_are_explained(self, paper):
        care = parts.drawable(paper.runs.assign(flag=["star+overlap", "restarted"] + [""] * 114))[
            "care"
        ]
        assert care.to_list()[:3] == [
            f"{parts.FLAG_REASONS['star']}; {parts.FLAG_REASONS['overlap']}",
            "restarted",
            "no",
        ]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda runs: runs.drop(columns="budget"),
            r"figure isoflop needs .*budget \(no such column\)",
        ),
        (lambda runs: runs.assign(n_recur=pd.NA), r"n_recur \(missing in row 0\)"),
        (lambda runs: runs[:0], "no rows"),
    ],
)
def test_runs_that_cannot_be_drawn(damage, message, paper):
    with pytest.raises(ValueError, match=message):
        figures.isoflop(damage(paper.runs), paper.minima)
