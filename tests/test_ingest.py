"""Ingest: result files in four formats, either refused with a remedy or written as a source."""

import hashlib
import json
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import looped
from looped import ConfigError, RecordError, accounting
from looped.accounting import STACK
from looped.cli import app as looped_app
from looped.cli import group
from looped.cli.ingest import ingest_command
from looped.registry.ingest import ingest
from looped.registry.ingest.columns import ALIASES, KNOWN, map_columns, plain
from looped.registry.schema import COLUMNS

PAPER = {"n_layers": 20}
"""The field of the paper's stacks that the table lacks; the other sizes are the defaults."""

RENAMED = {"val_loss": "eval/loss", "n_tokens": "D", "n_recur": "r", "d_model": "hidden_size"}
RENAMED |= {"budget": "C", "case": "study", "variant": "injection"}
COUNTED = ["n_params", "n_params_once", "n_params_rec", "flops_per_token"]

GOOD = {
    "n_recur": [1, 2, 4],
    "n_params_once": [1e6, 1e6, 1e6],
    "n_params_rec": [4e6, 2e6, 1e6],
    "n_tokens": [1e9, 2e9, 3e9],
    "val_loss": [3.0, 2.9, 2.8],
}

app = typer.Typer(cls=group.OneLineErrors)
app.command("ingest")(ingest_command)
app.callback()(lambda: None)


@pytest.fixture
def sources(tmp_path) -> Path:
    """Folder of the sources that a test writes."""
    return tmp_path / "runs"


@pytest.fixture
def write(tmp_path):
    """Function that writes a CSV file of good runs with columns changed or left out (None)."""

    def written(**columns):
        present = {name: values for name, values in (GOOD | columns).items() if values is not None}
        path = tmp_path / "results.csv"
        pd.DataFrame(present).to_csv(path, index=False)
        return path

    return written


def read(path, **options):
    """The runs of a file, without writing them."""
    return ingest(path, name="other", dry_run=True, out=path.parent, **options)


def refused(path, message, **options) -> RecordError:
    with pytest.raises(RecordError, match=message) as caught:
        read(path, **options)
    return caught.value


def said(notes, text) -> str:
    (note,) = [note for note in notes if text in note]
    return note


def exported(path, *arguments) -> pd.DataFrame:
    """The paper's runs as `looped runs --csv` prints them, read back without their depths."""
    printed = CliRunner().invoke(looped_app, ["runs", "--csv", *arguments])
    path.write_text(printed.stdout)
    return pd.read_csv(path).drop(columns=[*STACK, "run_id"])


# The paper's runs return unchanged


@pytest.mark.parametrize("dropped", [COUNTED, [*COUNTED, "budget"], [*COUNTED, "variant"]])
def test_the_papers_runs_return_unchanged_from_other_names_and_fewer_columns(
    tmp_path, sources, runs, dropped
):
    path = tmp_path / "export.csv"
    exported(path).drop(columns=dropped).rename(columns=RENAMED).to_csv(path, index=False)
    model = PAPER | ({"variant": "linear"} if "variant" in dropped else {})
    done = ingest(path, name="mine", model=model, out=sources)
    for table in (done.table, looped.load_runs(sources / "mine")):
        pd.testing.assert_frame_equal(table, runs, check_exact=True)


def test_every_case_of_the_paper_returns_with_its_counts(tmp_path, all_runs):
    path = tmp_path / "export.csv"
    exported(path, "--case", "all").drop(columns=COUNTED).to_csv(path, index=False)
    pd.testing.assert_frame_equal(read(path, model=PAPER).table, all_runs, check_exact=True)


def test_tokens_follow_from_the_budget(tmp_path, runs):
    path = tmp_path / "export.csv"
    exported(path).drop(columns=["n_tokens", *COUNTED]).to_csv(path, index=False)
    done = read(path, model=PAPER)
    exact = runs["budget"] / runs["flops_per_token"]
    np.testing.assert_allclose(done.table["n_tokens"], exact, rtol=1e-15)
    assert "in 116 of 116 rows" in said(done.notes, "n_tokens = budget / flops_per_token")


