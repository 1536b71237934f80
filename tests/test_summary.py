"""Fits as tables, and the noise between seeds of one spec."""

import numpy as np
import pandas as pd
import pytest

import looped


def seeds(spread, rng, n_specs=400, n_seeds=3):
    """Runs of many specs with known noise: one run of each, and its further seeds."""
    spec = np.repeat(np.arange(n_specs), n_seeds)
    loss = 4 + 0.001 * spec + rng.normal(0, spread, len(spec))
    table = pd.DataFrame({"budget": 1e12, "n_recur": 4, "d_model": spec, "val_loss": loss})
    first = ~table["d_model"].duplicated()
    return table[first], table[~first]


def test_known_noise_is_found_again():
    noise = looped.seed_noise(*seeds(0.02, np.random.default_rng(0)))
    assert (noise["seeds"] == 3).all()
    assert looped.pooled_sd(noise) == pytest.approx(0.02, rel=0.05)


def test_specs_of_one_seed_tell_nothing():
    runs, repeated = seeds(0.02, np.random.default_rng(1), n_specs=5)
    noise = looped.seed_noise(runs, repeated[repeated["d_model"] < 2])
    assert noise["d_model"].tolist() == [0, 1]
    losses = pd.concat([runs, repeated]).query("d_model == 1")["val_loss"]
    assert noise["mean"][1] == pytest.approx(losses.mean())
    assert noise["sd"][1] == pytest.approx(losses.std(ddof=1))


def test_more_seeds_weigh_more():
    noise = pd.DataFrame({"seeds": [2, 4], "sd": [1.0, 2.0]})
    assert looped.pooled_sd(noise) == pytest.approx(((1 * 1 + 3 * 4) / 4) ** 0.5)


def test_a_table_of_fits_has_values_intervals_and_quality(fit_paper, runs):
    bare = fit_paper()
    fit = bare.with_interval(looped.bootstrap(runs, bare, resamples=20, starts=4))
    held = fit_paper(phi=0.0)
    table = looped.fit_table({"free": fit, "held": held}).set_index("fit")
    assert table.loc["free", "phi"] == fit.params["phi"]
    assert tuple(table.loc["free", ["phi_low", "phi_high"]]) == fit.interval.interval("phi")
    assert tuple(table.loc["free", ["A_low", "A_high"]]) == fit.interval.interval("A")
    assert table.loc["held", ["phi_low", "A_low"]].isna().all()
    for name in ("rmse", "r2", "n_runs", "objective"):
        assert table.loc["held", name] == getattr(held, name)
    assert not [name for name in looped.fit_table({"a": bare}) if name.endswith("_low")]


def test_residuals_by_recurrence_are_those_of_the_runs(fit_paper, runs):
    fit = fit_paper()
    table = looped.residual_summary(runs, fit).set_index("n_recur")
    residual = runs["val_loss"] - fit.predict(runs)
    for r in (1, 2, 4, 8):
        own = residual[runs["n_recur"] == r]
        assert table.loc[r, "n_runs"] == len(own)
        assert table.loc[r, "mean"] == pytest.approx(own.mean())
        assert table.loc[r, "max_abs"] == pytest.approx(own.abs().max())
        assert table.loc[r, "rmse"] == pytest.approx(np.sqrt((own**2).mean()))
