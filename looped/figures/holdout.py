"""Extrapolation of a law: residuals at held-out budgets, and predicted beside reported losses."""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from looped.figures import parts, theme
from looped.fitting.holdout import HoldOut
from looped.registry.cells import CELL

ENDS = ["predicted", "low", "high"]
ROW_HEIGHT = 32  # pixels per fit
REPORTED_COLOR = theme.RECUR_COLORS[4]


def held_out_residuals(held: list[HoldOut]) -> alt.ConcatChart:
    """Actual minus predicted loss by budget, one panel per hold-out; its budgets are shaded.

    Points are runs; lines connect the means of the (budget, r) cells. Raises ValueError without any
    hold-out.

    Args:
        held: hold-outs of the same runs.
    """
    parts.require_any(held, "held_out_residuals", "hold-out", "[looped.hold_out(...)]")
    tables = []
    for out in held:
        parts.require(out.runs, [*CELL, "val_loss", "predicted", "residual"], "held_out_residuals")
        added = {"label": out.label, "held_out": out.runs["held_out"]}
        tables.append(parts.drawable(out.runs).assign(**added))
    table = pd.concat(tables, ignore_index=True)
    y = parts.symmetric_axis(table, "residual")
    charts = [_panel(out, table[table["label"] == out.label], y) for out in held]
    chart = parts.panels(charts, [out.label for out in held])
    split = parts.known("split {}", [held[0].fit.split])
    source = [parts.source_note(held[0].runs), split, parts.flag_note(table)]
    notes = [source, ["point: run", "line: mean of a cell", "shaded: not fitted"]]
    return theme.finish(chart, "held-out-residuals", _description(held), table, notes)


def prediction_intervals(predictions: pd.DataFrame) -> alt.ConcatChart:
    """Predicted losses with intervals, one row per fit; vertical lines are the reported values.

    Args:
        predictions: fit, quantity (one panel each), predicted, low, high (nats per token), and
            reported (may be missing).
    """
    columns = ["fit", "quantity", *ENDS, "reported"]
    parts.require(predictions, columns, "prediction_intervals", may_miss=("reported",))
    table = predictions[columns]
    names = table["quantity"].unique()
    panels = [_quantity(table[table["quantity"] == name], name) for name in names]
    notes = [["bar: interval", "line: reported" if table["reported"].notna().any() else ""]]
    chart = alt.concat(*panels, columns=1)
    return theme.finish(chart, "prediction-intervals", _predictions_prose(table), table, notes)


def _panel(held: HoldOut, rows: pd.DataFrame, y: alt.Y) -> alt.LayerChart:
    budgets = np.sort(rows["budget"].unique())
    domain = [budgets[0] / 1.4, budgets[-1] * 1.4]
    scale = alt.Scale(type="log", domain=domain, nice=False)
    x = theme.axis(alt.X, "budget", log=True, scale=scale)
    means = rows.groupby(CELL, as_index=False)["residual"].mean()
    lines = alt.Chart(means).mark_line().encode(x, y, **parts.recur_lines(rows["n_recur"]))
    color = theme.recur_color(rows["n_recur"], legend=None)
    shade = _shade(held.budgets, budgets, domain, x)
    return alt.layer(shade, parts.zero_rule(y=y), lines, parts.run_points(rows, x, y, color))


def _shade(held: Sequence[float], budgets: np.ndarray, domain: list[float], x: alt.X) -> alt.Chart:
    """A band around each held-out budget, half-way to the next budgets."""
    edges = np.array([domain[0], *np.sqrt(budgets[1:] * budgets[:-1]), domain[1]])
    out = np.isin(budgets, np.array(held))
    bands = pd.DataFrame({"budget": edges[:-1][out], "end": edges[1:][out]})
    return alt.Chart(bands).mark_rect(opacity=0.1, color=theme.INK).encode(x, x2="end")