def test_the_notes_list_every_step(tmp_path):
    path = tmp_path / "export.csv"
    frame = exported(path).drop(columns=[*COUNTED, "budget"]).rename(columns=RENAMED)
    frame.assign(note="x").to_csv(path, index=False)
    notes = read(path, model=PAPER, mapping={"d_model": "hidden_size"}).notes
    assert said(notes, "'hidden_size'").startswith("mapped: d_model is")
    assert "in nats per token" in said(notes, "guessed: val_loss is 'eval/loss'")
    assert said(notes, "seed, source") == said(notes, "by the same names")
    assert said(notes, "left out: columns").endswith("'note'")
    assert "vocab_size = 32,064, seq_len = 2,048" in said(notes, "assumed: ")
    assert "4.64e+17, 1e+18" in said(notes, "computed: 6 nominal budgets")
    assert "116 runs" in said(notes, "result: ")
    for name in COUNTED:
        said(notes, f"computed: {name} from the model")


def test_counted_runs_need_no_model(write):
    table = read(write()).table
    assert list(table.columns) == COLUMNS
    assert table["n_params"].tolist() == [5e6, 3e6, 2e6]
    assert table[["budget", "flops_per_token", "d_model"]].isna().all(axis=None)


def test_columns_may_hold_the_whole_architecture(tmp_path):
    config = looped.laptop_run(d_model=64, n_recur=4).model
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(config.to_dict() | {"tokens": 2**19, "loss": 4.0}))
    (row,) = read(path).table.to_dict("records")
    assert row["n_params_rec"] == accounting.n_params_rec(config)
    assert row["flops_per_token"] == accounting.flops_per_token(config)
    assert row["budget"] == 2**19 * row["flops_per_token"]


def test_a_variant_that_the_accounting_does_not_know_has_the_counts_of_the_file(write):
    gated = write(variant=["none", "gated", "gated"])
    assert read(gated).table["variant"].tolist() == ["none", "gated", "gated"]
    described = {"d_model": [64] * 3, "n_layers": [20] * 3, "n_params_once": [197_312] * 3}
    described |= {"n_params_rec": [788_672, 2e6, 1e6]}
    path = write(variant=["none", "gated", "gated"], **described)
    done = read(path)
    assert done.table["n_params_rec"].tolist() == [788_480, 2e6, 1e6]
    assert done.table["n_loop"].tolist() == [16, pd.NA, pd.NA]
    assert "variant gated" in said(done.notes, "not counted: ")
    assert len(looped.load_runs(path, n_recur=[2, 4])) == 2


def test_a_variant_that_would_have_to_be_counted_is_refused(write):
    columns = dict.fromkeys(["n_params_once", "n_params_rec"])
    path = write(variant=["none", "gated", "gated"], d_model=[64] * 3, n_layers=[20] * 3, **columns)
    assert refused(path, "no such model: variant: got 'gated'").row == 3


# The four formats


def wandb_rows(runs) -> list[dict]:
    """Runs as the API of Weights & Biases returns them, and one that crashed."""
    rows = [
        {
            "name": f"run-{i}",
            "state": "finished",
            "config": {
                "model": {"d_model": int(run.d_model), "n_recur": int(run.n_recur)},
                "injection": {"desc": None, "value": run.variant},
            },
            "summary": {"val/loss": run.val_loss, "tokens": run.n_tokens, "_step": 100},
        }
        for i, run in enumerate(runs.itertuples())
    ]
    crashed = rows[0] | {"name": "broken", "state": "crashed", "summary": {"_step": 3}}
    return [rows[0], crashed, *rows[1:]]


