"""`looped evaluate`: a trained checkpoint on downstream tasks."""

from pathlib import Path
from typing import Annotated

import typer

import looped
from looped.cli import group, show
from looped.cli import options as opt
from looped.evaluate.primitives import PRIMITIVES

SHOWN = ["task", "metric", "value", "se", "chance_listed", "chance_any", "n_examples"]
SHOWN += ["n_shots", "n_truncated"]

OWN = ",".join(PRIMITIVES)

Tasks = Annotated[str, typer.Option(help="With commas between; others than these are lm-eval's.")]


@opt.flattened
def evaluate_command(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a run of `looped train`.")],
    output: opt.Output,
    tasks: Tasks = OWN,
    examples: Annotated[
        int | None, typer.Option(help="Of each task; default: 1,000, or all of lm-eval's.")
    ] = None,
    shots: Annotated[int | None, typer.Option(help="Solved examples; default: the task's.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the examples.")] = 0,
    corpus: Annotated[Path | None, typer.Option(help="Folder of the run's corpus.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    include_path: Annotated[
        Path | None, typer.Option(help="Folder of own lm-eval tasks (YAML), in place of its own.")
    ] = None,
) -> None:
    """Evaluate the newest checkpoint of a run on synthetic tasks, or on any of lm-eval."""
    with show.progress("evaluation", "examples") as progress:
        found = looped.evaluate_checkpoint(
            checkpoint,
            [name.strip() for name in tasks.split(",") if name.strip()],
            n_examples=examples,
            n_shots=shots,
            seed=seed,
            corpus=corpus,
            device=device,
            include_path=include_path,
            progress=progress,
        )
    title = f"Run {found['run_id'].iloc[0]}, step {found['step'].iloc[0]:,}: losses in nats/token"
    output.rows(found, title, SHOWN)
    cut = found[found["n_truncated"] > 0].drop_duplicates("task")
    group.warn(
        f"{row.task}: {row.n_truncated:,} contexts were cut from the left to fit the model; "
        "fewer --shots make them shorter"
        for row in cut.itertuples()
    )
