"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Replace a file by one with this content: written aside, brought to the disk, renamed."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.tmp")
    try:
        aside.write_bytes(data.encode() if isinstance(data, str) else data)
        sync(aside)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def sync(path: str | Path) -> None:
    """Have the disk hold a file or folder: a rename may otherwise overtake it at a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