def write_lines(path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_json_lines(tmp_path, write):
    rows = pd.read_csv(write()).to_dict("records")
    path = write_lines(tmp_path / "results.jsonl", rows)
    pd.testing.assert_frame_equal(read(path).table, read(write()).table)


@pytest.mark.parametrize("form", [None, "wandb"])
def test_nested_json_lines_of_wandb(tmp_path, runs, form):
    path = write_lines(tmp_path / "dump.json", wandb_rows(runs))
    done = read(path, model=PAPER, format=form)
    expected = runs.assign(val_loss_se=np.nan, flag="", source="measured")
    pd.testing.assert_frame_equal(done.table, expected, check_exact=True)
    assert said(done.notes, "broken") == (
        "left out: row 2, run 'broken', whose State is crashed, not finished"
    )
    assert "'summary._step'" in said(done.notes, "left out: columns")


@pytest.mark.parametrize("form", [None, "wandb"])
def test_run_table_of_wandb_as_csv(tmp_path, runs, form):
    flat = pd.json_normalize(wandb_rows(runs))
    names = {"name": "Name", "state": "State", "summary.val/loss": "val/loss"}
    names |= {"summary.tokens": "tokens", "config.model.d_model": "config.d_model"}
    names |= {"config.model.n_recur": "n_recur.value", "config.injection.value": "injection.value"}
    path = tmp_path / "wandb_export.csv"
    flat.rename(columns=names).to_csv(path, index=False)
    done = read(path, model=PAPER, format=form)
    expected = runs.assign(val_loss_se=np.nan, flag="", source="measured")
    pd.testing.assert_frame_equal(done.table, expected, check_exact=True)
    assert "row 3, run 'broken', whose State is crashed" in said(done.notes, "broken")


def test_format_csv_reads_all_rows_of_a_file_with_a_state(write):
    path = write(Name=["a", "b", "c"], State=["finished", "failed", "Bavaria"])
    assert len(read(path, format="csv").table) == 3
    assert len(read(path).table) == 1


def test_an_export_without_states_says_that_runs_may_have_crashed(tmp_path, runs):
    finished = [row for row in wandb_rows(runs) if row.pop("state") == "finished"]
    path = write_lines(tmp_path / "dump.json", finished)
    assert "may have crashed" in said(read(path, model=PAPER).notes, "no State")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"loss": 3}\n{"loss": \n', r"row 2: not a JSON object \(.*one JSON object a line"),
        ('[{"loss": 3}]', "row 1: not a JSON object. .*one JSON object a line"),
        ("config,summary\n\"{'r': 2}\",\"{'l': 3}\"\n", "'config' holds dictionaries as text"),
        ("Name,State,loss\na,failed,3\n", r"no run is finished; the states are \['failed'\]"),
        ("loss;D\n3;1e9\n", "columns separated by ';'"),
        ("loss,D,N,C\n", "no runs. Give at least one run"),
        ("\n{}\n", "no runs"),
    ],
)
def test_a_file_of_no_known_format_is_refused(tmp_path, text, message):
    path = tmp_path / "results.txt"
    path.write_text(text)
    refused(path, message)


def test_rows_of_json_lines_are_named_by_their_line(tmp_path):
    rows = ['{"N": 1e6, "D": 1e9, "loss": 3}', "", '{"N": 2e6, "D": 1e9, "loss": -3}']
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(rows))
    assert refused(path, "greater than 0").row == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "parquet"}, "format: got 'parquet', expected one of"),
        ({"name": "../mine"}, r"name: got '\.\./mine', expected letters"),
        ({"name": "paper"}, "name: 'paper' is taken already"),
    ],
)
def test_wrong_arguments_are_refused(write, options, message):
    with pytest.raises(ValueError, match=message):
        ingest(write(), **{"name": "other", "dry_run": True} | options)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.csv: no such file"):
        read(tmp_path / "none.csv")


# Names


def test_every_alias_belongs_to_one_column_and_is_in_plain_form():
    aliases = list(chain.from_iterable(names.split() for names in ALIASES.values()))
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(KNOWN)
    assert set(ALIASES) <= set(KNOWN)
    assert [plain(alias) for alias in aliases] == aliases


@pytest.mark.parametrize(
    ("name", "alias"), [(n, a) for n, aliases in ALIASES.items() for a in aliases.split()]
)
def test_every_alias_is_recognised_and_noted(tmp_path, name, alias):
    mapped = map_columns(pd.DataFrame({alias: [1], "other": [2]}), {}, tmp_path)
    assert mapped.origin == {name: alias}
    said(mapped.notes, f"guessed: {name} is {alias!r}")


def test_schema_names_precede_aliases_and_validation_losses_precede_other_losses(write):
    path = write(val_loss=None, loss=[9.0, 9.0, 9.0], eval_loss=GOOD["val_loss"], D=[1, 2, 3])
    done = read(path)
    assert done.table["val_loss"].tolist() == GOOD["val_loss"]
    assert done.table["n_tokens"].tolist() == GOOD["n_tokens"]


