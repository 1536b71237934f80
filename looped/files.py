"""Atomic file writes (a file is either complete or absent), and checksums."""

import hashlib
import os
from pathlib import Path


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Replace a file: write the content to a temporary file, flush it to disk, then rename it."""
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
    """fsync a file or directory, so that a later rename cannot reach the disk first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(data: str | bytes | Path) -> str:
    """SHA-256 of text (as UTF-8), of bytes, or of the content of a file, in hexadecimal."""
    if isinstance(data, Path):
        data = data.read_bytes()
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()
