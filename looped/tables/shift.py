"""Tables of shifts of φ: with intervals, by part, by recurrence, by scale."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from looped.diagnose.delta import DeltaPhi, delta_phi
from looped.diagnose.plan import Plan
from looped.fitting.fit import fit
from looped.registry.read import load_runs
from looped.registry.stacks import runs_at_width, stack_of

MIN_WIDTHS = 3  # that a parabola needs


def shifts(found: Mapping[str, DeltaPhi], label: str = "runs") -> pd.DataFrame:
    """Shifts with their intervals, one row each.

    Args:
        found: label -> shift.
        label: heading of the labels.

    Returns:
        label, split, phi_baseline, phi_variant, delta_phi, delta_phi_low, delta_phi_high,
        edge_error, p_sign.
    """
    return pd.DataFrame(
        [
            {
                label: name,
                "split": shift.split,
                "phi_baseline": shift.baseline.params["phi"],
                "phi_variant": shift.variant.params["phi"],
                **_interval(shift),
            }
            for name, shift in found.items()
        ]
    )


def _interval(shift: DeltaPhi) -> dict[str, float]:
    low, high = shift.interval
    ends = {"delta_phi_low": low, "delta_phi_high": high}
    certainty = {"edge_error": shift.edge_error, "p_sign": shift.p_sign}
    return {"delta_phi": shift.delta_phi, **ends, **certainty}


def at_scales(found: Mapping[str, DeltaPhi]) -> pd.DataFrame:
    """Shifts of one change on several sources of runs, with the parts of the loss change.

    Returns:
        runs (the key), budgets, delta_phi, delta_phi_low, delta_phi_high, edge_error, p_sign,
        measured, tokens, capacity, rest, misfit, verdict.
    """
    return pd.DataFrame(
        [
            {"runs": name, "budgets": len(shift.budgets), **_interval(shift)}
            | {**shift.parts["mean"], "verdict": shift.kind}
            for name, shift in found.items()
        ]
    )


def parts_by_recurrence(shift: DeltaPhi) -> pd.DataFrame:
    """Change of the loss at the baseline's optimal width, mean over budgets, by n_recur."""
    cells = shift.decomposition.drop(columns=["budget", "d_model"])
    return cells.groupby("n_recur").mean().reset_index()


def widths_by_recurrence(shift: DeltaPhi) -> pd.DataFrame:
    """The variant's isoFLOP minimum over the baseline's, mean over budgets, by n_recur."""
    return shift.width_shift.drop(columns="budget").groupby("n_recur").mean().reset_index()


def warnings(shift: DeltaPhi) -> pd.DataFrame:
    """The warnings of a shift, one a row."""
    return pd.DataFrame({"warning": shift.warnings}, dtype=object)


def left_out(
    baseline: pd.DataFrame, variant: pd.DataFrame, split: str, *, starts: int, seed: int = 0
) -> pd.DataFrame:
    """φ of both cases fitted without the runs of one r: left out, phi of both, delta_phi."""
    rows = []
    for r in sorted(variant["n_recur"].unique()):
        before, after = (
            fit(runs[runs["n_recur"] != r], split=split, starts=starts, seed=seed).params["phi"]
            for runs in (baseline, variant)
        )
        row = {"left out": f"r = {r}", "phi_baseline": before, "phi_variant": after}
        rows.append(row | {"delta_phi": after - before})
    return pd.DataFrame(rows)


def repeat_shift(source: str, case: str, **options: Any) -> dict[str, DeltaPhi]:
    """The shift of a case on another source of runs: {"measured here": shift}, or nothing.

    Only budgets with three widths or more at every r take part; fewer than two of them give
    nothing.

    Args:
        source: of runs, as in `looped.load_runs`.
        case: name of the case.
        options: of `looped.delta_phi`.
    """
    runs = load_runs(source, case=None)
    variant = runs[runs["case"] == case]
    widths = variant.pivot_table("d_model", "budget", "n_recur", aggfunc="nunique").fillna(0)
    whole = widths.index[(widths >= MIN_WIDTHS).all(axis=1)]
    if len(whole) < 2:
        return {}
    return {"measured here": delta_phi(load_runs(source), variant, budgets=whole, **options)}


def width_predictions(
    baseline: pd.DataFrame, cases: Mapping[str, tuple[pd.DataFrame, DeltaPhi]]
) -> pd.DataFrame:
    """Compute-optimal width of each case over the baseline's, by five methods, mean over budgets.

    Args:
        baseline: its runs.
        cases: label -> runs and shift.

    Returns:
        case, n_recur, "φ, first order" (Δ log d* = -α / (2 α + γ β) Δ log κ), "φ alone" (exact,
        other parameters of the law held), "whole law", "isoFLOP" and "isoFLOP, N" (minima of the
        parabolas: width, and parameters).
    """
    rows = []
    for label, (runs, shift) in cases.items():
        measured = widths_by_recurrence(shift).set_index("n_recur")
        for r in shift.n_recur:
            row = {"case": label, "n_recur": r, **_predicted_widths(baseline, runs, shift, r)}
            minima = {
                "isoFLOP": measured.loc[r, "d_model"],
                "isoFLOP, N": measured.loc[r, "n_params"],
            }
            rows.append(row | minima)
    return pd.DataFrame(rows)