def test_the_mapping_precedes_the_names_of_the_schema(write):
    path = write(other=[2.0, 1.9, 1.8])
    assert read(path, mapping={"val_loss": "other"}).table["val_loss"].tolist() == [2.0, 1.9, 1.8]
    swapped = {"n_params_once": "n_params_rec", "n_params_rec": "n_params_once"}
    assert read(path, mapping=swapped).table["n_params_once"].tolist() == GOOD["n_params_rec"]


def test_a_column_can_be_declined(write):
    path = write(seed=[1, 1, 1], random_seed=[2, 2, 2])
    assert read(path).table["seed"].tolist() == [1, 1, 1]
    assert read(path, mapping={"seed": "-"}).table["seed"].isna().all()


def test_two_columns_that_could_be_one_are_refused_unless_equal(write):
    same = dict.fromkeys(["eval_loss", "valid_loss"], GOOD["val_loss"])
    assert len(read(write(val_loss=None, **same)).table) == 3
    path = write(val_loss=None, **same | {"valid_loss": [1.0, 2.0, 3.0]})
    refused(path, r"\['eval_loss', 'valid_loss'\] could each be 'val_loss'.*--map val_loss=eval")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"val_los": "val_loss"}, r"the table of runs has no column \['val_los'\]"),
        ({"val_loss": "loss"}, r"no column \['loss'\]; the file has .*'val_loss'"),
    ],
)
def test_a_mapping_of_unknown_names_is_refused(write, mapping, message):
    refused(write(), message, mapping=mapping)


# Units and values


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("val_bpb", r"bits per byte, not .* x ln 2 \(= 0.693147\) x bytes per token"),
        ("eval/bits_per_byte", "bits per byte, not in nats"),
        ("val_loss_bits", r"in bits, not .* = bits per token x ln 2"),
        ("bpt", "in bits, not in nats"),
        ("ppl", r"a perplexity, not .*ln\(perplexity\)"),
        ("val/perplexity", "a perplexity, not in nats"),
    ],
)
@pytest.mark.parametrize("is_mapped", [True, False])
def test_other_units_are_recognised_by_their_name(write, column, message, is_mapped):
    path = write(val_loss=None, **{column: GOOD["val_loss"]})
    mapping = {"val_loss": column} if is_mapped else {}
    assert refused(path, message, mapping=mapping).field == column


def test_a_loss_in_nats_beside_other_units_is_read(write):
    assert len(read(write(val_bpb=[1.0, 0.9, 0.8], model_bytes=[1, 2, 3])).table) == 3


def test_no_loss_at_all_names_the_columns(write):
    path = write(val_loss=None, quant_bits=[8, 8, 8])
    refused(path, "no column of the validation loss; the file has .*quant_bits.*--map val_loss=")


def test_perplexities_are_recognised_by_their_values(write):
    error = refused(write(val_loss=[25.0, 22.0, 18.0]), r"2 of 3 rows .*ln\(perplexity\)")
    assert (error.row, error.field, error.value) == (2, "val_loss", 25.0)


def test_two_units_in_one_column_are_refused(write):
    error = refused(write(val_loss=[3.0, 2.9, 21.0]), "1 of 3 rows .*Two units in one column")
    assert error.row == 4


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"tokenizer": ["gpt2", "llama", "llama"]}, "different units: gpt2, llama.*one tokenizer"),
        ({"vocab_size": [32000, 32000, 50304]}, "different units: 32000, 50304"),
        ({"loss_unit": ["nats", "bits/token", "nats"]}, "different units: bits/token, nats"),
        ({"loss_unit": ["bits/token"] * 3}, "the loss is in bits"),
        ({"unit": ["bits per byte"] * 3}, "the loss is bits per byte"),
    ],
)
def test_losses_of_different_units_are_refused(write, columns, message):
    refused(write(**columns), message)


