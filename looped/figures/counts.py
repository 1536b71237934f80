"""What looping changes before any training: parameters and FLOPs (paper Fig. 1 left)."""

import altair as alt
import pandas as pd

from looped.figures import parts, theme
from looped.quantities import QUANTITIES

SERIES = ["#767f8c", "#0a7fc2", "#d55e00", "#009e73", "#b05cb4", "#b8860b", "#cc4f80", "#5b6fe0"]
"""Colours of quantities and of sections, in the order of the table."""

BAR_HEIGHT = 56

_BILLIONS = "replace({}, 'G', 'B')"


def recurrence_ratios(ratios: pd.DataFrame):
    """Each quantity against r, as a ratio to the model without recurrence.

    Args:
        ratios: one row a (quantity, r): n_recur, quantity, ratio.

    Raises:
        ValueError: a column or all rows are missing.
    """
    parts.require(ratios, ["n_recur", "quantity", "ratio"], "recurrence_ratios")
    scale = alt.Scale(type="log", base=2, nice=False, padding=32)
    values = alt.Axis(values=parts.recurrences(ratios), format="d")
    label = ratios["ratio"].map("{:.2f}".format)
    label = label.mask(ratios[["n_recur"]].assign(label=label).duplicated(), "")  # once a place
    base = alt.Chart(ratios.assign(label=label)).encode(
        x=theme.axis(alt.X, "n_recur", scale=scale, axis=values),
        y=theme.axis(alt.Y, "ratio", scale=alt.Scale(zero=True)),
        tooltip=parts.tooltips(ratios, ["quantity", "n_recur", "ratio"]),
    )
    # Long names under one another: a phone has no room for two beside each other.
    color = _series(ratios, "quantity").legend(columns=1)
    lines = base.mark_line().encode(color=color)
    points = base.mark_point(filled=True, opacity=1).encode(color=color)
    labels = base.mark_text(align="left", dx=5, dy=-9).encode(text="label:N")
    return theme.finish(
        alt.layer(lines, points, labels),
        name="recurrence-ratios",
        description=_ratios_description(ratios),
        data=ratios,
    )


def params_by_section(counts: pd.DataFrame, field: str = "n_params"):
    """Stacked bars, one an r: what each section of the stack holds.

    Args:
        counts: one row a (r, section), sections in the order of the stack: n_recur, section,
            value. Sections that are zero for every r are left out.
        field: what `value` counts, a key of the axis titles: n_params, flops_per_token ...

    Raises:
        ValueError: a column or all rows are missing, or no axis title for the field.
    """
    parts.require(counts, ["n_recur", "section", "value"], "params_by_section")
    if field not in QUANTITIES:
        raise ValueError(
            f"field: got {field!r}, expected one with an axis title: {list(QUANTITIES)}"
        )
    held = counts.groupby("section")["value"].transform("max") > 0
    table = counts[held].assign(order=lambda t: pd.factorize(t["section"])[0])
    totals = table.groupby("n_recur", as_index=False)["value"].sum()
    ticks = alt.Axis(format=".2~s", labelExpr=_BILLIONS.format("datum.label"))
    x = theme.axis(
        alt.X, "value", title=QUANTITIES[field].axis, scale=alt.Scale(zero=True), axis=ticks
    )
    y = alt.Y("n_recur:O", title=None, axis=alt.Axis(labelExpr=theme.RECUR_LABEL))
    bars = (
        alt.Chart(table)
        .mark_bar()
        .encode(
            x=x,
            y=y,
            color=_series(table, "section"),
            order="order:Q",
            tooltip=[*parts.tooltips(table, ["n_recur", "section"]), _value_tooltip(x)],
        )
    )
    sums = (
        alt.Chart(totals)
        .transform_calculate(total=_BILLIONS.format("format(datum.value, '.3~s')"))
        .mark_text(align="left", dx=5)
        .encode(x=x, y=y, text="total:N")
    )
    return theme.finish(
        alt.layer(bars, sums).properties(height=BAR_HEIGHT * len(totals)),
        name=f"{field.replace('_', '-')}-by-section",
        description=_sections_description(table, totals, QUANTITIES[field].axis),
        data=table.drop(columns="order"),
    )


def _series(table, field) -> alt.Color:
    names = list(dict.fromkeys(table[field]))
    colors = [SERIES[i % len(SERIES)] for i in range(len(names))]
    scale = alt.Scale(domain=names, range=colors)
    return alt.Color(f"{field}:N", scale=scale, title=None)


def _value_tooltip(x) -> alt.Tooltip:
    return alt.Tooltip("value:Q", title=x["title"], format=",.0f")


def _ratios_description(ratios) -> str:
    text = "Ratio to the model without recurrence."
    for quantity, rows in ratios.groupby("quantity", sort=False):
        values = [f"{row.ratio:.3g} at r = {row.n_recur}" for row in rows.itertuples()]
        text += f" {quantity}: {parts.listed(values)}."
    return text


def _sections_description(table, totals, title) -> str:
    text = f"{title} by section of the stack."
    for row in totals.itertuples():
        rows = table[table["n_recur"] == row.n_recur]
        values = [f"{part.section} {part.value:.3g}" for part in rows.itertuples() if part.value]
        text += f" r = {row.n_recur}: {row.value:.3g} in all, {parts.listed(values)}."
    return text
