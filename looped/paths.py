"""Folders of the recorded runs: the checkout's `runs/`, or the copy in the wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
"""Folder of the package."""


def own_runs_dir() -> Path:
    """Folder for new sources of runs: the checkout's `runs/`, or `./runs` for a wheel."""
    return Path("runs") if PACKAGE in runs_dir().parents else runs_dir()


def runs_dir() -> Path:
    """Folder with one sub-folder for each source of runs."""
    checkout = PACKAGE.parent / "runs"
    return checkout if (checkout / "paper").is_dir() else PACKAGE / "_runs"
