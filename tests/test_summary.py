"""Seeds of one spec: how far they lie apart, and the one number that stands for all."""

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