@pytest.mark.parametrize("columns", [{"tokenizer": ["gpt2"] * 3}, {"unit": ["nats/token"] * 3}])
def test_one_unit_is_fine(write, columns):
    assert len(read(write(**columns)).table) == 3


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ({"val_loss": [3.0, 0.0, 2.8]}, 3, "is 0, which no .*run that failed: leave its row out"),
        ({"val_loss": [3.0, None, 2.8]}, 3, "is missing or infinite.*diverged"),
        ({"val_loss": [3.0, 2.9, np.inf]}, 4, r"is missing or infinite \(got inf\).*diverged"),
        ({"val_loss": [3.0, "2,9", 2.8]}, 3, "valid number.*decimal point"),
        ({"val_loss": [3.0, -1.0, 2.8]}, 3, "greater than 0.*nats per token"),
        ({"n_tokens": [1e9, 0.0, 3e9]}, 3, "greater than 0.*positive number"),
        ({"n_tokens": [1e9, -2e9, 3e9]}, 3, "greater than 0.*positive number"),
        ({"n_tokens": [1e9, np.inf, 3e9]}, 3, "finite number"),
        ({"n_tokens": [1.0, 2.0, 3.0]}, 2, "too few for a training run.*1e6 or 1e9"),
        ({"n_tokens": [1e9, 2e9, 9999]}, 4, "too few for a training run"),
        ({"n_tokens": [1e9, "2B", 3e9]}, 3, "valid number"),
        ({"n_params_rec": [4e6, np.inf, 1e6]}, 3, "finite number"),
        ({k: [v[0], v[0], v[1]] for k, v in GOOD.items()}, 3, "the same run as row 2.*`seed`"),
    ],
)
def test_values_that_cannot_be_right_are_refused(write, columns, row, message):
    assert refused(write(**columns), message).row == row


def test_a_repetition_with_another_seed_is_accepted(write):
    same = {name: [values[0]] * 3 for name, values in GOOD.items()}
    assert len(read(write(**same, seed=[0, 1, 2])).table) == 3


# Parameters


def derived(n_params) -> dict:
    tokens = np.array(GOOD["n_tokens"])
    return {"n_params_once": None, "n_params_rec": None, "C": 6 * tokens * n_params * 1.0005}


def test_parameters_that_are_the_budget_over_six_tokens_are_refused(write):
    n_params = np.array([5e6, 3e6, 2e6])
    path = write(**derived(n_params), params=n_params)
    refused(path, "in all 3 rows.*fit is circular.*--model.*--map budget=-")
    assert len(read(path, mapping={"budget": "-"}).table) == 3
    assert len(read(write(**derived(n_params), params=n_params * [1, 1, 1.01])).table) == 3


def test_the_parts_of_such_parameters_are_refused_too(write):
    path = write(C=derived(np.array([5e6, 3e6, 2e6]))["C"])
    refused(path, "fit is circular")


def counted_file(path, runs, n_params, **columns) -> Path:
    described = runs[["n_recur", "d_model", "variant", "n_tokens", "val_loss"]]
    described.assign(n_params=n_params, **columns).to_csv(path, index=False)
    return path


def test_with_a_model_a_guessed_count_is_circular_and_a_counted_one_is_not(tmp_path, runs):
    path = tmp_path / "results.csv"
    guessed = runs["budget"] / (6 * runs["n_tokens"])
    counted_file(path, runs, guessed, budget=runs["budget"])
    refused(path, "fit is circular", model=PAPER)
    again = read(path, model=PAPER, mapping={"n_params": "-"}).table
    assert again["n_params"].equals(runs["n_params"])


def test_a_rounded_count_is_replaced_by_the_exact_one(tmp_path, runs):
    rounded = runs["n_params"].map(lambda n: float(f"{n:.3g}"))
    path = counted_file(tmp_path / "results.csv", runs, rounded)
    done = read(path, model=PAPER)
    assert done.table["n_params"].equals(runs["n_params"])
    said(done.notes, "n_params from the model, with which the file's agrees")


@pytest.mark.parametrize("times", [1, 2])
def test_embeddings_in_the_count_are_recognised(tmp_path, runs, times):
    embedding = 32_064 * runs["d_model"].astype(float)
    path = counted_file(tmp_path / "results.csv", runs, runs["n_params"] + times * embedding)
    done = read(path, model=PAPER)
    assert done.table["n_params"].equals(runs["n_params"])
    said(done.notes, "without embeddings, which the file's n_params includes")


