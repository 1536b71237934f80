"""The command line: `looped runs | count | fit | ... | train | grid | ingest | data | bench`.

Each command calls one public function of the package and prints its result: a table for a reader,
or with --json (and --csv where the result is rows) the numbers in full precision and nothing else.
Warnings and progress go to stderr. Exit code 2: bad input; 1: no usable estimate.
"""

from typing import Annotated

import typer

from looped.cli.group import LazyCommands

__all__ = ["app"]

HELP = "Iso-depth scaling laws of looped language models, from runs to φ."

app = typer.Typer(
    cls=LazyCommands,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import looped

        print(looped.__version__)
        raise typer.Exit


@app.callback(help=HELP)
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    pass
