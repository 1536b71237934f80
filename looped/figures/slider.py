"""The joint law at a φ that the reader sets; the browser computes it."""

import altair as alt
import numpy as np
import pandas as pd

from looped.figures import parts, theme
from looped.fitting.result import FitResult
from looped.splits import split_params

LAW_COLUMNS = ["n_recur", "n_params_once", "n_params_rec", "n_tokens"]
COLUMNS = ["budget", "n_params", *LAW_COLUMNS]


def phi_slider(runs: pd.DataFrame, fit: FitResult) -> alt.LayerChart:
    """Runs of one budget, and the curves of the joint law at the φ of a slider.

    The other parameters of the law keep their fitted values: at the fitted φ the curves go through
    the runs, at 0 and 1 they miss them. The error is over all runs, not only those of one budget.
    Raises ValueError for a law without φ.

    Args:
        runs: the fitted runs.
        fit: of the joint law.
    """
    if "phi" not in fit.params or fit.split is None:
        raise ValueError(f"figure phi_slider: law {fit.law.name!r} has no φ; pass a fit of 'joint'")
    parts.require(runs, [*COLUMNS, "val_loss"], "phi_slider")
    counted = split_params(runs, fit.split)
    points = parts.drawable(runs).assign(**{name: counted[name] for name in COLUMNS})
    source = [parts.source_note(runs), f"split {fit.split}"]
    notes = [source, [f"fitted φ = {fit.params['phi']:.3f}", parts.flag_note(points)]]
    data = points.assign(predicted=fit.predict(runs))
    return theme.finish(_layers(points, fit), "phi-slider", _description(runs, fit), data, notes)


def predicted_loss(fit: FitResult, phi: str) -> str:
    """The joint law as a Vega expression of a row; `phi` is a number or a parameter's name."""
    p = {name: repr(float(value)) for name, value in fit.params.items()}
    effective = f"datum.n_params_once + pow(datum.n_recur, {phi}) * datum.n_params_rec"
    return (
        f"{p['E']} + {p['A']} * pow({effective}, -{p['alpha']})"
        f" + {p['B']} * pow(datum.n_tokens, -{p['beta']})"
    )


def _layers(points: pd.DataFrame, fit: FitResult) -> alt.LayerChart:
    phi, budget = _controls(points, fit)
    chosen = f"datum.budget == {budget.name}"
    x = theme.axis(alt.X, "n_params", log=True)
    fields = ("val_loss", "predicted", "at_0")
    y, predicted, at_0 = (theme.axis(alt.Y, field, like="val_loss") for field in fields)
    lines = parts.recur_lines(points["n_recur"])
    of_budget = alt.Chart(points[COLUMNS]).transform_filter(chosen)
    curves = of_budget.transform_calculate(predicted=predicted_loss(fit, phi.name))
    curves = curves.mark_line(interpolate="monotone").encode(x, predicted, **lines)
    # Invisible marks fix the loss axis to the range for φ from 0 to 1.
    ends = {"at_0": predicted_loss(fit, "0"), "at_1": predicted_loss(fit, "1")}
    extent = of_budget.transform_calculate(**ends).mark_rule(opacity=0).encode(x, at_0, y2="at_1")
    circles = parts.run_points(points, x, y, lines["color"]).transform_filter(chosen)
    return alt.layer(extent, curves, circles, _error(points, fit)).add_params(phi, budget)


def _controls(points: pd.DataFrame, fit: FitResult) -> tuple[alt.Parameter, alt.Parameter]:
    budgets = sorted(points["budget"].unique().tolist())
    start = round(fit.params["phi"], 4)  # the page shows all digits of the value
    slider = alt.binding_range(min=min(0, start), max=max(1, start), step=0.01, name="φ ")
    labels = [parts.flops(budget) for budget in budgets]
    menu = alt.binding_select(options=budgets, labels=labels, name="Budget (FLOPs) ")
    shown = alt.param(name="shown_budget", value=budgets[len(budgets) // 2], bind=menu)
    return alt.param(name="phi", value=start, bind=slider), shown


def _error(points: pd.DataFrame, fit: FitResult) -> alt.Chart:
    """Text: root mean square error over all runs at the φ of the slider."""
    square = f"pow(datum.val_loss - ({predicted_loss(fit, 'phi')}), 2)"
    text = "'φ = ' + format(phi, '.2f') + ', RMSE ' + format(sqrt(datum.square), '.4f') + ' nats'"
    chart = alt.Chart(points[[*LAW_COLUMNS, "val_loss"]]).transform_calculate(square=square)
    chart = chart.transform_aggregate(square="mean(square)").transform_calculate(text=text)
    chart = chart.mark_text(align="right", baseline="top", fontSize=14)
    return chart.encode(x=alt.value("width"), y=alt.value(4), text="text:N")


def _description(runs: pd.DataFrame, fit: FitResult) -> str:
    phis = dict.fromkeys((0.0, fit.params["phi"], 1.0))
    squares = [np.mean((runs["val_loss"] - fit.at(phi=phi).loss(runs)) ** 2) for phi in phis]
    rmse = [f"{np.sqrt(s):.4f} at φ = {phi:.3g}" for s, phi in zip(squares, phis, strict=True)]
    return (
        f"Loss against unique parameters for one budget of {parts.runs_prose(runs)}, with curves "
        f"of the joint law, split {fit.split}, for r = {parts.listed(parts.recurrences(runs))}; a "
        f"slider sets φ. The root mean square error over all runs is {parts.listed(rmse)} nats."
    )
