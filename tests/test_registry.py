"""Tables of runs: the paper's, and CSV files with and without errors."""

import time

import numpy as np
import pandas as pd
import pytest

import looped
from looped import RecordError
from looped.paths import runs_dir
from looped.registry.schema import COLUMNS, validate


def test_the_paper_has_116_baseline_runs_in_24_cells(runs):
    assert len(runs) == 116
    assert runs.groupby(["budget", "n_recur"]).ngroups == 24
    assert list(runs.columns) == COLUMNS


def test_parameters_are_those_on_the_axis_of_the_figure(all_runs):
    plotted = pd.read_csv(runs_dir() / "paper" / "digitised_runs.csv")["n_params_plotted"]
    injected = (all_runs["n_recur"] == 1) | (all_runs["variant"] == "linear")
    assert (all_runs["n_params"] == plotted)[injected].all()
    # the hyperconnection panel is drawn with an injection that its runs do not have
    extra = (plotted - all_runs["n_params"])[~injected]
    lanes = 8 * all_runs["n_recur"][~injected]
    assert len(extra) == 63
    assert (extra == 2 * all_runs["d_model"][~injected] ** 2 - lanes).all()


def test_tokens_are_whole_batches_that_spend_the_budget(all_runs):
    assert (all_runs["n_tokens"] % 262_144 == 0).all()
    spent = all_runs["n_tokens"] * all_runs["flops_per_token"]
    one_batch = 262_144 * all_runs["flops_per_token"]
    assert ((spent - all_runs["budget"]).abs() <= one_batch / 2).all()


@pytest.mark.parametrize(("case", "n_runs"), [("truncated_bptt", 61), ("hyperconnections", 63)])
def test_a_case_study_includes_the_anchor_at_its_budgets(case, n_runs):
    runs = looped.load_runs("paper", case=case)
    anchor = runs[runs["case"] == "baseline"]
    assert len(runs) == n_runs + 20
    assert (anchor["n_recur"] == 1).all()
    assert set(anchor["budget"]) == set(runs.loc[runs["case"] == case, "budget"])


def test_selection_keeps_recurrences_and_budgets_inclusively():
    runs = looped.load_runs("paper", n_recur=[1, 8], budget_min=1e18, budget_max=2.15e18)
    assert set(runs["n_recur"]) == {1, 8}
    assert set(runs["budget"]) == {1e18, 2.15e18}
    none = looped.load_runs("paper", n_recur=[4, 8])
    assert set(none["n_recur"]) == {4, 8}
    one = looped.load_runs("paper", n_recur=np.int64(8))
    assert set(one["n_recur"]) == {8}


def test_the_anchor_of_a_case_stays_unless_anchor_is_false():
    chosen = looped.load_runs("paper", case="truncated_bptt", n_recur=[4, 8], budget_max=1e18)
    named = looped.load_runs("paper", case="truncated_bptt", n_recur=[1, 4, 8], budget_max=1e18)
    assert set(chosen["n_recur"]) == {1, 4, 8}
    assert chosen.equals(named)
    alone = looped.load_runs("paper", case="truncated_bptt", n_recur=4, anchor=False)
    assert set(alone["n_recur"]) == {4}
    assert set(alone["case"]) == {"truncated_bptt"}


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"source": "papers"}, r"got 'papers', expected one of"),
        ({"case": "loops"}, "case: got 'loops', expected one of .*truncated_bptt.* of 'paper'"),
        ({"n_recur": 3}, r"no run .* is left by n_recur=3.* it has n_recur \[1, 2, 4, 8\]"),
        ({"budget_max": 1.0}, "no run .* is left by .*budget_max=1.0.*budgets .*4.64e"),
        ({"columns": {"val_loss": "loss"}}, "columns name those of a CSV file"),
    ],
)
def test_the_message_of_an_empty_selection_lists_what_exists(selection, message):
    with pytest.raises(ValueError, match=message):
        looped.load_runs(**selection)


GOOD = {
    "n_recur": [1, 2],
    "n_params_once": [1e6, 1e6],
    "n_params_rec": [4e6, 2e6],
    "n_tokens": [1e9, 2e9],
    "val_loss": [3.0, 2.9],
}


