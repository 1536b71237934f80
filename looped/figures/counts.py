"""Parameters and FLOPs of looped models, before any training (paper Fig. 1 left)."""

import altair as alt
import pandas as pd

from looped.errors import pick
from looped.figures import parts, theme
from looped.quantities import QUANTITIES

BAR_HEIGHT = 56

_BILLIONS = "replace({}, 'G', 'B')"


def recurrence_ratios(ratios: pd.DataFrame) -> alt.LayerChart:
    """Ratio of each quantity to the model without recurrence, against r.

    Args:
        ratios: one row per (quantity, r): n_recur, quantity, ratio.
    """
    parts.require(ratios, ["n_recur", "quantity", "ratio"], "recurrence_ratios")
    scale = alt.Scale(type="log", base=2, nice=False, padding=32)
    values = alt.Axis(values=parts.recurrences(ratios), format="d")
    label = ratios["ratio"].map("{:.2f}".format)
    label = label.mask(ratios[["n_recur"]].assign(label=label).duplicated(), "")  # one per point
    base = alt.Chart(ratios.assign(label=label)).encode(
        x=theme.axis(alt.X, "n_recur", scale=scale, axis=values),
        y=theme.axis(alt.Y, "ratio", scale=alt.Scale(zero=True)),
        tooltip=parts.tooltips(ratios, ["quantity", "n_recur", "ratio"]),
    )
    # Long names one below the other: a phone has no room for two in a row.
    color = theme.name_color("quantity", ratios["quantity"].unique(), legend=alt.Legend(columns=1))
    lines = base.mark_line().encode(color)
    points = base.mark_point(filled=True, opacity=1).encode(color)
    labels = base.mark_text(align="left", dx=5, dy=-9).encode(text="label:N")
    chart = alt.layer(lines, points, labels)
    return theme.finish(chart, "recurrence-ratios", _ratios_description(ratios), ratios)


def params_by_section(counts: pd.DataFrame, field: str = "n_params") -> alt.LayerChart:
    """Count of each section of the stack, as one stacked bar per r.

    Args:
        counts: one row per (r, section), sections in the order of the stack: n_recur, section,
            value. Sections that are zero for every r are left out.
        field: name of what `value` counts, a key of `QUANTITIES`: n_params, flops_per_token ...

    Raises ValueError if the field is unknown.
    """
    parts.require(counts, ["n_recur", "section", "value"], "params_by_section")
    title = pick("field", field, QUANTITIES).axis
    held = counts.groupby("section")["value"].transform("max") > 0
    table = counts[held].assign(order=lambda t: pd.factorize(t["section"])[0])
    totals = table.groupby("n_recur", as_index=False)["value"].sum()
    ticks = alt.Axis(format=".2~s", labelExpr=_BILLIONS.format("datum.label"))
    x = theme.axis(alt.X, "value", title=title, scale=alt.Scale(zero=True), axis=ticks)
    y = alt.Y("n_recur:O", title=None, axis=alt.Axis(labelExpr=theme.RECUR_LABEL))
    color = theme.name_color("section", table["section"].unique())
    details = parts.tooltips(table, ["n_recur", "section"])
    details.append(alt.Tooltip("value:Q", title=title, format=",.0f"))
    bars = alt.Chart(table).mark_bar().encode(x, y, color, order="order:Q", tooltip=details)
    sums = alt.Chart(totals).mark_text(align="left", dx=5).encode(x, y, text="total:N")
    sums = sums.transform_calculate(total=_BILLIONS.format("format(datum.value, '.3~s')"))
    return theme.finish(
        alt.layer(bars, sums).properties(height=BAR_HEIGHT * len(totals)),
        f"{field.replace('_', '-')}-by-section",
        _sections_description(table, totals, title),
        table.drop(columns="order"),
    )


def _ratios_description(ratios: pd.DataFrame) -> theme.Sentences:
    yield "Ratio to the model without recurrence."
    for quantity, rows in ratios.groupby("quantity", sort=False):
        values = [f"{row.ratio:.3g} at r = {row.n_recur}" for row in rows.itertuples()]
        yield f"{quantity}: {parts.listed(values)}."


def _sections_description(table: pd.DataFrame, totals: pd.DataFrame, title: str) -> theme.Sentences:
    yield f"{title} by section of the stack."
    for row in totals.itertuples():
        rows = table[table["n_recur"] == row.n_recur]
        values = [f"{part.section} {part.value:.3g}" for part in rows.itertuples() if part.value]
        yield f"r = {row.n_recur}: {row.value:.3g} in all, {parts.listed(values)}."
