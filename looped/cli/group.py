"""Groups of commands: each command's module is imported when it runs, and errors are one line."""

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from looped.errors import ConfigError, FitError, TrainingError
from looped.paths import PACKAGE

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
"""Exit codes; FAILED: no usable estimate, or a run that could not continue."""

COMMANDS = {
    "runs": ("looped.cli.commands:runs_command", "Print the runs of a source as one table."),
    "count": (
        "looped.cli.commands:count_command",
        "Count parameters, FLOPs and cache bytes of the paper's 20-layer stack.",
    ),
    "fit": (
        "looped.cli.commands:fit_command",
        "Fit a law to runs, and with --bootstrap an interval.",
    ),
    "isoflop": (
        "looped.cli.commands:isoflop_command",
        "Find the minimum of each isoFLOP cell by a parabola in log N.",
    ),
    "optimal": (
        "looped.cli.commands:optimal_command",
        "Fit the joint law, and print its compute-optimal sizes of the paper's stacks.",
    ),
    "claims": (
        "looped.cli.commands:claims_command",
        "Compare every number of the paper with the computed one, with a verdict.",
    ),
    "train": ("looped.cli.train:train_command", "Train a model, or resume a stopped run."),
    "ingest": (
        "looped.cli.ingest:ingest_command",
        "Check the runs of a file, and store them as a source of runs.",
    ),
    "delta-phi": (
        "looped.cli.shift:delta_phi_command",
        "Measure the shift of φ between two cases, and the parts of the loss change.",
    ),
    "plan": (
        "looped.cli.shift:plan_command",
        "Plan a study of Δφ: the cheapest runs that reach a target standard error (simulated).",
    ),
    "evaluate": (
        "looped.cli.evaluate:evaluate_command",
        "Evaluate the newest checkpoint of a run on synthetic tasks, or on any of lm-eval.",
    ),
    "data": (
        "looped.cli.data:app",
        "Prepare and inspect corpora: packed rows of tokens that runs read.",
    ),
    "grid": ("looped.cli.grid:app", "Launch the runs of a study, watch and collect them."),
    "bench": ("benchmarks:app", "Measure the speed of the fits and of training."),
    "book": ("tools.book:app", "Build the book."),
}
"""Command -> its function or group (module:name), and its line of `looped --help`."""


def new_group(text: str) -> typer.Typer:
    """An empty group of commands, with this help."""
    return typer.Typer(
        cls=OneLineErrors,
        help=text,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
    )


class OneLineErrors(TyperGroup):
    """A group of commands that prints bad input as one red line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """The command's result; a known error leaves with its exit code."""
        try:
            return super().invoke(ctx)
        except (FitError, TrainingError) as error:
            fail(error, FAILED)
        except BrokenPipeError:  # the reader of the output has closed it, as `| head` does
            sys.stdout = None
            raise typer.Exit(0) from None
        except (ValueError, OSError, ImportError) as error:
            fail(error, BAD_INPUT)


class LazyCommands(OneLineErrors):
    """The group of all `COMMANDS`; its help imports none of their modules."""

    only_names = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        path, line = COMMANDS[cmd_name]
        if self.only_names:
            return TyperCommand(cmd_name, short_help=line)
        return load(cmd_name, path)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, with the commands' lines of `COMMANDS`."""
        self.only_names = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.only_names = False


def load(name: str, path: str) -> Any:
    """The click command of a function or of a group of commands at `module:name`.

    Raises:
        ConfigError: a command of the repository, where only the package is installed.
    """
    module, _, attribute = path.partition(":")
    top = module.partition(".")[0]
    if top != "looped" and not (PACKAGE.parent / module.replace(".", "/")).is_dir():
        raise ConfigError(f"looped {name} needs a checkout of the repository, not only the package")
    target = getattr(import_module(module), attribute)
    if not isinstance(target, typer.Typer):
        function, target = target, typer.Typer(rich_markup_mode=None, add_completion=False)
        target.command(name)(function)
    command = get_command(target)
    command.name = name
    return command


def fail(error: object, code: int) -> NoReturn:
    """Print the error as one line on stderr and leave with the exit code."""
    _print_line(f"error: {' '.join(str(error).split())}", "red")
    raise typer.Exit(code)


def warn(warnings: Iterable[str]) -> None:
    """Print each warning as one line on stderr."""
    for text in warnings:
        _print_line(f"warning: {text}", "yellow")


def _print_line(text: str, style: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(text, style=style, markup=False)
