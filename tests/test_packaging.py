"""What is installed: one list of versions, a light core, and a wheel that carries the runs."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import looped

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


NOT_PINNED = {"flash", "flash4", "wandb"}
"""Extras that no command of the Makefile installs: for a CUDA card, or for an account elsewhere."""


def required(extras) -> list[Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    return [r for r in map(Requirement, lines) if r.name != "looped"]


def test_constraints_are_exact_versions_and_nothing_else():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line


def test_every_dependency_is_pinned_to_a_version_that_pyproject_allows():
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    for requirement in required(set(EXTRAS) - NOT_PINNED):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def test_only_training_asks_for_torch():
    asking = {extra for extra in EXTRAS if any(line.startswith("torch") for line in EXTRAS[extra])}
    assert asking == {"train"}
    assert "torch" not in {r.name for r in required([])}


def test_only_the_flash_extras_ask_for_flash_attention():
    for extra, lines in EXTRAS.items():
        assert any("flash-attn" in line for line in lines) == extra.startswith("flash")


def test_conda_file_installs_the_same_versions_of_the_same_package():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, _pip, pip_lines = environment["dependencies"]
    assert Requirement(python.replace("=", "==", 1)).name == "python"
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(
        python.partition("=")[2]
    )
    constraint, editable = pip_lines["pip"]
    assert constraint == "--constraint constraints.txt"
    assert editable == f"--editable .[{','.join(sorted(set(EXTRAS) - NOT_PINNED))}]"


def test_citation_has_what_the_format_demands_and_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}
    assert citation["version"] == PROJECT["version"]
    (paper,) = citation["references"]
    assert paper.keys() >= {"type", "title", "authors"}
    assert paper["url"].endswith("2604.21106")


def test_core_imports_without_what_the_extras_bring():
    """A module that is None in `sys.modules` cannot be imported: as if it were not installed."""
    heavy = "torch", "tokenizers", "datasets", "safetensors", "filelock", "myst_nb", "jupytext"
    heavy += "papermill", "sphinx", "vl_convert", "IPython", "platformdirs"
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({heavy}))\n"
        "import looped, looped.figures, tools.book, looped.cli, looped.studies, benchmarks\n"
        "fit = looped.fit(looped.load_runs('paper'), starts=5)\n"
        "assert looped.laptop_run().n_steps\n"
        "try:\n    looped.train\n"
        "except ModuleNotFoundError as error:\n    assert 'looped[train]' in str(error)\n"
        "else:\n    sys.exit('trains without torch')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


def test_wheel_carries_the_recorded_runs(wheel):
    recorded = {f"looped/_{path.relative_to(ROOT)}" for path in ROOT.glob("runs/paper/*.csv")}
    assert recorded
    assert recorded <= set(wheel)


def test_wheel_says_that_it_is_typed_and_names_the_public_api(wheel):
    assert {"looped/py.typed", "looped/__init__.pyi", "looped/figures/__init__.pyi"} <= set(wheel)


def test_the_public_names_are_those_of_the_stub_and_nothing_else():
    stub = (ROOT / "looped/__init__.pyi").read_text()
    names = re.findall(r" as (\w+)$", stub, re.MULTILINE)
    assert sorted(dir(looped)) == sorted(names)
    missing = bool(looped.missing_packages("train", "grid"))
    unresolved = [name for name in names if not missing and not hasattr(looped, name)]
    assert unresolved == []


def test_wheel_holds_the_package_and_nothing_else(wheel):
    assert {name.split("/")[0] for name in wheel} == {"looped", "looped-0.1.0.dist-info"}