def _quantity(rows: pd.DataFrame, name: str) -> alt.LayerChart:
    low, high = (rows[[*ENDS, "reported"]].agg(end).agg(end) for end in ("min", "max"))
    pad = 0.05 * (high - low)
    scale = alt.Scale(domain=[low - pad, high + pad], nice=True)
    title = f"{name} (nats/token)"
    predicted, left, reported = (
        theme.axis(alt.X, end, title=title, scale=scale) for end in ("predicted", "low", "reported")
    )
    y = alt.Y("fit:N", sort=list(rows["fit"]), title=None)
    details = [alt.Tooltip(f"{end}:Q", title=end.capitalize(), format=".4f") for end in ENDS]
    details.insert(0, alt.Tooltip("fit:N", title="Fit"))
    known = rows.dropna(subset=["reported"]).drop_duplicates("reported")
    lines = alt.Chart(known).mark_rule(color=REPORTED_COLOR, strokeWidth=2).encode(reported)
    base = alt.Chart(rows).encode(y)
    bars = base.mark_rule(strokeWidth=3, opacity=0.5).encode(left, x2="high")
    points = base.mark_point(size=70, opacity=1, color=theme.INK)
    chart = alt.layer(lines, bars, points.encode(predicted, tooltip=details))
    return chart.properties(width=560, height=ROW_HEIGHT * len(rows))


def gaps_at_width(gaps: pd.DataFrame) -> alt.LayerChart:
    """Loss above that of r = 1 at the same width and budget, against tokens: one line per width.

    Args:
        gaps: d_model, n_recur, n_tokens, gap (nats per token) and source; a line
            connects digitised or measured points of a width, a ring is a published value.
    """
    columns = ["d_model", "n_recur", "n_tokens", "gap", "source"]
    parts.require(gaps, columns, "gaps_at_width")
    table = gaps[columns].sort_values(["d_model", "n_tokens"])
    lone = table["source"] == "published"
    x = theme.axis(alt.X, "n_tokens", log=True, scale=alt.Scale(type="log", nice=False, padding=24))
    y = theme.axis(alt.Y, "gap", scale=alt.Scale(zero=False, padding=12))
    color = theme.recur_color(table["n_recur"])
    details = parts.tooltips(table, columns[:-1])
    lines, rings = (
        alt.Chart(rows).encode(x, y, color, detail="d_model:N", tooltip=details)
        for rows in (table[~lone], table[lone])
    )
    ends = table[~lone].groupby(["n_recur", "d_model"]).tail(1)
    labels = alt.Chart(pd.concat([ends, table[lone]])).mark_text(align="left", dx=8)
    chart = alt.layer(
        lines.mark_line(point=True),
        rings.mark_point(size=140, filled=False, strokeWidth=2),
        labels.encode(x, y, text="d_model:Q"),
    )
    notes = [["number: width d_model", "ring: published" if lone.any() else ""]]
    return theme.finish(chart, "gaps-at-width", _gaps_prose(table), table, notes)


def _description(held: list[HoldOut]) -> theme.Sentences:
    yield "Actual minus predicted validation loss against training compute."
    for each in held:
        means = each.runs[each.runs["held_out"]].groupby("n_recur")["residual"].mean()
        yield (
            f"{parts.fit_prose(each.fit)}, {each.label}: RMSE {each.fit.rmse:.4f} nats where "
            f"fitted, {each.rmse:.4f} where held out; held-out mean "
            f"{parts.listed(f'{mean:+.3f} at r = {r}' for r, mean in means.items())}."
        )


def _predictions_prose(table: pd.DataFrame) -> theme.Sentences:
    yield "Predicted validation losses with intervals."
    for row in table.itertuples():
        interval = f"{row.predicted:.3f}, {row.low:.3f} to {row.high:.3f}"
        known = "" if pd.isna(row.reported) else f", reported {row.reported:.3f}"
        yield f"{row.quantity} by {row.fit}: {interval}{known}."


def _gaps_prose(table: pd.DataFrame) -> theme.Sentences:
    yield "Loss above that of r = 1 at the same width, against training tokens."
    for (n_recur, d_model, source), rows in table.groupby(["n_recur", "d_model", "source"]):
        gaps = parts.listed(f"{gap:.3f}" for gap in rows["gap"])
        tokens = f"{parts.spread(rows['n_tokens'] / 1e6, ',.0f')} million tokens"
        yield f"r = {n_recur}, d_model {d_model}, {source}: {gaps} nats, at {tokens}."
