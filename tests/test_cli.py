"""The command line: what programs read from it, what readers see, and how it fails."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import looped
from looped.cli import app
from looped.registry.schema import COLUMNS

FEW = ["--starts", "40"]


def run(*arguments, code=0):
    """The result of `looped ARGUMENTS`, which must leave with `code`."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def as_json(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


def as_table(*arguments):
    return pd.read_csv(io.StringIO(run(*arguments, "--csv").stdout))


@pytest.fixture
def own_file(runs, tmp_path):
    """The baseline as a file of one's own, with other names and the needed columns only."""
    path = tmp_path / "own.csv"
    names = {"n_params_once": "once", "n_params_rec": "loop", "val_loss": "loss"}
    kept = runs[[*names, "n_recur", "n_tokens"]].rename(columns=names)
    kept.to_csv(path, index=False)
    mapping = [f"--map={ours}={theirs}" for ours, theirs in names.items()]
    return ["--runs", path, *mapping]


def test_runs_are_the_same_in_json_csv_and_python(runs):
    rows = as_json("runs")
    assert list(rows[0]) == COLUMNS
    assert [row["val_loss"] for row in rows] == runs["val_loss"].tolist()
    assert rows[0]["bptt"] is None
    table = as_table("runs")
    np.testing.assert_array_equal(table["val_loss"], runs["val_loss"])
    np.testing.assert_array_equal(table["n_tokens"], runs["n_tokens"])


def test_runs_are_selected():
    selection = ["--n-recur", 4, "--n-recur", 8, "--budget-min", 1e18, "--budget-max", 2.15e18]
    rows = as_json("runs", "--case", "truncated_bptt", *selection)
    assert {(row["case"] == "baseline", row["n_recur"]) for row in rows} == {
        (True, 1),  # the anchor
        (False, 4),
        (False, 8),
    }
    assert {row["budget"] for row in rows} == {1e18, 2.15e18}
    assert len(as_table("runs", "--case", "all")) == 240


def test_runs_for_a_reader_name_source_and_units():
    text = run("runs", "--n-recur", 8).stdout
    assert "29 runs of paper" in text
    assert "nats per token" in text
    assert "10,917,504" in text


def test_counts_of_the_ablation_stack():
    values = as_json("count", "--width", 10, "--n-recur", 4, "--budget", 1e18)
    config = looped.paper_config(640, 4)
    assert values["config"] == config.to_dict()
    assert values["n_params"] == looped.accounting.n_params(config)
    assert values["n_params"] == values["n_params_once"] + values["n_params_rec"]
    assert values["flops_per_token"] == looped.accounting.flops_per_token(config)
    assert values["overhead_blocks"] == pytest.approx(4 / 120, rel=2e-3)
    assert 0 < values["overhead_training"] < values["overhead_blocks"]
    assert values["n_tokens"] == looped.accounting.tokens_at_budget(config, 1e18, 262_144)
    table = as_table("count", "--d-model", 640, "--n-recur", 4).set_index("quantity")["value"]
    assert table["n_params"] == values["n_params"]
    assert "n_tokens" not in table


def test_counts_follow_variant_and_truncation():
    linear, lanes, truncated, plain = (
        as_json("count", "--width", 10, *options)
        for options in (
            ["--n-recur", 4],
            ["--n-recur", 4, "--variant", "hyperconnect"],
            ["--n-recur", 4, "--bptt", 2],
            [],
        )
    )
    assert linear["n_params_injection"] == 2 * 640**2
    assert lanes["n_params_injection"] == 0 < lanes["n_params_lanes"]
    assert truncated["overhead_training"] < 0
    assert plain["overhead_training"] == plain["overhead_blocks"] == 0


