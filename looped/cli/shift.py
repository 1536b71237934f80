"""`looped delta-phi` and `looped plan`: what a change of the loop does, and how to measure it."""

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
    str | None, typer.Option(help="Case whose noise the variant is taken to have; default: --case.")
]
Looped = Annotated[list[int], typer.Option("--n-recur", help="Looped r to train (repeatable).")]


def delta_phi_command(
    variant: Variant,
    runs: opt.Runs = "paper",
    baseline: Baseline = "baseline",
    budget: Budgets = None,
    split: opt.Split = "stated",
    n_recur: opt.Recur = None,
    mapping: opt.Map = None,
    bootstrap: Annotated[int, typer.Option(help="Paired resamples.")] = 2000,
    level: opt.Level = 0.95,
    starts: opt.Starts = 200,
    resample_starts: opt.ResampleStarts = RESAMPLE_STARTS,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Measure the shift of φ between two cases, and what moves the loss at equal FLOPs."""
    if variant == baseline:
        raise ValueError(f"--variant and --baseline are both {variant!r}; name two cases")
    r = n_recur and [1, *n_recur]
    cases = [opt.read_runs(runs, case, r, None, None, mapping) for case in (baseline, variant)]
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
        _print_shift(shift)
    group.warn(shift.warnings)


def _print_shift(shift) -> None:
    budgets = ", ".join(f"{budget:.3g}" for budget in shift.budgets)
    source = ", ".join(shift.variant.sources)
    print(shift.verdict)
    print(
        f"{shift.cases[1]} against {shift.cases[0]}: {source} runs, split {shift.variant.split}, "
        f"r = {', '.join(map(str, shift.n_recur))} and 1 at {budgets} FLOPs; paired "
        f"{shift.variant.interval.method} bootstrap of {shift.variant.interval.n_units} cells, "
        f"{shift.variant.interval.resamples} resamples, seed {shift.variant.seed}"
    )
    if shift.decomposition.empty:
        return
    means = shift.decomposition.drop(columns=["budget", "d_model"]).groupby("n_recur").mean()
    show.print_table(means.reset_index(), "Change of the loss, nats per token, mean over budgets")
    ratios = shift.width_shift.drop(columns="budget").groupby("n_recur").mean()
    title = "Optimum of the variant over that of the baseline (gain: nats per token)"
    show.print_table(ratios.reset_index(), title)


def plan_command(
    budget: Budget,
    n_recur: Looped,
    target_se: Annotated[float, typer.Option(help="Standard error of Δφ to reach.")] = 0.03,
    runs: opt.Runs = "paper",
    case: opt.Case = "baseline",
    budget_max: opt.BudgetMax = None,
    like: Like = None,
    split: opt.Split = "stated",
    simulations: Annotated[int, typer.Option(help="Simulated studies of each design.")] = 400,
    seed: opt.Seed = 0,
    mapping: opt.Map = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
) -> None:
    """Plan a measurement of Δφ: the cheapest runs that tell it to a standard error (simulated)."""
    table, other = (
        name and opt.read_runs(runs, name, None, None, budget_max, mapping) for name in (case, like)
    )
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
    if as_json and not as_csv:
        show.print_json(
            {
                "designs": show.records(planned.designs),
                "own": planned.own,
                "noise": {role: vars(each) for role, each in planned.noise.items()},
                "phi": planned.fit.params["phi"],
                "runs": None if chosen is None else show.records(chosen),
            }
        )
    elif as_csv:
        show.show_rows(_chosen(planned), "", as_json=as_json, as_csv=True)
    else:
        _print_plan(planned)
    group.warn(planned.fit.warnings)


def _chosen(planned) -> pd.DataFrame:
    """The runs to train. Raises ValueError if no design is sure enough."""
    if planned.runs is None:
        raise ValueError(_missed(planned))
    return planned.runs


def _missed(planned) -> str:
    least = planned.designs["se"].min()
    return (
        f"no design reaches a standard error of {planned.target_se:g}; the surest has {least:.3f}: "
        "add budgets, or further recurrences"
    )


def _print_plan(planned) -> None:
    title = "Designs, simulated: widths a cell at most, FLOPs of all runs and of the variant's"
    show.print_table(planned.designs, title)
    own = planned.own
    print(
        f"The same for a variant on the baseline's own settings: {own['n_runs_variant']} runs, "
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