@pytest.fixture
def write(tmp_path):
    """Function that writes a CSV file of good runs with some columns changed, or of text."""

    def written(text=None, **columns):
        path = tmp_path / "runs.csv"
        frame = pd.DataFrame(GOOD | columns)
        path.write_text(frame.to_csv(index=False) if text is None else text)
        return path

    return written


def test_a_file_needs_few_columns_and_the_others_are_missing_not_zero(write):
    runs = looped.load_runs(write())
    assert list(runs.columns) == COLUMNS
    assert runs["n_params"].tolist() == [5e6, 3e6]
    assert set(runs["case"]) == {"baseline"}
    assert set(runs["source"]) == {"measured"}
    absent = ["d_model", "variant", "bptt", "budget", "flops_per_token", "val_loss_se", "seed"]
    assert runs[absent].isna().all(axis=None)


def test_the_table_survives_a_csv_file(all_runs, tmp_path):
    path = tmp_path / "copy.csv"
    all_runs.to_csv(path, index=False)
    pd.testing.assert_frame_equal(looped.load_runs(path, case=None), all_runs)


def test_columns_of_other_names_are_mapped_even_when_they_swap(write):
    path = write(loss=[2.0, 1.9], val_loss=[9.0, 9.0])
    runs = looped.load_runs(path, columns={"val_loss": "loss"})
    assert runs["val_loss"].tolist() == [2.0, 1.9]
    swapped = {"n_params_once": "n_params_rec", "n_params_rec": "n_params_once"}
    runs = looped.load_runs(path, columns=swapped)
    assert runs["n_params_once"].tolist() == GOOD["n_params_rec"]
    assert runs["n_params_rec"].tolist() == GOOD["n_params_once"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"val_loss": "loss"}, r"runs.csv: no column \['loss'\]; the file has .*'val_loss'"),
        ({"val_los": "val_loss"}, r"runs.csv: the table of runs has no column \['val_los'\]"),
    ],
)
def test_a_mapping_that_would_be_ignored_is_refused(write, columns, message):
    with pytest.raises(RecordError, match=message):
        looped.load_runs(write(), columns=columns)


def test_numbers_may_name_a_case(write):
    assert set(looped.load_runs(write(case=[1, 1]), case="1")["case"]) == {"1"}


@pytest.mark.parametrize(
    ("columns", "field", "value", "problem", "remedy"),
    [
        ({"val_loss": [3.0, -2.9]}, "val_loss", -2.9, "greater than 0", "nats per token"),
        ({"val_loss": [3.0, 0.0]}, "val_loss", 0.0, "greater than 0", "nats per token"),
        ({"val_loss": [3.0, None]}, "val_loss", None, "is missing", "nats per token"),
        ({"val_loss": [3.0, "inf"]}, "val_loss", np.inf, "finite|less than", "nats per token"),
        ({"val_loss": [3.0, "low"]}, "val_loss", "low", "valid number", "decimal point"),
        ({"val_loss": [3.0, 24.5]}, "val_loss", 24.5, "less than 20", r"log\(perplexity\)"),
        ({"n_tokens": [1e9, -1e9]}, "n_tokens", -1e9, "greater than 0", "training tokens"),
        ({"n_tokens": [1e9, None]}, "n_tokens", None, "is missing", "training tokens"),
        ({"n_recur": [1, 1.5]}, "n_recur", 1.5, "valid integer", "whole number"),
        ({"n_recur": [1, 0]}, "n_recur", 0, "greater than 0", "whole number"),
        ({"n_params_rec": [4e6, -2e6]}, "n_params_rec", -2e6, "greater", "Correct the value"),
        ({"source": ["measured", "web"]}, "source", "web", "digitised", "Correct the value"),
    ],
)
def test_a_bad_value_is_reported_with_its_place_and_remedy(
    write, columns, field, value, problem, remedy
):
    path = write(**columns)
    with pytest.raises(RecordError, match=f"{problem}.*{remedy}") as caught:
        looped.load_runs(path)
    error = caught.value
    assert (error.file, error.row, error.field, error.value) == (path, 3, field, value)
    assert str(error).startswith(f"{path}, row 3, column '{field}': ")
    assert value is None or f"(got {value!r})" in str(error)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            {"budget": [1e18, 1e18], "flops_per_token": [1e9, 1e9]},
            r"row 3: budget 1e\+18 is not n_tokens x flops_per_token = 2e\+18 within 1%",
        ),
        (
            {"n_params": [5e6, 3.1e6]},
            "row 3: n_params 3100000 is not n_params_once .* = 3000000",
        ),
        ({"n_params_once": [1e6, 0], "n_params_rec": [1e6, 0]}, "row 3: .* is 0"),
        ({k: [v[0], v[0]] for k, v in GOOD.items()}, "row 3: the same run as row 2.*`seed`"),
    ],
)
def test_values_that_contradict_each_other_are_reported(write, columns, problem):
    with pytest.raises(RecordError, match=problem):
        looped.load_runs(write(**columns))