def test_fit_has_the_documented_fields_and_the_published_phi(fit_paper):
    arguments = ["--split", "fitted", *FEW, "--bootstrap", 5]
    values = as_json("fit", "--runs", "paper", *arguments)
    fields = {"law", "split", "n_runs", "params", "objective", "r2", "rmse", "max_abs_residual"}
    fields |= {"starts", "starts_at_optimum", "status", "warnings", "interval"}
    assert fields <= set(values)
    assert values["params"] == pytest.approx(fit_paper().params, rel=1e-5)
    assert (values["law"], values["split"], values["n_runs"]) == ("joint", "fitted", 116)
    assert (values["starts"], values["status"]) == (40, "ok")
    interval = values["interval"]
    assert interval["phi"][0] < interval["phi"][1]
    assert (interval["level"], interval["method"], interval["resamples"]) == (0.95, "block", 5)
    assert interval["touched_0"] == interval["touched_1"] == 0
    assert looped.FitResult.from_dict(values).to_dict() == values


def test_fit_without_bootstrap_has_no_interval():
    assert as_json("fit", *FEW)["interval"] is None


def test_fit_passes_its_options_on(runs):
    options = ["--law", "chinchilla", "--n-recur", 4, "--budget-max", 1e19, "--fix", "E=1.6"]
    options += ["--delta", 1e-2, "--seed", 3, "--starts", 4, "--solver", "lbfgsb"]
    options += ["--bootstrap", 2, "--bootstrap-method", "iid", "--level", 0.8]
    values = as_json("fit", *options)
    kept = looped.load_runs("paper", n_recur=4, budget_max=1e19)
    expected = looped.fit(
        kept, "chinchilla", fix={"E": 1.6}, delta=1e-2, seed=3, starts=4, solver="lbfgsb"
    )
    drawn = looped.bootstrap(kept, expected, resamples=2, method="iid", level=0.8, seed=3)
    assert values == json.loads(expected.with_interval(drawn).to_json())


def test_fit_of_a_file_of_ones_own(own_file, fit_paper):
    values = as_json("fit", *own_file, *FEW)
    assert values["params"] == pytest.approx(fit_paper(split="stated").params, rel=1e-5)
    assert values["sources"] == ["measured"]


def test_fit_for_a_reader_names_what_it_rests_on():
    text = run("fit", "--split", "fitted", *FEW, "--bootstrap", 5, "--fix", "beta=0.37").stdout
    for part in ("split fitted", "cases baseline", "sources digitised", "of 40 starts", "held"):
        assert part in text
    assert "95% percentile interval, block bootstrap of 24 (budget, r) cells" in text
    assert "φ touched 0 in 0 and 1 in 0" in text


def test_warnings_go_to_stderr_and_json_stays_alone():
    result = run("fit", "--n-recur", 4, *FEW, "--json")
    assert json.loads(result.stdout)["status"] == "not_identified"
    assert "warning: " in result.stderr
    assert "phi" in result.stderr


def test_minima_keep_refused_cells():
    rows = as_json("isoflop", "--case", "truncated_bptt")
    refused = [row for row in rows if row["refusal"]]
    assert len(rows) == 16
    assert [row["n_params_star"] for row in refused] == [None] * len(refused) != []
    frame = looped.isoflop_minima(looped.load_runs("paper"))
    np.testing.assert_array_equal(as_table("isoflop")["val_loss_star"], frame["val_loss_star"])
    assert "outside" in run("isoflop", "--case", "truncated_bptt").stdout


def test_optimal_sizes_are_those_of_the_case(fit_paper):
    asked = ["--budget", 1e19, "--budget", 1e20, "--n-recur", 4, "--split", "fitted", *FEW]
    rows = as_json("optimal", *asked)
    config = looped.paper_config(640, 4)
    expected = fit_paper().law.optimal([1e19, 1e20], config)
    pd.testing.assert_frame_equal(pd.DataFrame(rows), expected, rtol=1e-4)
    truncated = as_json("optimal", *asked, "--case", "truncated_bptt")
    fit = fit_paper(case="truncated_bptt")
    config = looped.paper_config(640, 4, bptt=2)
    expected = fit.law.optimal([1e19, 1e20], config)["n_tokens_star"].tolist()
    assert [row["n_tokens_star"] for row in truncated] == pytest.approx(expected, rel=1e-4)
    unseen = ["--budget", 1e19, "--n-recur", 16, *FEW]
    assert as_json("optimal", *unseen)[0]["n_recur"] == 16


