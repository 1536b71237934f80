"""The chapters themselves: thin cells, and other settings or runs through plain papermill."""

import re
from pathlib import Path

import pytest
import yaml

jupytext = pytest.importorskip("jupytext", reason="the chapters need looped[book]")
papermill = pytest.importorskip("papermill", reason="the chapters need looped[book]")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import looped  # noqa: E402
from looped.accounting import STACK  # noqa: E402
from looped.registry.laptop import laptop_primitives  # noqa: E402
from looped.registry.record import write_record  # noqa: E402

BOOK = Path(__file__).parents[1] / "book"
ITEMS = BOOK / "all-items.md"
CHAPTERS = sorted(path.stem for path in BOOK.glob("*.md") if "{code-cell}" in path.read_text())
FEW = {"starts": 20, "seed": 1}
RESAMPLED = FEW | {"resamples": 4, "resample_starts": 4}


def code_cells(chapter):
    cells = jupytext.read(BOOK / f"{chapter}.md").cells
    return [cell for cell in cells if cell.cell_type == "code"]


def run(chapter, parameters) -> str:
    """All that the chapter shows when papermill runs it with these parameters."""
    notebook = jupytext.read(BOOK / f"{chapter}.md")
    done = papermill.execute_notebook(notebook, None, parameters, progress_bar=False)
    return str([cell.outputs for cell in done.cells if cell.cell_type == "code"])


def simulated_records(grid, folder, n=None):
    """Records of a grid's runs with made-up losses, for chapters that show what was measured."""
    one = looped.load_records("laptop")[0]
    for i, spec in enumerate(looped.get_grid(grid)[:n]):
        result = one.result.model_copy(
            update={"val_loss": 4 + i / 8, "n_tokens": spec.train.n_tokens}
        )
        record = one.model_copy(
            update={
                "run_id": spec.run_id,
                "spec": spec.to_dict(),
                "counts": looped.counts(spec.model),
                "result": result,
            }
        )
        write_record(record, folder)
    return str(folder)


@pytest.fixture(scope="module")
def own_runs(tmp_path_factory):
    """The paper's runs as a reader's own CSV file would hold them."""
    path = tmp_path_factory.mktemp("own") / "runs.csv"
    looped.load_runs("paper", case=None).assign(source="simulated").to_csv(path, index=False)
    return str(path)


@pytest.fixture(scope="module")
def two_cases(tmp_path_factory):
    """Function of a number of budgets: a CSV file of the laptop's studies, drawn from one law."""
    law = looped.fit(looped.load_runs("laptop"), starts=40)
    grids = ("laptop", "laptop-tbptt", "laptop-hyperconnect")
    rows = [
        looped.runs_at_width(spec.model, spec.model.d_model, n_tokens=spec.train.n_tokens).assign(
            case=spec.case,
            budget=spec.budget,
            bptt=spec.model.bptt,
            d_model=spec.model.d_model,
            **{name: getattr(spec.model, name) for name in STACK},
        )
        for grid in grids
        for spec in looped.get_grid(grid)
    ]
    runs = pd.concat(rows, ignore_index=True)
    noise = np.random.default_rng(0).normal(0, 0.002, len(runs))
    runs = runs.assign(val_loss=law.predict(runs) + noise, source="simulated")
    shared = sorted(runs.loc[runs["case"] == "truncated_bptt", "budget"].unique())

    def written(n_budgets):
        path = tmp_path_factory.mktemp("cases") / "runs.csv"
        runs[runs["budget"].isin(shared[:n_budgets])].to_csv(path, index=False)
        return str(path)

    return written


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_cells_are_thin_and_define_nothing(chapter):
    for cell in code_cells(chapter):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert not any(line.lstrip().startswith(("def ", "class ")) for line in lines)
        assert len(lines) <= (12 if "parameters" in cell.metadata.get("tags", []) else 8)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_has_parameters(chapter):
    tagged = [c for c in code_cells(chapter) if "parameters" in c.metadata.get("tags", [])]
    assert len(tagged) == 1


@pytest.mark.parametrize(
    ("chapter", "parameters", "shown"),
    [
        ("joint-law", RESAMPLED | {"split": "stated", "half": 1e18}, "up to 1e+18 FLOPs"),
        ("per-r-laws", FEW | {"case": "hyperconnections"}, "on 20 digitised runs"),
        ("accounting", FEW | {"d_model": 1024, "split": "none"}, "d_model = 1024"),
        ("downstream", {"axes": ["math"]}, "range of r = 1. math: r = 2"),
        ("extrapolation", RESAMPLED | {"held_out": [1e18, 1e19]}, "without 1e18, 1e19"),
    ],
)
@pytest.mark.slow
def test_a_chapter_runs_on_other_settings(chapter, parameters, shown):
    assert shown in run(chapter, parameters)


