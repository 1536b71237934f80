"""`looped delta-phi` and `looped plan`: the effect of a change of the loop, and its measurement."""

from typing import Annotated

import pandas as pd
import typer

import looped
from looped.cli import group, show
from looped.cli import options as opt
from looped.fitting.bootstrap import RESAMPLE_STARTS

Baseline = Annotated[str, typer.Option(help="Case to compare with; it has the r = 1 runs.")]
Variant = Annotated[str, typer.Option(help="Case with the change.")]
Budgets = Annotated[
    list[float] | None, typer.Option("--budget", help="FLOPs (repeatable); default: all shared.")
]
Budget = Annotated[list[float], typer.Option("--budget", help="FLOPs to train on (repeatable).")]
Like = Annotated[
    str | None, typer.Option(help="Case whose noise the planned variant has; default: --case.")
]
Looped = Annotated[list[int], typer.Option("--n-recur", help="Looped r to train (repeatable).")]


@opt.flattened
def delta_phi_command(
    variant: Variant,
    source: opt.Source,
    baseline: Baseline = "baseline",
    budget: Budgets = None,
    split: opt.Split = "stated",
    n_recur: opt.Recur = None,
    bootstrap: Annotated[int, typer.Option(help="Paired resamples.")] = 2000,
    level: opt.Level = 0.95,
    starts: opt.Starts = 200,
    resample_starts: opt.ResampleStarts = RESAMPLE_STARTS,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Measure the shift of φ between two cases, and the parts of the loss change."""
    if variant == baseline:
        raise ValueError(f"--variant and --baseline are both {variant!r}; name two cases")
    cases = [source.load(case, n_recur and [1, *n_recur]) for case in (baseline, variant)]
    with show.progress("paired bootstrap", "resamples") as advance:
        shift = looped.delta_phi(
            *cases,
            budgets=budget or None,
            split=split,
            resamples=bootstrap,
            level=level,
            starts=starts,
            resample_starts=resample_starts,
            seed=seed,
            progress=advance,
        )
    if as_json:
        show.print_json(shift.to_dict())
    else:
        print(shift.summary(warnings=False))
    group.warn(shift.warnings)


@opt.flattened
def plan_command(
    budget: Budget,
    n_recur: Looped,
    source: opt.Source,
    output: opt.Output,
    target_se: Annotated[float, typer.Option(help="Standard error of Δφ to reach.")] = 0.03,
    case: opt.Case = "baseline",
    budget_max: opt.BudgetMax = None,
    like: Like = None,
    split: opt.Split = "stated",
    simulations: Annotated[int, typer.Option(help="Simulated studies of each design.")] = 400,
    seed: opt.Seed = 0,
) -> None:
    """Plan a study of Δφ: the cheapest runs that reach a target standard error (simulated)."""
    table = source.load(case, budget_max=budget_max)
    other = source.load(like, budget_max=budget_max) if like else None
    with show.progress("designs") as advance:
        planned = looped.plan(
            table,
            budget,
            n_recur,
            target_se=target_se,
            like=other,
            split=split,
            simulations=simulations,
            seed=seed,
            progress=advance,
        )
    chosen = planned.runs
    if output.as_json and not output.as_csv:
        show.print_json(
            {
                "designs": show.records(planned.designs),
                "own": planned.own,
                "noise": {role: vars(each) for role, each in planned.noise.items()},
                "phi": planned.fit.params["phi"],
                "runs": None if chosen is None else show.records(chosen),
            }
        )
    elif output.as_csv:
        output.rows(_chosen(planned), "")
    else:
        _print_plan(planned)
    group.warn(planned.fit.warnings)


def _chosen(planned: looped.Plan) -> pd.DataFrame:
    """The runs to train. Raises ValueError if no design reaches the target."""
    if planned.runs is None:
        raise ValueError(_missed(planned))
    return planned.runs


def _missed(planned: looped.Plan) -> str:
    least = planned.designs["se"].min()
    return (
        f"no design reaches a standard error of {planned.target_se:g}; the best reaches "
        f"{least:.3f}: add budgets or recurrences"
    )


def _print_plan(planned: looped.Plan) -> None:
    title = "Designs, simulated: widths a cell at most, FLOPs of all runs and of the variant's"
    show.print_table(planned.designs, title)
    own = planned.own
    print(
        f"A variant at the baseline's settings: {own['n_runs_variant']} runs, "
        f"{own['flops_variant']:.2g} FLOPs, standard error {own['se']:.3f}."
    )
    noise = "; ".join(
        f"{role} {each.cell:.4f} nats a cell and {each.run:.4f} a run"
        for role, each in planned.noise.items()
    )
    print(
        f"Law: φ = {planned.fit.params['phi']:.3f} by split {planned.fit.split}, fitted to "
        f"{planned.fit.n_runs} {', '.join(planned.fit.sources)} runs. Noise: {noise}."
    )
    if planned.runs is None:
        group.warn([_missed(planned)])
        return
    key = ["budget", "n_recur", "role"]
    cells = planned.runs.groupby(key)["d_model"].agg(lambda d: " ".join(map(str, d))).reset_index()
    show.print_table(
        cells,
        f"The cheapest with a standard error of at most {planned.target_se:g} (--csv: its runs)",
    )