def test_claims_are_those_of_the_package(monkeypatch):
    monkeypatch.setattr("looped.claims.tables.claims_table", lambda: CLAIMS)
    assert as_json("claims") == [{"quantity": "phi", "published": "0.459", "ours": None}]
    assert as_table("claims")["published"].tolist() == [0.459]


CLAIMS = pd.DataFrame({"quantity": ["phi"], "published": ["0.459"], "ours": [np.nan]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs", "--runs", "nowhere.csv"], "runs: got 'nowhere.csv', expected one of"),
        (["runs", "--case", "loops"], "case: got 'loops', expected one of"),
        (["runs", "--json", "--csv"], "--json and --csv exclude each other"),
        (["runs", "--map", "val_loss"], "--map: got 'val_loss', expected LEFT=RIGHT"),
        (["runs", "--map", "val_loss=loss"], "columns name those of a CSV file"),
        (["count"], "give one of --width and --d-model"),
        (["count", "--width", "10", "--d-model", "640"], "give one of --width and --d-model"),
        (["count", "--width", "10", "--n-recur", "3"], "n_recur: got 3, expected a divisor"),
        (["count", "--width", "10", "--budget", "-1"], "budget: got -1.0, expected a positive"),
        (["fit", "--law", "kaplan"], "law: got 'kaplan', expected one of"),
        (["fit", "--split", "even"], "split: got 'even', expected one of"),
        (["fit", "--solver", "adam"], "solver: got 'adam', expected one of"),
        (["fit", "--fix", "phi"], "--fix: got 'phi', expected LEFT=RIGHT"),
        (["fit", "--fix", "phi=one"], "--fix: got ['phi=one'], expected NAME=NUMBER"),
        (["fit", "--starts", "0"], "starts: got 0, expected at least 1"),
        (["fit", "--bootstrap", "1", *FEW], "got resamples=1"),
        (["fit", "--budget-max", "1e15"], "no run of source 'paper'"),
        (["optimal", "--budget", "-1", "--n-recur", "4", *FEW], "budgets: got [-1.0]"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, message):
    result = run(*arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_a_bad_row_is_reported_with_its_place(own_file, tmp_path):
    path = tmp_path / "own.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3].replace("2.", "-2.", 1)]))
    result = run("fit", *own_file, code=2)
    assert f"error: {path}, row 4, column 'val_loss': " in result.stderr


def test_no_estimate_is_code_1():
    result = run("optimal", "--budget", 1e3, "--n-recur", 4, *FEW, code=1)
    assert result.stderr.startswith("error: the joint law has no compute-optimal width")
    assert result.stdout == ""


def test_the_book_is_one_of_the_commands():
    assert "build" in run("book", "--help").stdout
    assert "--profile" in run("book", "build", "--help").stdout


def test_the_book_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tools.book.chapters", None)
    monkeypatch.delattr("tools.book.chapters", raising=False)
    result = run("book", "build", code=1)
    assert "pip install 'looped[book]'" in result.output


@pytest.mark.parametrize("module", ["looped", "looped.cli", "benchmarks"])
def test_importing_loads_neither_torch_nor_charts_nor_notebooks(module):
    heavy = ["torch", "altair", "papermill", "jupytext", "looped.figures", "looped.claims"]
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_imports_no_module_of_a_command():
    heavy = ["numpy", "pandas", "scipy", "pydantic", "altair", "looped.fitting", "looped.cli.train"]
    code = "import sys\nfrom looped.cli import app\napp(['--help'], standalone_mode=False)\n"
    code += f"print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "delta-phi" in done.stdout


def test_commands_of_the_repository_need_a_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr("looped.cli.group.PACKAGE", tmp_path / "looped")
    result = run("bench", "fit", code=2)
    assert result.stderr == (
        "error: looped bench needs a checkout of the repository, not only the package\n"
    )


def flags(command, path=()):
    """(names of a command, its long options) of all commands below `command`."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from flags(command.get_command(None, name), (*path, name))
    else:
        names = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        yield " ".join(path), sorted(name for name in names if name.startswith("--"))


def test_commands_and_their_options_are_those_of_the_list():
    expected = json.loads(Path(__file__).with_name("cli_flags.json").read_text())
    assert dict(flags(get_command(app))) == expected
