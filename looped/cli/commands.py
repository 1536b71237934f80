"""The commands of `looped`, each a thin layer over one function of the package."""

from typing import Annotated

import pandas as pd
import typer

import looped
from looped import accounting
from looped.cli import group, show
from looped.cli import options as opt
from looped.config import ModelConfig
from looped.fitting.bootstrap import RESAMPLE_STARTS
from looped.laws import get_form
from looped.studies.paper import BATCH_TOKENS, d_model_of_width, paper_config

READ = ["case", "n_recur", "budget", "d_model", "n_params", "n_tokens", "val_loss", "source"]
"""Columns of the table of runs that fit on a terminal."""


@opt.flattened
def runs_command(source: opt.OneCase, output: opt.Output, n_recur: opt.Recur = None) -> None:
    """Print the runs of a source as one table.

    --csv has every column.
    """
    frame = source.selected(n_recur)
    title = f"{len(frame)} runs of {source.runs}: losses in nats per token, budgets in FLOPs"
    output.rows(frame, title, READ + ["flag"] * bool(frame["flag"].any()))


@opt.flattened
def count_command(
    output: opt.Output,
    n_recur: Annotated[int, typer.Option(help="Times r that the loop block runs.")] = 1,
    width: Annotated[int | None, typer.Option(help="The paper's width s; or --d-model.")] = None,
    d_model: Annotated[int | None, typer.Option(help="Model size; or --width.")] = None,
    variant: opt.Variant = None,
    bptt: opt.Bptt = None,
    budget: Annotated[float | None, typer.Option(help="FLOPs: adds the tokens.")] = None,
) -> None:
    """Count parameters, FLOPs and cache bytes of the paper's 20-layer stack."""
    if (width is None) == (d_model is None):
        raise ValueError("give one of --width and --d-model")
    size = d_model if width is None else d_model_of_width(width)
    config = paper_config(size, n_recur, variant, bptt)  # type: ignore[arg-type]
    values = _counts(config, budget)
    if output.as_json and not output.as_csv:
        show.print_json({name: value for name, value, _ in values} | {"config": config.to_dict()})
        return
    frame = pd.DataFrame(values, columns=["quantity", "value", "unit"])
    output.rows(frame, f"d_model {size}, r = {n_recur}, variant {config.variant}")


def _counts(config: ModelConfig, budget: float | None) -> list[tuple[str, float, str]]:
    plain = paper_config(config.d_model, 1)
    counts = accounting.counts(config)
    forward = accounting.block_flops_per_token(config) / accounting.block_flops_per_token(plain)
    training = counts["flops_per_token"] / accounting.flops_per_token(plain)
    rows: list[tuple[str, float, str]] = [
        (f"n_params_{section}", int(value), "parameters")
        for section, value in accounting.params_by_section(config).items()
    ]
    rows += [(name, value, _unit(name)) for name, value in counts.items()]
    rows += [
        ("overhead_blocks", forward - 1, "of r = 1, forward, no attention and head"),
        ("overhead_training", training - 1, "of r = 1"),
    ]
    if budget is not None:
        rows.append(
            ("n_tokens", accounting.tokens_at_budget(config, budget, BATCH_TOKENS), "tokens")
        )
    return rows


def _unit(name: str) -> str:
    if name.startswith("n_params"):
        return "parameters"
    return "bytes/token" if "bytes" in name else "FLOPs/token"


@opt.flattened
def fit_command(
    source: opt.OneCase,
    fit: opt.Fit,
    law: opt.Law = "joint",
    n_recur: opt.Recur = None,
    bootstrap: opt.Resamples = None,
    bootstrap_method: opt.Method = "block",
    resample_starts: opt.ResampleStarts = RESAMPLE_STARTS,
    level: opt.Level = 0.95,
    solver: opt.Solver = "batched",
    delta: opt.Delta = 1e-3,
    as_json: opt.Json = False,
) -> None:
    """Fit a law to runs, and with --bootstrap an interval."""
    anchor = "n_recur" in get_form(law).columns  # a law of one architecture needs none
    frame = source.selected(n_recur, anchor)
    fitted = looped.fit(frame, law, solver=solver, delta=delta, **fit.arguments())
    if bootstrap is not None:
        with show.progress("bootstrap", "resamples") as advance:
            drawn = looped.bootstrap(
                frame,
                fitted,
                resamples=bootstrap,
                starts=resample_starts,
                method=bootstrap_method,
                level=level,
                seed=fit.seed,
                progress=advance,
            )
        fitted = fitted.with_interval(drawn)
    if as_json:
        show.print_json(fitted.to_dict())
    else:
        print(fitted.summary(warnings=False))
    group.warn(fitted.all_warnings)


@opt.flattened
def isoflop_command(source: opt.OneCase, output: opt.Output, n_recur: opt.Recur = None) -> None:
    """Find the minimum of each isoFLOP cell by a parabola in log N."""
    minima = looped.isoflop_minima(source.selected(n_recur))
    output.rows(minima, f"IsoFLOP minima of {source.runs}: N* in parameters, L* in nats per token")


@opt.flattened
def optimal_command(
    budget: Annotated[list[float], typer.Option(help="Training FLOPs (repeatable).")],
    n_recur: Annotated[list[int], typer.Option(help="Recurrences r (repeatable).")],
    source: opt.OneCase,
    fit: opt.Fit,
    output: opt.Output,
) -> None:
    """Fit the joint law, and print its compute-optimal sizes of the paper's stacks."""
    frame = source.selected()
    fitted = looped.fit(frame, "joint", **fit.arguments())
    rows = [fitted.law.optimal(budget, looped.stack_of(frame, r)) for r in n_recur]
    title = f"Compute-optimal sizes by the joint law of {source.runs}, {source.case}, "
    output.rows(pd.concat(rows), title + f"split {fit.split}")
    group.warn(fitted.warnings)


@opt.flattened
def claims_command(output: opt.Output) -> None:
    """Compare every number of the paper with the computed one, with a verdict."""
    columns = ["quantity", "published", "ours", "unit", "verdict", "why"]
    output.rows(looped.claims_table(), "Published and computed (ours)", columns)
