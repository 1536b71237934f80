"""Tables of downstream tasks: printed losses and their order, and measured primitives."""

import numpy as np
import pandas as pd
import pytest

import looped
from looped import tables


@pytest.fixture(scope="module")
def tasks():
    return looped.published.downstream()


@pytest.fixture
def two():
    """Two tasks: one of knowledge whose loss grows with r, one of reading whose loss does not."""
    return pd.DataFrame(
        {
            "axis": ["knowledge", "reading"],
            "task": ["facts", "story"],
            "r1": [2.0, 3.0],
            "r2": [2.1, 2.9],
            "r4": [2.2, 3.1],
            "r8": [2.4, 2.8],
            "r1_low": [1.5, 2.5],
            "r1_high": [2.5, 4.5],
        }
    )


@pytest.fixture
def measured():
    """Two primitives on two models, with the columns of `looped.evaluate_checkpoint`."""
    rows = [
        ("copy", "loss", "a", 2.0, 5.0),
        ("copy", "loss", "b", 1.0, 4.0),
        ("sort", "loss", "a", 3.0, 5.0),
        ("copy", "accuracy", "a", 0.25, 5.0),
        ("copy", "accuracy", "b", 0.5, 4.0),
    ]
    columns = ["task", "metric", "run_id", "value", "val_loss"]
    known = {"n_shots": 3, "n_examples": 100, "se": 0.1, "chance_listed": 1.2, "chance_any": 1.5}
    return pd.DataFrame(rows, columns=columns).assign(**known)


def test_the_list_of_tasks_has_each_task_once(tasks):
    listed = tables.task_list(tasks)
    assert list(listed) == ["axis", "task", "samples", "shots", "type"]
    assert listed["task"].is_unique
    assert len(listed) == 20


def test_losses_stand_under_their_recurrence_beside_the_range_of_the_plain_model(two):
    row = tables.task_losses(two).set_index("task").loc["facts"]
    assert row[["r = 1", "r = 8", "least", "most"]].tolist() == [2.0, 2.4, 1.5, 2.5]


def test_a_gap_is_above_the_plain_model_and_a_share_of_its_range(two):
    gaps = tables.task_gaps(two).set_index(["task", "n_recur"])
    assert gaps.loc[("facts", 4), "gap"] == pytest.approx(0.2)
    assert gaps.loc[("story", 4), "share"] == pytest.approx(0.05)
    assert len(gaps) == 6


def test_only_a_loss_that_grows_with_every_recurrence_is_ordered(two):
    numbers = tables.order_numbers(two)
    assert (numbers["n_ordered"], numbers["n_knowledge"]) == (1, 1)
    assert (numbers["n_others"], numbers["others"]) == (0, "none")
    assert numbers["by_luck"] == 1 / 24  # one of the 4! orders
    assert (numbers["negative"], numbers["n_rest"]) == (2, 3)


def test_the_budgets_are_those_of_the_published_minima():
    low, high = tables.budget_range()
    assert (low, high) == (4.64e17, 2.15e19)


def test_each_axis_has_four_points_at_one_budget_and_two_of_the_large_pair(tasks):
    points = tables.axis_points(tasks)
    assert set(points.groupby("panel").size()) == {6}
    large = points[points["budget"] > tables.budget_range()[1]]
    claims = looped.published.claims().set_index("id")["value"]
    first = large[large["n_recur"] == 1]
    assert set(first["val_loss"]) == {float(claims["extrap_r1"])}


def test_the_mean_of_an_axis_is_the_mean_of_its_tasks(tasks):
    means = tables.axis_means(tasks).set_index("axis")
    expected = tasks.loc[tasks["axis"] == "math", "r4"].mean()
    assert means.loc["math", "r = 4"] == pytest.approx(expected)
    minima = looped.published.minima().query("case == 'baseline'")
    losses = minima[minima["budget"] == 2.15e19].sort_values("n_recur")["val_loss_star"]
    reading = means.loc["reading", ["r = 1", "r = 2", "r = 4", "r = 8"]].astype(float)
    assert means.loc["reading", "correlation"] == pytest.approx(np.corrcoef(reading, losses)[0, 1])


def test_the_correlation_over_all_axes_is_one_number_beside_the_reported_two(tasks):
    numbers = tables.correlations(tasks)
    means = tables.axis_means(tasks)[["r = 1", "r = 2", "r = 4", "r = 8"]].mean()
    minima = looped.published.minima().query("case == 'baseline' and budget == 2.15e19")
    losses = minima.sort_values("n_recur")["val_loss_star"]
    assert numbers["macro"] == pytest.approx(np.corrcoef(means, losses)[0, 1])
    assert {"fig13_loss", "fig13_accuracy"} < set(numbers)


def test_the_gap_of_the_large_pair_is_a_difference_of_printed_losses(tasks):
    table = tables.large_pair(tasks).set_index("quantity")
    claims = looped.published.claims().set_index("id")["value"]
    assert table.loc["validation loss", "gap"] == pytest.approx(float(claims["extrap_gap"]))
    numbers = tables.large_pair_numbers()
    axes = table.drop("validation loss")["gap"]
    assert (numbers["largest"], numbers["smallest"]) == (axes.idxmax(), axes.idxmin())
    pair = looped.get_grid("paper-extrapolation")
    assert numbers["times"] == pytest.approx(pair[0].flops / 2.15e19)


def test_a_guess_among_five_values_is_spread_over_the_tokens_of_the_answer(tasks):
    numbers = tables.assignment_guess(tasks)
    # 9 values of one digit and 16 of two, each with a token for the space
    n_tokens = 9 * 2 + 16 * 3
    assert numbers["by_token"] == pytest.approx(25 * np.log(5) / n_tokens)
    assert numbers["by_example"] == pytest.approx(np.log(5) * (9 / 2 + 16 / 3) / 25)
    assert numbers["by_digit"] == pytest.approx(25 * np.log(5) / (n_tokens - 25))
    assert 0 <= numbers["n_above"] <= numbers["n_losses"]


def test_losses_of_primitives_leave_out_accuracies(measured):
    losses = tables.primitive_losses(measured)
    assert losses["loss"].tolist() == [2.0, 1.0, 3.0]
    assert losses["panel"].tolist() == ["copy", "copy", "sort"]
    assert set(losses["source"]) == {"measured"}


def test_a_primitive_has_its_range_of_losses_and_its_best_accuracy(measured):
    table = tables.primitives(measured).set_index("task")
    assert table.loc["copy", ["runs", "lowest", "highest", "best accuracy"]].tolist() == (
        [2, 1.0, 2.0, 0.5]
    )
    assert np.isnan(table.loc["sort", "best accuracy"])


def test_numbers_of_primitives_count_losses_above_a_guess(measured):
    numbers = tables.primitive_numbers(measured)
    assert (numbers["n_above_chance"], numbers["n_measured"], numbers["n_models"]) == (2, 3, 2)
    assert (numbers["least_val"], numbers["most_val"]) == (4.0, 5.0)
    assert (numbers["best_accuracy"], numbers["examples"]) == (0.5, 100)