@pytest.mark.parametrize(
    ("chapter", "parameters"), [("index", RESAMPLED), ("joint-law", RESAMPLED), ("per-r-laws", FEW)]
)
@pytest.mark.slow
def test_a_chapter_runs_on_own_runs(chapter, parameters, own_runs):
    assert "simulated runs" in run(chapter, parameters | {"runs": own_runs})


@pytest.mark.parametrize(
    ("chapter", "parameters"),
    [
        ("index", RESAMPLED),
        ("joint-law", RESAMPLED),
        ("per-r-laws", FEW),
        ("truncated-bptt", RESAMPLED),
        ("hyperconnections", RESAMPLED),
    ],
)
@pytest.mark.slow
def test_a_chapter_runs_on_the_runs_measured_here(chapter, parameters):
    assert "measured runs" in run(chapter, parameters | {"runs": "laptop"})


@pytest.mark.parametrize("chapter", ["truncated-bptt", "hyperconnections"])
@pytest.mark.parametrize("n_budgets", [2, 3])
@pytest.mark.slow
def test_a_case_study_is_repeated_on_runs_measured_here(chapter, n_budgets, two_cases):
    shown = run(chapter, RESAMPLED | {"own": two_cases(n_budgets)})
    assert "| 0.454 | 0.380 | -0.073 [" in shown or "| 0.454 | 0.646 | +0.192 [" in shown
    assert f"| measured here | {n_budgets} | " in shown
    assert "looped grid launch" not in shown


@pytest.mark.parametrize("chapter", ["truncated-bptt", "hyperconnections"])
@pytest.mark.slow
def test_a_case_study_stands_where_nothing_was_measured_yet(chapter, own_runs, two_cases, tmp_path):
    runs = pd.read_csv(two_cases(3))
    runs[runs["case"] == "baseline"].to_csv(tmp_path / "baseline.csv", index=False)
    shown = run(chapter, RESAMPLED | {"runs": own_runs, "own": str(tmp_path / "baseline.csv")})
    assert "looped grid launch laptop-" in shown
    assert "81 simulated runs" in shown or "83 simulated runs" in shown


@pytest.mark.slow
def test_the_large_pair_is_compared_with_what_is_reported_and_no_other():
    shown = run("extrapolation", RESAMPLED)
    assert "reported 2.047" in shown
    assert "without 1e19, 2.15e19" in shown
    for other in ({"runs": "laptop"}, {"n_tokens": 10**10}):
        shown = run("extrapolation", RESAMPLED | other)
        assert "nothing is compared" in shown
        assert "reported 2.047" not in shown


@pytest.mark.slow
def test_ablations_say_what_is_not_measured(tmp_path):
    shown = run("ablations", {"injection": str(tmp_path), "transfer": str(tmp_path)})
    assert "Measured, 0 of 4 variants so far" in shown
    assert "not known yet" in shown
    assert "another width and horizon have not been trained yet" in shown
    assert "| linear | 955 | 2.793 | +0.000 |" in shown  # published with 955M and 973M tokens
    assert "| hyperconnect | 973 | 2.757 | -0.036 |" in shown


@pytest.mark.slow
def test_ablations_show_the_records_that_are_there(tmp_path):
    places = {
        "injection": simulated_records("laptop-injection", tmp_path / "injection", n=3),
        "transfer": simulated_records("laptop-lr-transfer", tmp_path / "transfer"),
    }
    shown = run("ablations", places)
    assert "not known yet" not in shown
    assert "3 of 4 variants" in shown
    assert "linear, additive, passthrough. Resolved against the linear injection: add" in shown
    assert "| passthrough | 1,609,728 | 4.2500 | +0.2500 |" in shown
    assert "| hyperconnect | 1,605,632 | – | – | – |" in shown
    assert "12 of 12 runs away from the reference" in shown
    # made-up losses grow with the rate, in eighths: 0.015 is the best and 0.03 costs one step
    assert "0.52M tokens | 1 | 0.015 | 4.0000 | 0.1250 |" in shown


@pytest.mark.slow
def test_downstream_shows_own_results(tmp_path):
    table = laptop_primitives()
    own = table[table["run_id"] == table["run_id"].iloc[0]].assign(n_recur=16, value=0.875)
    own.to_csv(tmp_path / "own.csv", index=False)
    shown = run("downstream", {"results": str(tmp_path / "own.csv")})
    assert "induction_head: 0.875 nats per token" in shown


@pytest.mark.slow
def test_the_laptop_is_fitted_by_the_cells_of_the_paper():
    shown = run("laptop", RESAMPLED)
    assert "measured runs" in shown
    assert "paper, digitised" in shown


