"""Tables of grids: planned runs, states, injections in deviations, regret and transfer of rates."""

import numpy as np
import pandas as pd
import pytest

import looped
from looped import tables

RATES = [0.01, 0.02, 0.04]


@pytest.fixture
def sweep():
    """Three rates at r = 1 and r = 4: the best differ, 0.02 is never far off."""
    losses = {1: [4.00, 4.01, 4.10], 4: [4.30, 4.22, 4.20]}
    rows = [
        (r, rate, loss)
        for r, column in losses.items()
        for rate, loss in zip(RATES, column, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["n_recur", "lr", "val_loss"])
    return table.assign(d_model=64, n_tokens=500_000)


@pytest.fixture
def compared():
    """A table of `injections`: the additive one is far below linear, passthrough far above."""
    return pd.DataFrame(
        {
            "variant": ["linear", "additive", "hyperconnect", "passthrough"],
            "loss": [4.0, 3.9, 3.999, 5.0],
            "in deviations": [0.0, -10.0, -0.1, 100.0],
        }
    )


def test_records_of_a_folder_without_records_are_none():
    assert tables.records_of("no-such-folder") == []
    assert len(tables.records_of("laptop")) == len(looped.load_records("laptop")) > 0


def test_planned_runs_are_the_rows_of_their_specs():
    specs = looped.get_grid("smoke")
    planned = tables.planned_runs(specs)
    assert planned["d_model"].tolist() == [spec.model.d_model for spec in specs]
    assert planned["n_tokens"].tolist() == [spec.train.n_tokens for spec in specs]


def test_states_are_counted_by_budget():
    status = pd.DataFrame(
        {
            "run_id": list("abc"),
            "budget": [1e12, 1e12, 1e13],
            "state": ["done", "done", "failed"],
            "val_loss": [4.0, 5.0, np.nan],
            "tokens_per_second": [100.0, 300.0, np.nan],
        }
    )
    done, failed = tables.run_states(status).itertuples(index=False)
    assert (done.runs, done.best, done.worst, done.tokens_per_second) == (2, 4.0, 5.0, 200.0)
    assert (failed.runs, failed.state) == (1, "failed")


def test_published_injections_are_those_of_the_claims():
    table = tables.published_injections().set_index("variant")
    assert set(table.index) == {"linear", "additive", "passthrough", "hyperconnect"}
    claims = looped.published.claims().set_index("id")["value"]
    assert table.loc["linear", "loss"] == float(claims["inj_linear"])
    assert table.loc["linear", "over"] == 0
    assert table["loss"].idxmax() == "passthrough"


def test_an_injection_without_a_record_is_missing():
    records = tables.records_of("laptop-injection")
    linear = [r for r in records if r.run_spec.model.variant == "linear"]
    table = tables.injections(linear, sd=0.01).set_index("variant")
    assert len(table) == 4
    assert table["loss"].notna().sum() == 1
    assert tables.injections([], sd=0.01)["loss"].isna().all()


def test_an_injection_is_measured_in_deviations_from_linear():
    table = tables.injections(tables.records_of("laptop-injection"), sd=0.01)
    table = table.set_index("variant")
    over = table.loc["additive", "loss"] - table.loc["linear", "loss"]
    assert table.loc["additive", "in deviations"] == pytest.approx(over / 0.01)


def test_the_verdict_names_the_order_and_what_is_resolved(compared):
    words = tables.injection_verdict(compared)
    assert "additive, hyperconnect, linear, passthrough" in words
    assert words.endswith("linear injection: additive, passthrough.")
    without = compared[compared["variant"] != "linear"]
    assert "not known yet" in tables.injection_verdict(without)


def test_the_verdict_on_passthrough_has_its_distance_and_a_uniform_guess(compared):
    words = tables.passthrough_verdict(compared, n_vocab=1000)
    assert "1.00 nats above" in words
    assert "guess has 6.9" in words
    compared["loss"] = np.nan
    assert "not been trained" in tables.passthrough_verdict(compared, n_vocab=1000)


def test_runs_of_a_sweep_have_the_rate_of_their_spec():
    records = looped.load_records("laptop-lr-sweep")
    runs = tables.rate_runs(records)
    assert len(runs) == len(records) == 24
    assert runs["lr"].tolist() == [record.run_spec.train.lr for record in records]
    assert list(tables.rate_runs([])) == list(runs)


def test_regret_is_above_the_best_rate_of_the_same_recurrence(sweep):
    regret = tables.rate_regret(sweep).set_index("lr")
    np.testing.assert_allclose(regret["r = 1"], [0, 0.01, 0.10])
    np.testing.assert_allclose(regret["r = 4"], [0.10, 0.02, 0], atol=1e-12)


def test_the_shared_rate_has_the_smallest_worst_regret(sweep):
    assert tables.shared_rate(sweep) == pytest.approx((0.02, 0.02))
    assert tables.best_rates(sweep) == "0.01 at r = 1, 0.04 at r = 4"


def test_panels_show_the_reference_beside_other_widths_and_horizons(sweep):
    away = sweep.assign(d_model=128)
    panels = tables.rate_panels(pd.concat([sweep, sweep.assign(n_recur=2)]), away)
    assert set(panels["n_recur"]) == {1, 4}  # laptop-lr-transfer has no r = 2
    assert panels.groupby("panel")["is_away"].agg(["size", "all"]).to_dict("index") == {
        "d_model = 64, 0.5M tokens": {"size": 6, "all": False},
        "d_model = 128, 0.5M tokens": {"size": 6, "all": True},
    }
    assert not tables.rate_panels(sweep, away.iloc[:0])["is_away"].any()


def test_the_transfer_of_a_rate_is_its_regret_in_each_panel(sweep):
    panels = tables.rate_panels(sweep, sweep.iloc[:0])
    table = tables.rate_transfer(panels, rate=0.02, sd=0.005).set_index("n_recur")
    assert table["best rate"].to_dict() == {1: 0.01, 4: 0.04}
    np.testing.assert_allclose(table.loc[[1, 4], "in deviations"], [2, 4])


def test_the_verdict_on_the_transfer_counts_sweeps_away_from_the_reference(sweep):
    away = sweep.assign(d_model=128)
    away.loc[away["lr"] == 0.02, "val_loss"] = 4.0  # now 0.02 is best or tied at both r
    words = tables.transfer_verdict(tables.rate_panels(sweep, away), 0.02)
    assert "0.02 is the best of the three rates in 2 of 2 sweeps" in words
    assert tables.transfer_verdict(tables.rate_panels(sweep, away.iloc[:0]), 0.02).startswith(
        "The sweeps at another width"
    )


def test_the_published_passthrough_is_no_better_than_a_uniform_guess():
    numbers = tables.failed_injection()
    assert numbers["uniform"] == pytest.approx(np.log(32_000), abs=0.01)
    claims = looped.published.claims().set_index("id")["value"]
    assert numbers["failed"] == float(claims["inj_passthrough"])


def test_the_noise_of_a_difference_is_larger_by_the_root_of_two():
    noise = pd.DataFrame({"seeds": [2, 4], "sd": [0.01, 0.01]})
    numbers = tables.noise_numbers(noise)
    assert numbers["sd_two"] == pytest.approx(0.01 * 2**0.5)
    assert (numbers["n_cells"], numbers["df"]) == (2, 4)
