"""Where the package finds the recorded runs: the checkout's `runs/`, or the copy in the wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def own_runs_dir() -> Path:
    """Folder that new sources are written to: the checkout's `runs/`, else `./runs`."""
    return Path("runs") if PACKAGE in runs_dir().parents else runs_dir()


def runs_dir() -> Path:
    """Folder that holds one sub-folder per source of runs."""
    checkout = PACKAGE.parent / "runs"
    return checkout if (checkout / "paper").is_dir() else PACKAGE / "_runs"
