"""Where the package finds the recorded runs: the checkout's `runs/`, or the copy in the wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def runs_dir() -> Path:
    """Folder that holds one sub-folder per source of runs."""
    checkout = PACKAGE.parent / "runs"
    return checkout if (checkout / "paper").is_dir() else PACKAGE / "_runs"