def test_blank_lines_and_spaces_around_names_do_not_matter(write):
    path = write("n_tokens , n_params,val_loss\n\n1e9,1e6,3\n,,\n1e9,2e6,2.9\n")
    assert looped.load_runs(path)["n_params"].tolist() == [1e6, 2e6]
    path = write("n_tokens,n_params,val_loss\n\n1e9,1e6,3\n\n1e9,2e6,-1\n")
    with pytest.raises(RecordError, match="row 5, column 'val_loss'"):  # as an editor counts
        looped.load_runs(path)


def test_a_repeated_run_is_allowed_with_another_seed(write):
    same = {k: [v[0], v[0]] for k, v in GOOD.items()}
    assert looped.load_runs(write(**same, seed=[0, 1]))["seed"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a CSV table: .*header"),
        ("n_params,n_tokens,val_loss\n", "no runs.*below the header"),
        ("n_params,n_tokens\n1e6,1e9\n", r"no column \['val_loss'\]; it has \['n_params', .*map"),
        ("n_tokens;val_loss\n1e9;3\n", "columns separated by ';'.*by commas.*decimal point"),
        ("a,b\n1\n1,2,3\n", "not a CSV table: .*Expected 2 fields in line 3, saw 3"),
    ],
)
def test_a_file_that_is_not_a_table_of_runs_is_refused(write, text, problem):
    with pytest.raises(RecordError, match=f"(?s)runs.csv: {problem}"):
        looped.load_runs(write(text))


def test_the_first_bad_row_is_reported_even_if_an_earlier_column_has_a_later_one(write):
    path = write(n_tokens=[1e9, -1e9], val_loss=[-3.0, 2.9])
    with pytest.raises(RecordError, match="row 2, column 'val_loss'"):
        looped.load_runs(path)


def test_any_name_of_a_variant_is_accepted(write):
    assert looped.load_runs(write(variant=["none", "gated"]))["variant"].tolist() == [
        "none",
        "gated",
    ]


def test_whole_numbers_may_be_text_and_large_ones_keep_their_digits():
    large = 2**62 + 1
    table = validate(pd.DataFrame(GOOD).assign(seed=pd.Series([large, None], dtype=object)))
    assert table["seed"].tolist() == [large, pd.NA]
    table = validate(pd.DataFrame(GOOD).assign(n_recur=["1", "2.0"], val_loss=["3", "2.9"]))
    assert table["n_recur"].tolist() == [1, 2]
    assert table["val_loss"].tolist() == [3.0, 2.9]


def test_fifty_thousand_rows_are_checked_in_seconds():
    many = pd.DataFrame({"n_tokens": 1e9, "val_loss": 3.0, "seed": np.arange(50_000)})
    start = time.process_time()
    assert len(validate(many)) == 50_000
    many.loc[49_999, "seed"] = 3
    with pytest.raises(RecordError, match="row 49999: the same run as row 3"):
        validate(many)
    assert time.process_time() - start < 5


def test_the_published_numbers_are_one_namespace():
    assert set(looped.published.minima()["source"]) == {"published", "digitised"}
    assert len(looped.published.counts()) == 44
    assert looped.published.claims()["id"].is_unique


def test_rows_of_a_frame_count_from_zero():
    frame = pd.DataFrame(GOOD | {"val_loss": [3.0, -1.0]})
    with pytest.raises(RecordError, match=r"^row 1, column 'val_loss': "):
        validate(frame)
