"""Records of a grid, from the work folders to `runs/NAME/`."""

from pathlib import Path

from looped.files import write_whole
from looped.launching.folder import folders
from looped.registry.record import read_record, read_records, write_record
from looped.spec import RunSpec

TABLE = "table.csv"


def collect(specs: list[RunSpec], work: str | Path, out: str | Path) -> dict[str, int]:
    """Copy the records of a grid that are not there yet, and write the table of all that are.

    Returns:
        Counts: new, known (recorded before), missing (runs of the grid without a record).

    Raises:
        RecordError: a record that cannot be read; nothing of it is written.
    """
    out = Path(out)
    found = {"new": 0, "known": 0, "missing": 0}
    for run in folders(specs, work):
        if (out / run.record.name).is_file():
            found["known"] += 1
        elif run.record.is_file():
            write_record(read_record(run.record), out)
            found["new"] += 1
        else:
            found["missing"] += 1
    if found["new"] or found["known"]:
        write_whole(out / TABLE, read_records(out).to_csv(index=False))
    return found
