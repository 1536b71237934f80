"""How fast the package is: `looped bench fit | train`, or `python -m benchmarks`.

Everything is measured on one thread, as the runs of a grid are trained on a CPU. On a machine
with a card, `python -m benchmarks.gpu` also checks the attention kernels.
"""

import os
import sys

import typer

from benchmarks.fit import fit_command
from benchmarks.train import train_command

app = typer.Typer(
    help="Measure the speed of the fits and of training.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("fit")(fit_command)
app.command("train")(train_command)


@app.callback()
def one_thread() -> None:
    """Measure the speed of the fits and of training, on one thread."""
    if "OMP_NUM_THREADS" not in os.environ:  # read when NumPy is loaded, which it is by now
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, again, os.environ | {"OMP_NUM_THREADS": "1"})
