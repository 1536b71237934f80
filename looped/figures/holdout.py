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

    Points are runs; lines connect the means of the (budget, r) cells.

    Args:
        held: hold-outs of the same runs.

    Raises:
        ValueError: no hold-out, or runs without a column that is drawn.
    """
    parts.require_any(held, "held_out_residuals", "hold-out", "[looped.hold_out(...)]")
    columns = [*CELL, "val_loss", "predicted", "residual"]
    tables = []
    for out in held:
        parts.require(out.runs, columns, "held_out_residuals")
        drawn = parts.drawable(out.runs)
        tables.append(drawn.assign(label=out.label, held_out=out.runs["held_out"]))
    table = pd.concat(tables, ignore_index=True)
    reach = table["residual"].abs().max()
    y = theme.axis(alt.Y, "residual", scale=alt.Scale(domain=[-reach, reach], nice=True))
    charts = [_panel(out, table[table["label"] == out.label], y) for out in held]
    chart = parts.panels(charts, [out.label for out in held])
    key = parts.joined("point: run", "line: mean of a cell", "shaded: not fitted")
    split = f"split {held[0].fit.split}" if held[0].fit.split else ""
    where = parts.joined(parts.source_note(held[0].runs), split, parts.flag_note(table))
    return theme.finish(
        chart.properties(title=parts.note(where, key)),
        name="held-out-residuals",
        description=_description(held),
        data=table,
    )


def prediction_intervals(predictions: pd.DataFrame) -> alt.ConcatChart:
    """Predicted losses with intervals, one row per fit; vertical lines are the reported values.

    Args:
        predictions: fit, quantity (one panel each), predicted, low, high (nats per token), and
            reported (may be missing).

    Raises:
        ValueError: a column or all rows are missing.
    """
    columns = ["fit", "quantity", *ENDS, "reported"]
    parts.require(predictions, columns, "prediction_intervals", may_miss=("reported",))
    table = predictions[columns]
    names = table["quantity"].unique()
    panels = [_quantity(table[table["quantity"] == name], name) for name in names]
    reported = table["reported"].notna().any()
    key = parts.joined("bar: interval", "line: reported" if reported else "")
    return theme.finish(
        alt.concat(*panels, columns=1).properties(title=parts.note(key)),
        name="prediction-intervals",
        description=_predictions_prose(table),
        data=table,
    )


def _panel(held: HoldOut, rows: pd.DataFrame, y: alt.Y) -> alt.LayerChart:
    budgets = np.sort(rows["budget"].unique())
    domain = [budgets[0] / 1.4, budgets[-1] * 1.4]
    x = theme.axis(
        alt.X, "budget", log=True, scale=alt.Scale(type="log", domain=domain, nice=False)
    )
    means = rows.groupby(CELL, as_index=False)["residual"].mean()
    return alt.layer(
        _shade(held.budgets, budgets, domain, x),
        parts.zero_rule(y=y),
        alt.Chart(means).mark_line().encode(x=x, y=y, **parts.recur_lines(rows["n_recur"])),
        parts.run_points(rows, x, y, theme.recur_color(rows["n_recur"], legend=None)),
    )


def _shade(held: Sequence[float], budgets: np.ndarray, domain: list[float], x: alt.X) -> alt.Chart:
    """A band around each held-out budget, half-way to the next budgets."""
    edges = np.array([domain[0], *np.sqrt(budgets[1:] * budgets[:-1]), domain[1]])
    out = np.isin(budgets, held)
    bands = pd.DataFrame({"budget": edges[:-1][out], "end": edges[1:][out]})
    return alt.Chart(bands).mark_rect(opacity=0.1, color=theme.INK).encode(x=x, x2="end")


def _quantity(rows: pd.DataFrame, name: str) -> alt.LayerChart:
    ends = rows[[*ENDS, "reported"]]
    pad = 0.05 * (ends.max().max() - ends.min().min())
    scale = alt.Scale(domain=[ends.min().min() - pad, ends.max().max() + pad], nice=True)
    x = {
        end: theme.axis(alt.X, end, title=f"{name} (nats/token)", scale=scale)
        for end in ("predicted", "low", "reported")
    }
    y = alt.Y("fit:N", sort=list(rows["fit"]), title=None)
    details = [alt.Tooltip(f"{end}:Q", title=end.capitalize(), format=".4f") for end in ENDS]
    known = rows.dropna(subset=["reported"]).drop_duplicates("reported")
    base = alt.Chart(rows)
    return alt.layer(
        alt.Chart(known).mark_rule(color=REPORTED_COLOR, strokeWidth=2).encode(x=x["reported"]),
        base.mark_rule(strokeWidth=3, opacity=0.5).encode(x=x["low"], x2="high", y=y),
        base.mark_point(size=70, opacity=1, color=theme.INK).encode(
            x=x["predicted"], y=y, tooltip=[alt.Tooltip("fit:N", title="Fit"), *details]
        ),
    ).properties(width=560, height=ROW_HEIGHT * len(rows))


def _description(held: list[HoldOut]) -> str:
    text = "Actual minus predicted validation loss against training compute."
    for each in held:
        out = each.runs[each.runs["held_out"]]
        text += f" {parts.fit_prose(each.fit)}, {each.label}: RMSE {each.fit.rmse:.4f} nats where"
        text += f" fitted, {each.rmse:.4f} where held out;"
        means = out.groupby("n_recur")["residual"].mean()
        text += (
            f" held-out mean {parts.listed([f'{m:+.3f} at r = {r}' for r, m in means.items()])}."
        )
    return text


def _predictions_prose(table: pd.DataFrame) -> str:
    text = "Predicted validation losses with intervals."
    for row in table.itertuples():
        known = "" if pd.isna(row.reported) else f", reported {row.reported:.3f}"
        text += (
            f" {row.quantity} by {row.fit}: {row.predicted:.3f}, {row.low:.3f} to {row.high:.3f}"
        )
        text += f"{known}."
    return text


def gaps_at_width(gaps: pd.DataFrame) -> alt.LayerChart:
    """Loss above that of r = 1 at the same width and budget, against tokens: one line per width.

    Args:
        gaps: d_model, n_recur, n_tokens, gap (nats per token) and source; a line
            connects digitised or measured points of a width, a ring is a published value.

    Raises:
        ValueError: a column or all rows are missing.
    """
    columns = ["d_model", "n_recur", "n_tokens", "gap", "source"]
    parts.require(gaps, columns, "gaps_at_width")
    table = gaps[columns].sort_values(["d_model", "n_tokens"])
    lone = table["source"] == "published"
    x = theme.axis(alt.X, "n_tokens", log=True, scale=alt.Scale(type="log", nice=False, padding=24))
    channels = {
        "x": x,
        "y": theme.axis(alt.Y, "gap", scale=alt.Scale(zero=False, padding=12)),
        "color": theme.recur_color(table["n_recur"]),
        "detail": "d_model:N",
        "tooltip": parts.tooltips(table, columns[:-1]),
    }
    ends = table[~lone].groupby(["n_recur", "d_model"]).tail(1)
    labels = alt.Chart(pd.concat([ends, table[lone]])).mark_text(align="left", dx=8)
    chart = alt.layer(
        alt.Chart(table[~lone]).mark_line(point=True).encode(**channels),
        alt.Chart(table[lone]).mark_point(size=140, filled=False, strokeWidth=2).encode(**channels),
        labels.encode(x=x, y=channels["y"], text="d_model:Q"),
    )
    key = parts.joined("number: width d_model", "ring: published" if lone.any() else "")
    return theme.finish(
        chart.properties(title=parts.note(key)),
        name="gaps-at-width",
        description=_gaps_prose(table),
        data=table,
    )


def _gaps_prose(table: pd.DataFrame) -> str:
    text = "Loss above that of r = 1 at the same width, against training tokens."
    for (n_recur, d_model, source), rows in table.groupby(["n_recur", "d_model", "source"]):
        gaps = parts.listed([f"{gap:.3f}" for gap in rows["gap"]])
        text += f" r = {n_recur}, d_model {d_model}, {source}: {gaps} nats,"
        text += f" at {parts.spread(rows['n_tokens'] / 1e6, ',.0f')} million tokens."
    return text
