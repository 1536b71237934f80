"""`looped delta-phi` and `looped plan` as programs and readers use them."""

import io
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

import looped
from looped.cli import app

QUICK = ["--starts", 60, "--bootstrap", 60]
PLAN = ["plan", "--n-recur", 2, "--n-recur", 8, "--simulations", 60, "--budget-max", 4.64e18]
PLAN += ["--budget", 4.64e17, "--budget", 1e18]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(
    ("case", "split", "shift"),
    [("hyperconnections", "fitted", 0.193), ("truncated_bptt", "fitted", -0.073)],
)
def test_the_shift_as_json(case, split, shift):
    arguments = ["--runs", "paper", "--baseline", "baseline", "--variant", case, "--split", split]
    found = json.loads(run("delta-phi", *arguments, *QUICK, "--json").stdout)
    assert found["delta_phi"] == pytest.approx(shift, abs=1e-3)
    assert found["phi_variant"] - found["phi_baseline"] == pytest.approx(found["delta_phi"])
    assert found["interval"][0] < found["delta_phi"] < found["interval"][1]
    assert found["level"] == 0.95
    assert 0 <= found["p_sign"] <= 1
    parts = found["decomposition"]
    total = sum(parts[name] for name in ("tokens", "capacity", "rest", "misfit"))
    assert total == pytest.approx(parts["measured"], abs=1e-6)
    for cell in parts["cells"]:
        total = sum(cell[name] for name in ("tokens", "capacity", "rest", "misfit"))
        assert total == pytest.approx(cell["measured"], abs=1e-6)
    assert found["width_shift"]["d_model"] > 1
    assert found["kind"] in found["verdict"]
    assert found["warnings"]


def test_the_shift_for_a_reader():
    result = run("delta-phi", "--variant", "truncated_bptt", "--level", 0.9, *QUICK)
    assert "training-side: φ falls from 0.429 to 0.362" in result.stdout
    assert "(90%;" in result.stdout
    assert "digitised runs, split stated" in result.stdout
    assert "nats per token" in result.stdout
    assert "warning: variant: r = 2 carries the misfit" in " ".join(result.stderr.split())


def test_the_shift_at_chosen_recurrences_and_budgets():
    chosen = ["--n-recur", 4, "--n-recur", 8, "--budget", 1e18, "--budget", 2.15e18]
    chosen += ["--budget", 4.64e18]
    result = run("delta-phi", "--variant", "hyperconnections", *chosen, *QUICK, "--json")
    found = json.loads(result.stdout)
    assert found["n_recur"] == [4, 8]
    assert found["budgets"] == [1e18, 2.15e18, 4.64e18]


def test_the_shift_of_a_file_of_ones_own(tmp_path):
    path = tmp_path / "own.csv"
    runs = looped.load_runs("paper", case=None, budget_max=4.64e18)
    names = {"hyperconnections": "mine", "baseline": "plain loop"}
    runs = runs[runs["case"].isin(names)].assign(source="simulated")
    runs.assign(case=runs["case"].map(names)).to_csv(path, index=False)
    arguments = ["--runs", path, "--baseline", "plain loop", "--variant", "mine", *QUICK]
    found = json.loads(run("delta-phi", *arguments, "--json").stdout)
    assert found["cases"] == ["plain loop", "mine"]
    assert found["delta_phi"] == pytest.approx(0.221, abs=1e-3)


def test_an_unknown_case_is_one_line():
    result = run("delta-phi", "--variant", "hyper", code=2)
    assert "case: got 'hyper', expected one of" in " ".join(result.stderr.split())


def test_a_case_against_itself_is_refused():
    result = run("delta-phi", "--variant", "baseline", code=2)
    assert "are both 'baseline'; name two cases" in " ".join(result.stderr.split())


def test_a_plan_for_a_reader():
    text = " ".join(run(*PLAN, "--target-se", 0.1).stdout.split())
    assert "n_budgets" in text
    assert "A variant at the baseline's settings: 40 runs" in text
    assert "digitised runs" in text
    assert "The cheapest with a standard error of at most 0.1" in text


def test_a_plan_for_programs():
    found = json.loads(run(*PLAN, "--target-se", 0.1, "--json").stdout)
    assert len(found["designs"]) == 4
    assert found["noise"]["variant"] == found["noise"]["baseline"]
    assert {row["role"] for row in found["runs"]} == {"anchor", "baseline", "variant"}
    table = pd.read_csv(io.StringIO(run(*PLAN, "--target-se", 0.1, "--csv").stdout))
    assert table["d_model"].tolist() == [row["d_model"] for row in found["runs"]]


def test_a_target_out_of_reach_says_so():
    result = run(*PLAN, "--target-se", 1e-4)
    assert "no design reaches a standard error of 0.0001" in " ".join(result.stderr.split())
    run(*PLAN, "--target-se", 1e-4, "--csv", code=2)
