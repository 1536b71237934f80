"""The published downstream tables agree with each other and with the other published numbers."""

import pytest

import looped
from looped.evaluate.primitives import N_EXAMPLES, PRIMITIVES
from looped.registry import published
from looped.registry.laptop import laptop_primitives


def test_every_task_has_its_losses():
    table = published.downstream()
    assert len(table) == table["task"].nunique() == 20
    assert table["axis"].value_counts().to_dict() == {
        "knowledge": 3,
        "reading": 5,
        "math": 3,
        "primitives": 5,
        "symbolic": 4,
    }
    assert table.notna().all(axis=None)
    assert table["r1"].between(table["r1_low"], table["r1_high"]).all()


def test_the_large_pair_is_that_of_the_claims():
    claims = published.claims().set_index("id")["value"]
    claims = claims[["extrap_r1", "extrap_r4", "extrap_gap"]].astype(float)
    pair = published.extrapolation().set_index("quantity")
    assert pair.loc["validation loss"].tolist() == [claims["extrap_r1"], claims["extrap_r4"]]
    assert pair.loc["validation loss", "r4"] - pair.loc["validation loss", "r1"] == pytest.approx(
        claims["extrap_gap"]
    )
    assert set(pair.index) - {"validation loss"} == set(published.downstream()["axis"])


def test_the_primitives_are_drawn_as_often_and_with_as_many_shots_as_published():
    printed = published.downstream().query("axis == 'primitives'")
    assert set(printed["samples"]) == {N_EXAMPLES}
    assert printed["shots"].tolist() == [p.n_shots for p in PRIMITIVES.values()]


def test_measured_primitives_are_complete():
    table = laptop_primitives()
    per_run = table.groupby("run_id")[["task", "metric"]].value_counts().unstack("run_id")
    assert (per_run == 1).all(axis=None)
    assert set(table["task"]) == set(PRIMITIVES)
    assert (table["n_truncated"] <= 0.001 * table["n_examples"]).all()
    recorded = {r.run_id: r.result.val_loss for r in looped.load_records("laptop")}
    known = table[table["run_id"].isin(recorded)]
    assert len(known) > 0
    assert (known["val_loss"] == known["run_id"].map(recorded)).all()  # trained again, same bits
    accuracy = table[table["metric"] == "accuracy"]
    assert accuracy["value"].between(0, 1).all()
