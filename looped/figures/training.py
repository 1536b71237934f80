"""Training: loss against tokens, and validation loss of a sweep of learning rates."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme

FIELDS = ["n_recur", "lr", "val_loss"]


def rate_sweep(sweep: pd.DataFrame) -> alt.LayerChart | alt.ConcatChart:
    """Validation loss against the MuonH rate, one line per r with a ring at its best rate.

    Args:
        sweep: one row per run: n_recur, lr, val_loss, optionally panel (title of the panel).
    """
    parts.require(sweep, FIELDS, "rate_sweep")
    table = sweep if "panel" in sweep else sweep.assign(panel="")
    names = list(table["panel"].unique())
    charts = [_panel(table[table["panel"] == name]) for name in names]
    chart = charts[0] if len(charts) == 1 else parts.panels(charts, names)
    return theme.finish(chart, "rate-sweep", _sweep_description(table), table)


def _panel(table: pd.DataFrame) -> alt.LayerChart:
    x = theme.axis(alt.X, "lr", scale=alt.Scale(type="log", nice=False, padding=16))
    color = theme.recur_color(table["n_recur"])
    details = parts.tooltips(table, [*FIELDS, "d_model", "n_tokens"])
    base = alt.Chart(table).encode(x, theme.axis(alt.Y, "val_loss"), color, tooltip=details)
    best = table.loc[table.groupby("n_recur")["val_loss"].idxmin()]
    lines = base.mark_line().encode(strokeDash=theme.recur_dash(table["n_recur"]))
    rings = base.properties(data=best).mark_point(size=160, filled=False, strokeWidth=2)
    return alt.layer(lines, base.mark_point(), rings)


def _sweep_description(table: pd.DataFrame) -> theme.Sentences:
    yield "Validation loss against the MuonH learning rate."
    for (panel, n_recur), rows in table.groupby(["panel", "n_recur"], sort=False):
        best = rows.loc[rows["val_loss"].idxmin()]
        where = f"{panel}, " if panel else ""
        yield f"{where}r = {n_recur}: lowest, {best.val_loss:.3f}, at {best.lr:g}."


def training_curves(metrics: pd.DataFrame) -> alt.LayerChart:
    """Training loss against tokens, one line per run.

    Args:
        metrics: one row per (run, step): n_recur, tokens, loss (nats per token; smoothed or not),
            optionally val_loss, for a point at the end of the run.
    """
    parts.require(metrics, ["n_recur", "tokens", "loss"], "training_curves")
    color, dash = theme.recur_color(metrics["n_recur"]), theme.recur_dash(metrics["n_recur"])
    x = theme.axis(alt.X, "tokens", like="n_tokens", scale=alt.Scale(zero=True))
    y = theme.axis(alt.Y, "loss", like="train_loss")
    layers = [alt.Chart(metrics).mark_line().encode(x, y, color, dash)]
    ends = metrics.loc[metrics.groupby("n_recur")["tokens"].idxmax()]
    if "val_loss" in metrics:
        details = parts.tooltips(ends, ["n_recur", "val_loss", "val_loss_se"])
        points = alt.Chart(ends).mark_point(size=90)
        layers.append(points.encode(x, alt.Y("val_loss:Q"), color, tooltip=details))
    sentences = _curves_description(metrics, ends)
    return theme.finish(alt.layer(*layers), "training-curves", sentences, metrics)


def _curves_description(metrics: pd.DataFrame, ends: pd.DataFrame) -> theme.Sentences:
    yield "Training loss against tokens."
    for row in ends.itertuples():
        first = metrics[metrics["n_recur"] == row.n_recur]["loss"].iloc[0]
        yield f"r = {row.n_recur}: from {first:.2f} to {row.loss:.2f} nats per token."