def test_a_count_of_another_model_is_refused(tmp_path, runs):
    path = counted_file(tmp_path / "results.csv", runs, runs["n_params"] * 1.2)
    error = refused(path, "the model has .*--map n_params=-", model=PAPER)
    assert (error.row, error.field) == (2, "n_params")
    path = counted_file(path, runs, runs["n_params"], flops_per_token=6 * runs["n_params"])
    refused(path, "'flops_per_token': the model has .*--map flops_per_token=-", model=PAPER)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({}, r"d_model and n_loop \(or n_layers\) not known"),
        ({"n_loop": 4}, "d_model not known; set it"),
        ({"depth": 20}, r"unknown fields \['depth'\]"),
        ({"n_loop": 4, "d_model": 64, "n_recur": 2}, r"\['n_recur'\] are set and are columns"),
    ],
)
def test_a_model_without_depth_or_width_is_refused(write, model, message):
    with pytest.raises(ConfigError, match=message):
        read(write(), model=model)


@pytest.mark.parametrize(
    ("model", "row", "message"),
    [
        ({"n_layers": 20}, 3, "no such model: variant 'none' is the plain stack"),
        ({"n_layers": 21, "variant": "linear"}, 3, "17 are left .* not a multiple of n_recur=2"),
        ({"n_layers": 20, "n_loop": 16}, 3, "got 20, but 36 are executed"),
        ({"n_loop": "many"}, 2, "no such model: n_loop: got 'many'"),
    ],
)
def test_a_model_that_cannot_exist_names_its_row(write, model, row, message):
    path = write(d_model=[64, 64, 64], variant=["none", *["linear"] * 2])
    if "variant" in model or model == {"n_layers": 20}:
        path = write(d_model=[64, 64, 64])
    assert refused(path, message, model=model).row == row


# Budgets


def test_achieved_flops_become_the_budgets_of_their_cells(write):
    done = read(write(C=[0.999e18, 1.004e18, 2.151e18]))
    assert done.table["budget"].tolist() == [1e18, 1e18, 2.151e18]
    assert "2 rows, which cluster within 0.50%: 1e+18" in said(done.notes, "nominal budgets")


def test_runs_of_a_cell_two_percent_wide_are_within_one_percent_of_its_budget(write):
    flops = [1.004e18, 1.010e18, 1.0239e18]
    (nominal,) = read(write(C=flops)).table["budget"].unique()
    assert max(abs(np.array(flops) / nominal - 1)) < 0.01


def test_nominal_budgets_stay_as_they_are(write):
    done = read(write(budget=[1.2345e18, 1.2345e18, 3e18]))
    assert done.table["budget"].tolist() == [1.2345e18, 1.2345e18, 3e18]
    assert not [note for note in done.notes if "nominal" in note]


def test_budgets_that_form_no_cells_are_refused(write):
    path = write(C=[1e18, 1.015e18, 1.03e18])
    refused(path, "from 1e.18 to 1.03e.18 FLOPs of 3 rows .*ambiguous.*--map budget=-")
    assert read(path, mapping={"budget": "-"}).table["budget"].isna().all()


def test_computed_budgets_that_form_no_cells_are_left_out_with_a_note(write):
    path = write(n_tokens=[1e9, 1.015e9, 1.03e9], flops_per_token=[1e9, 1e9, 1e9])
    done = read(path)
    assert done.table["budget"].isna().all()
    said(done.notes, "left out: budget, since the achieved FLOPs form no cells")


def test_a_budget_that_is_not_what_was_spent_is_refused(write):
    path = write(budget=[1e18, 1e18, 1e18], flops_per_token=[1e9, 1e9, 1e9])
    assert refused(path, "budget 1e.18 is not n_tokens x flops_per_token = 2e.18").row == 3


def test_the_message_without_tokens_lists_ways_to_compute_them(write):
    refused(write(n_tokens=None), "no column of the training tokens.*--map n_tokens=.*--set")


# On disk


def test_a_source_has_a_table_and_its_provenance(write, sources):
    path = write(val_loss=None, loss=GOOD["val_loss"])
    done = ingest(path, name="mine", out=sources)
    assert done.folder == sources / "mine"
    assert [p.name for p in sources.iterdir()] == ["mine"]
    assert sorted(p.name for p in done.folder.iterdir()) == ["README.md", "runs.csv"]
    text = (done.folder / "README.md").read_text()
    assert hashlib.sha256(path.read_bytes()).hexdigest() in text
    assert looped.__version__ in text
    assert "`results.csv`" in text
    assert str(path.parent) not in text
    assert all(f"- {note}" in text for note in done.notes)
    pd.testing.assert_frame_equal(looped.load_runs(done.folder), done.table, check_exact=True)


