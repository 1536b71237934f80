"""The command line: `looped runs | count | fit | ... | train | grid | ingest | data | bench`.

Each command calls one public function of the package and prints what comes back: a table for a
reader, or with --json (and --csv where it is rows) the numbers in full precision and nothing else.
Warnings and progress go to stderr. Exit code 2: bad input; 1: no usable estimate.
"""

from looped.cli.commands import app

__all__ = ["app"]
