"""Tables of the claims: verdicts counted, differences listed, printed and predicted numbers."""

import pandas as pd
import pytest

import looped
from looped import tables

CLAIMS = pd.DataFrame(
    {
        "id": ["a", "b", "c"],
        "quantity": ["φ", "α", "β"],
        "verdict": ["reproduced", "differs", "reproduced"],
        "published": ["0.46", "0.2", "0.3"],
        "ours": ["0.460", "0.25", "0.300"],
        "why": ["", "another fit", ""],
        "value": ["0.46", "0.2", "0.3"],
    }
)


def test_a_verdict_without_claims_counts_zero():
    table = tables.verdict_counts(CLAIMS, ["differs", "reproduced", "reported only"])
    assert table["claims"].tolist() == [1, 2, 0]


def test_only_claims_that_differ_are_listed_with_both_numbers():
    (row,) = tables.differing(CLAIMS).to_dict("records")
    assert row == {"quantity": "α", "published | ours": "0.2 | 0.25", "why": "another fit"}


def test_printed_numbers_are_floats_and_an_unknown_id_is_refused():
    assert tables.printed_numbers(CLAIMS, ["a", "c"]) == {"a": 0.46, "c": 0.3}
    with pytest.raises(KeyError, match="no_such"):
        tables.printed_numbers(CLAIMS, ["no_such"])


def test_the_large_pair_is_predicted_at_its_width_and_tokens(fit_paper):
    fit = fit_paper()
    numbers = tables.predicted_pair(fit)
    spec = looped.get_grid("paper-extrapolation")[1]
    sizes = looped.runs_at_width(spec.model, spec.model.d_model, n_tokens=spec.train.n_tokens)
    split = looped.split_params(sizes, "fitted").iloc[0]
    E, A, B, alpha, beta, phi = (
        fit.params[name] for name in ("E", "A", "B", "alpha", "beta", "phi")
    )
    n_eff = split["n_params_once"] + 4**phi * split["n_params_rec"]
    assert spec.model.n_recur == 4
    assert numbers["large_r4"] == pytest.approx(
        E + A * n_eff**-alpha + B * spec.train.n_tokens**-beta
    )
    assert numbers["large_gap"] == pytest.approx(numbers["large_r4"] - numbers["large_r1"])