@pytest.mark.slow
def test_a_grid_that_is_recorded_launches_nothing(tmp_path):
    shown = run("launch", {"work": str(tmp_path)})
    assert f"laptop: {len(looped.load_records('laptop'))} done" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(
    bool(looped.missing_packages("train", "grid", "laptop")), reason="training needs its extras"
)
@pytest.mark.slow
def test_the_smoke_grid_is_trained_from_its_chapter(tmp_path):
    shown = run("launch", {"grid": "smoke", "limit": None, "work": str(tmp_path)})
    assert "smoke: 4 done; 100% of the FLOPs" in shown
    assert len(list(tmp_path.glob("smoke/*/????????????????.json"))) == 4


@pytest.mark.slow
def test_the_architecture_is_trained_on_its_page_or_says_what_is_missing():
    shown = run("architecture", {"d_model": 16, "n_tokens": 8192, "n_recur": [1, 8]})
    missing = looped.missing_packages("train", "laptop")
    assert ("Training loss against tokens. r = 1" in shown) == (not missing)
    assert ("No model was trained for this page" in shown) == bool(missing)


@pytest.mark.slow
def test_ingest_runs_on_an_own_file(own_runs):
    assert "simulated" in run("ingest", FEW | {"file": own_runs, "model": None})


@pytest.mark.slow
def test_a_shift_is_measured_on_an_own_file_with_own_names(tmp_path):
    runs = looped.load_runs("paper", case="hyperconnections", anchor=False).assign(case="lanes")
    plain = looped.load_runs("paper").assign(case="plain")
    columns = ["case", "n_recur", "d_model", "budget", "n_params_once", "n_params_rec", "n_tokens"]
    path = tmp_path / "mine.csv"
    pd.concat([plain, runs])[[*columns, "val_loss"]].to_csv(path, index=False)
    own = {"file": str(path), "baseline": "plain", "variant": None}
    shown = run("bring-your-own", RESAMPLED | own)
    assert "φ rises from 0.429 to 0.650, Δφ = +0.221" in shown
    assert "| lanes | 83 | 0.650 [" in shown
    assert "measured runs" in shown


@pytest.mark.slow
def test_a_shift_is_shown_of_runs_without_widths(tmp_path):
    path = tmp_path / "mine.csv"
    runs = looped.load_runs("paper", case=None)
    runs.drop(columns="d_model").to_csv(path, index=False)
    shown = run("bring-your-own", RESAMPLED | {"file": str(path), "variant": "hyperconnections"})
    assert "No cell could be compared at one width" in shown


@pytest.mark.slow
def test_every_warning_on_a_shift_is_explained():
    explained = re.findall(r"^\| \*(.+?)\* \|", (BOOK / "bring-your-own.md").read_text(), re.M)
    runs = looped.load_runs("paper", case=None)
    few = {"starts": 4, "resample_starts": 1, "resamples": 40}
    before = looped.load_runs("paper")
    pairs = [("truncated_bptt", {}), ("hyperconnections", {"budgets": [1e18, 2.15e18]})]
    shifts = [
        looped.delta_phi(before, looped.load_runs("paper", case=case), **few | how)
        for case, how in pairs
    ]
    bare = runs.drop(columns="d_model")
    shifts.append(
        looped.delta_phi(*(bare[bare["case"] == c] for c in ("baseline", "truncated_bptt")), **few)
    )
    warnings = {text for shift in shifts for text in shift.warnings}
    assert len(warnings) > 6
    assert [text for text in warnings if not any(part in text for part in explained)] == []


def items() -> dict[str, str]:
    """The rows of the page of the paper's tables and figures: item -> the rest of its row."""
    text = ITEMS.read_text().replace("\xa0", " ")
    rows = re.findall(r"^\| ((?:Table|Fig\.|App\.) [\w.]+) \|(.+)\|$", text, re.M)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_every_table_and_figure_of_the_paper_has_its_row():
    named = [f"Table {n}" for n in range(1, 11)] + [f"Fig. {n}" for n in range(1, 14)]
    assert list(items()) == [*named, "App. F.2", "App. F.3", "App. F.4", "App. G.3"]


@pytest.mark.parametrize("item", items())
def test_a_row_links_to_what_the_book_has_and_says_what_it_is(item):
    row = items()[item]
    sources = {path.stem: path.read_text() for path in BOOK.glob("*.md")}
    given = r'(?:name[:=] *"?|^\()([a-z0-9-]+)(?:"|\)=|$)'
    labels = {label for text in sources.values() for label in re.findall(given, text, re.M)}
    links = re.findall(r"\{(numref|doc|ref)\}`([a-z0-9-]+)`", row)
    assert links
    in_book = yaml.safe_load((BOOK.parent / "_toc.yml").read_text())["chapters"]
    pages = {Path(chapter["file"]).stem for chapter in in_book}
    for role, target in links:
        assert target in (pages if role == "doc" else labels)
    status = row.split("|")[-1].strip()
    assert set(status.split("; ")) <= {"re-derived", "measured", "reported"}