def _predicted_widths(
    baseline: pd.DataFrame, runs: pd.DataFrame, shift: DeltaPhi, r: int
) -> dict[str, float]:
    law, budgets = shift.baseline.law, np.array(shift.budgets)
    moved = law.at(phi=shift.variant.params["phi"])
    stack = stack_of(baseline, r)
    before, alone, whole = (
        each.optimal(budgets, each_stack)["d_model"]
        for each, each_stack in (
            (law, stack),
            (moved, stack),
            (shift.variant.law, stack_of(runs, r)),
        )
    )
    at, near = (runs_at_width(stack, d, budget=budgets) for d in (before, 1.01 * before))
    gamma = np.log(near["flops_per_token"] / at["flops_per_token"]) / np.log(1.01)
    alpha, beta = law.params["alpha"], law.params["beta"]
    log_kappa = np.log(moved.n_eff(at) / law.n_eff(at))
    return {
        "φ, first order": float(np.exp(-alpha / (2 * alpha + gamma * beta) * log_kappa).mean()),
        "φ alone": float((alone / before).mean()),
        "whole law": float((whole / before).mean()),
    }


TEMPLATE = ["case", "n_recur", "d_model", "budget", "n_params_once", "n_params_rec", "n_tokens"]
TEMPLATE += ["val_loss", "source"]


def template(runs: pd.DataFrame, cases: list[str]) -> pd.DataFrame:
    """One run of each case and r, with the columns that a comparison of two cases needs."""
    rows = runs[runs["case"].isin(cases)].groupby(["case", "n_recur"]).head(1)
    return rows[TEMPLATE].sort_values(["case", "n_recur"])


def plan_designs(planned: Plan) -> pd.DataFrame:
    """Designs of a study under readable names: budgets, widths, runs, FLOPs, standard error."""
    columns = {
        "n_budgets": "budgets",
        "n_widths": "widths at most",
        "n_runs": "runs",
        "flops": "FLOPs",
        "flops_variant": "of the variant",
        "se": "standard error",
        "interval_width": "95 % width",
    }
    return planned.designs.rename(columns=columns)[list(columns.values())]


def verdict_and_warnings(found: Mapping[str, DeltaPhi]) -> pd.DataFrame:
    """Verdict and warnings of shifts, one a row."""
    texts = [text for shift in found.values() for text in (shift.verdict, *shift.warnings)]
    return pd.DataFrame({"verdict and warnings": texts}, dtype=object)


def end_in_words(shift: DeltaPhi) -> str:
    """The lower end of a shift's interval, compared with 0, in words."""
    if shift.borderline:
        return "so near to 0 that another seed could change the verdict"
    return "above 0" if shift.interval[0] > 0 else "below 0"


def shift_numbers(shift: DeltaPhi, prefix: str = "") -> dict[str, Any]:
    """Numbers of a shift for prose; names begin with `prefix`.

    Returns:
        split, verdict, kind, source, n_budgets, n_own (looped runs of the variant), delta, low,
        high, low_error (Monte Carlo error of the lower end), low_end (compared with 0, in words),
        wrong (share of resamples of the other sign); where cells could be compared also measured,
        tokens, capacity, rest, misfit (mean change of the loss, nats per token), measured_R by r,
        and of the move of the optimum wider_least, wider_most, cost_least, cost_most, gain.
    """
    low, high = shift.interval
    numbers: dict[str, Any] = {
        "split": shift.split,
        "verdict": shift.verdict,
        "kind": shift.kind,
        "source": ", ".join(shift.variant.sources),
        "n_budgets": len(shift.budgets),
        "n_own": int((shift.runs[1]["n_recur"] > 1).sum()),
        **{"delta": shift.delta_phi, "low": low, "high": high, "wrong": 1 - shift.p_sign},
        **{"low_error": shift.edge_errors[0], "low_end": end_in_words(shift)},
    }
    if not shift.decomposition.empty:
        measured = parts_by_recurrence(shift).set_index("n_recur")["measured"]
        widths = shift.width_shift.groupby("n_recur").mean()
        width, cost = widths["d_model"], widths["inference_flops_per_token"]
        numbers |= shift.parts["mean"].to_dict()
        numbers |= {f"measured_{r}": change for r, change in measured.items()}
        numbers |= {"wider_least": width.min(), "wider_most": width.max()}
        numbers |= {"cost_least": cost.min(), "cost_most": cost.max(), "gain": widths["gain"].max()}
    return {prefix + name: value for name, value in numbers.items()}


def width_numbers(widths: pd.DataFrame, case: str, prefix: str) -> dict[str, float]:
    """Smallest and largest move of a case in `width_predictions`, minus 1, for prose.

    Returns:
        PREFIX_alone_*, PREFIX_runs_*, PREFIX_params_*, each with least and most: by φ alone,
        between isoFLOP minima in width, and in parameters.
    """
    rows = widths[widths["case"] == case]
    names = {"alone": "φ alone", "runs": "isoFLOP", "params": "isoFLOP, N"}
    ends = {"least": "min", "most": "max"}
    return {
        f"{prefix}_{name}_{end}": float(rows[column].agg(how)) - 1
        for name, column in names.items()
        for end, how in ends.items()
    }


def plan_numbers(planned: Mapping[str, Plan]) -> dict[str, float]:
    """Of the variant trained at the baseline's settings, in each plan: se, cell noise, runs, FLOPs.

    Returns:
        NAME_se, NAME_cell (nats per token), NAME_runs and NAME_flops for each name of `planned`.
    """
    return {
        f"{name}_{key}": value
        for name, each in planned.items()
        for key, value in {
            "se": each.own["se"],
            "cell": each.noise["variant"].cell,
            "runs": each.own["n_runs_variant"],
            "flops": each.own["flops_variant"],
        }.items()
    }
