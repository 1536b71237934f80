"""Records of a grid, from the work folders to `runs/NAME/`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from looped.files import write_whole
from looped.launching.folder import folders
from looped.registry.record import read_record, read_records, write_record
from looped.spec import RunSpec

TABLE = "table.csv"


def collect(
    specs: Sequence[RunSpec],
    work: str | Path,
    out: str | Path,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Copy new records of a grid from the work folders, and write the table of all records.

    Args:
        specs: the grid.
        work: parent of the runs' work folders.
        out: folder of the collected records, such as `runs/laptop`.
        progress: called after each run with (done, total), in runs of the grid.

    Returns:
        Numbers of runs: new, known (collected before), missing (without a record).

    Raises:
        RecordError: a record that cannot be read; it is not copied.
    """
    out, runs = Path(out), folders(specs, work)
    counts = {"new": 0, "known": 0, "missing": 0}
    for number, run in enumerate(runs, 1):
        if (out / run.record.name).is_file():
            counts["known"] += 1
        elif run.record.is_file():
            write_record(read_record(run.record), out)
            counts["new"] += 1
        else:
            counts["missing"] += 1
        if progress:
            progress(number, len(runs))
    if counts["new"] or counts["known"]:
        write_whole(out / TABLE, read_records(out).to_csv(index=False))
    return counts