def test_columns_of_a_folders_table_can_be_mapped(write, sources):
    folder = ingest(write(), name="mine", out=sources).folder
    renamed = pd.read_csv(folder / "runs.csv").rename(columns={"val_loss": "loss"})
    renamed.to_csv(folder / "runs.csv", index=False)
    assert len(looped.load_runs(folder, columns={"val_loss": "loss"})) == 3


def test_an_existing_source_is_not_replaced(write, sources):
    ingest(write(), name="mine", out=sources)
    before = (sources / "mine/runs.csv").read_bytes()
    for dry_run in (False, True):
        with pytest.raises(ValueError, match="name: 'mine' is taken already"):
            ingest(write(seed=[1, 1, 1]), name="mine", out=sources, dry_run=dry_run)
    assert (sources / "mine/runs.csv").read_bytes() == before


def test_a_dry_run_writes_nothing(write, sources):
    done = ingest(write(), name="mine", out=sources, dry_run=True)
    assert (len(done.table), done.folder) == (3, None)
    assert not sources.exists()


def test_a_refused_file_writes_nothing(write, sources):
    with pytest.raises(RecordError):
        ingest(write(val_loss=[3.0, 0.0, 2.8]), name="mine", out=sources)
    assert not sources.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interruption_before_the_rename_leaves_nothing(write, sources, monkeypatch, error):
    def stop(self, target):
        assert (self / "runs.csv").is_file()
        raise error

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(error):
        ingest(write(), name="mine", out=sources)
    assert list(sources.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from looped.registry.ingest import ingest
Path.rename = lambda self, target: os.kill(os.getpid(), signal.SIGKILL)
ingest(sys.argv[1], name="mine", out=sys.argv[2])
"""


def test_a_kill_before_the_rename_leaves_no_source_and_the_next_call_writes_it(write, sources):
    path = write()
    killed = subprocess.run([sys.executable, "-c", KILLED, path, sources], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (sources / "mine").exists()
    assert len(looped.load_runs(ingest(path, name="mine", out=sources).folder)) == 3


# The command


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["ingest", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_the_command_writes_a_source_named_after_the_file(write, sources):
    text = run(write(val_loss=None, loss=GOOD["val_loss"]), "--out", sources).stdout
    assert "guessed: val_loss is 'loss'" in text
    assert f"written to {sources / 'results'}" in text
    assert len(looped.load_runs(sources / "results")) == 3


def test_the_command_takes_a_model_from_a_file_and_from_settings(tmp_path, sources, runs):
    path, model = tmp_path / "export.csv", tmp_path / "model.json"
    exported(path).drop(columns=COUNTED).rename(columns={"val_loss": "x"}).to_csv(path, index=False)
    model.write_text('{"n_layers": 12, "vocab_size": 32064}')
    options = ["--name", "mine", "--out", sources, "--map", "val_loss=x", "--json"]
    done = json.loads(run(path, *options, "--model", model, "--set", "n_layers=20").stdout)
    assert done["folder"] == str(sources / "mine")
    assert [row["n_params"] for row in done["runs"]] == runs["n_params"].tolist()
    assert "mapped: val_loss is 'x'" in done["notes"]


def test_the_commands_dry_run_writes_nothing(write, sources):
    path = write()
    text = run(path, "--out", sources, "--dry-run").stdout
    assert "nothing was written" in text
    assert json.loads(run(path, "--out", sources, "--dry-run", "--json").stdout)["folder"] is None
    assert not sources.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--map", "val_loss"], "--map: got 'val_loss', expected LEFT=RIGHT"),
        (["--set", "variant=gated", "--set", "d_model=64", "--set", "n_loop=4"], "got 'gated'"),
        (["--model", "{csv}"], "is not a JSON object"),
        (["--format", "xml"], "format: got 'xml'"),
    ],
)
def test_bad_input_is_one_red_line(write, sources, arguments, message):
    path = write()
    options = [argument.format(csv=path) for argument in arguments]
    result = run(path, "--out", sources, *options, code=2)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not sources.exists()
