"""The commands of `looped`, each a thin layer over one function of the package."""

from typing import Annotated

import pandas as pd
import typer

import looped
from looped import accounting
from looped.cli import group, show
from looped.cli import options as opt
from looped.fitting.bootstrap import RESAMPLE_STARTS
from looped.laws import get_form
from looped.studies.paper import BATCH_TOKENS, d_model_of_width, paper_config

READ = ["case", "n_recur", "budget", "d_model", "n_params", "n_tokens", "val_loss", "source"]
"""Columns of the table of runs that fit on a terminal."""


def runs_command(
    runs: opt.Runs = "paper",
    case: opt.Case = "baseline",
    n_recur: opt.Recur = None,
    budget_min: opt.BudgetMin = None,
    budget_max: opt.BudgetMax = None,
    mapping: opt.Map = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
) -> None:
    """Print the runs of a source as one table (--csv holds every column)."""
    frame = opt.read_runs(runs, case, n_recur, budget_min, budget_max, mapping)
    title = f"{len(frame)} runs of {runs}: losses in nats per token, budgets in FLOPs"
    columns = READ + ["flag"] * bool(frame["flag"].any())
    show.show_rows(frame, title, as_json=as_json, as_csv=as_csv, columns=columns)


def count_command(
    n_recur: Annotated[int, typer.Option(help="Times r that the loop block runs.")] = 1,
    width: Annotated[int | None, typer.Option(help="The paper's width s; or --d-model.")] = None,
    d_model: Annotated[int | None, typer.Option(help="Model size; or --width.")] = None,
    variant: opt.Variant = None,
    bptt: opt.Bptt = None,
    budget: Annotated[float | None, typer.Option(help="FLOPs: adds the tokens.")] = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
) -> None:
    """Count parameters, FLOPs and cache bytes of the paper's 20-layer stack."""
    if (width is None) == (d_model is None):
        raise ValueError("give one of --width and --d-model")
    d_model = d_model_of_width(width) if d_model is None else d_model
    config = paper_config(d_model, n_recur, variant, bptt)
    values = _counts(config, budget)
    if as_json and not as_csv:
        show.print_json({name: value for name, value, _ in values} | {"config": config.to_dict()})
        return
    frame = pd.DataFrame(values, columns=["quantity", "value", "unit"])
    title = f"d_model {d_model}, r = {n_recur}, variant {config.variant}"
    show.show_rows(frame, title, as_json=as_json, as_csv=as_csv)


def _counts(config, budget) -> list[tuple[str, float, str]]:
    plain = paper_config(config.d_model, 1)
    counts = accounting.counts(config)
    forward = accounting.block_flops_per_token(config) / accounting.block_flops_per_token(plain)
    training = counts["flops_per_token"] / accounting.flops_per_token(plain)
    rows = [
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


def _unit(name) -> str:
    if name.startswith("n_params"):
        return "parameters"
    return "bytes/token" if "bytes" in name else "FLOPs/token"


def fit_command(
    runs: opt.Runs = "paper",
    case: opt.Case = "baseline",
    law: opt.Law = "joint",
    split: opt.Split = "stated",
    n_recur: opt.Recur = None,
    budget_min: opt.BudgetMin = None,
    budget_max: opt.BudgetMax = None,
    mapping: opt.Map = None,
    starts: opt.Starts = 500,
    fix: opt.Fix = None,
    bootstrap: opt.Resamples = None,
    bootstrap_method: opt.Method = "block",
    resample_starts: opt.ResampleStarts = RESAMPLE_STARTS,
    level: opt.Level = 0.95,
    solver: opt.Solver = "batched",
    seed: opt.Seed = 0,
    delta: opt.Delta = 1e-3,
    as_json: opt.Json = False,
) -> None:
    """Fit a law to runs, and with --bootstrap an interval."""
    anchor = "n_recur" in get_form(law).columns  # a law of one architecture needs none
    frame = opt.read_runs(runs, case, n_recur, budget_min, budget_max, mapping, anchor)
    fitted = looped.fit(
        frame,
        law,
        split,
        starts=starts,
        seed=seed,
        delta=delta,
        fix=opt.held(fix),
        solver=solver,
    )
    if bootstrap is not None:
        fitted = fitted.with_interval(
            _bootstrap(
                frame,
                fitted,
                resamples=bootstrap,
                starts=resample_starts,
                method=bootstrap_method,
                level=level,
            )
        )
    if as_json:
        show.print_json(fitted.to_dict())
    else:
        show.print_fit(fitted)
    group.warn(fitted.warnings + (fitted.interval.warnings if fitted.interval else ()))


def _bootstrap(frame, fitted, *, resamples, **settings):
    with show.progress("bootstrap", "resamples") as advance:
        return looped.bootstrap(
            frame, fitted, resamples=resamples, seed=fitted.seed, progress=advance, **settings
        )


def isoflop_command(
    runs: opt.Runs = "paper",
    case: opt.Case = "baseline",
    n_recur: opt.Recur = None,
    budget_min: opt.BudgetMin = None,
    budget_max: opt.BudgetMax = None,
    mapping: opt.Map = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
) -> None:
    """Find the minimum of each isoFLOP cell by a parabola in log N."""
    frame = opt.read_runs(runs, case, n_recur, budget_min, budget_max, mapping)
    title = f"IsoFLOP minima of {runs}: N* in parameters, L* in nats per token"
    show.show_rows(looped.isoflop_minima(frame), title, as_json=as_json, as_csv=as_csv)


def optimal_command(
    budget: Annotated[list[float], typer.Option(help="Training FLOPs (repeatable).")],
    n_recur: Annotated[list[int], typer.Option(help="Recurrences r (repeatable).")],
    runs: opt.Runs = "paper",
    case: opt.Case = "baseline",
    split: opt.Split = "stated",
    budget_min: opt.BudgetMin = None,
    budget_max: opt.BudgetMax = None,
    mapping: opt.Map = None,
    starts: opt.Starts = 500,
    fix: opt.Fix = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
) -> None:
    """Fit the joint law, and print its compute-optimal sizes of the paper's stacks."""
    frame = opt.read_runs(runs, case, None, budget_min, budget_max, mapping)
    fitted = looped.fit(frame, "joint", split, starts=starts, seed=seed, fix=opt.held(fix))
    rows = [fitted.law.optimal(budget, looped.stack_of(frame, r)) for r in n_recur]
    title = f"Compute-optimal sizes by the joint law of {runs}, {case}, split {split}"
    show.show_rows(pd.concat(rows), title, as_json=as_json, as_csv=as_csv)
    group.warn(fitted.warnings)


def claims_command(as_json: opt.Json = False, as_csv: opt.Csv = False) -> None:
    """Compare every number of the paper with ours, with a verdict."""
    from looped.claims import claims_table

    columns = ["quantity", "published", "ours", "unit", "verdict", "why"]
    title = "Published and ours"
    show.show_rows(claims_table(), title, as_json=as_json, as_csv=as_csv, columns=columns)
