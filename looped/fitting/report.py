"""A fit as text, as HTML for a notebook, and as one line."""

import html as escape
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from looped.fitting.result import Bootstrap, FitResult

MISSING = "–"


def short(fit: "FitResult") -> str:
    """One line: law, runs, values, φ with its interval, status."""
    values = ", ".join(f"{name} {value:.4g}" for name, value in fit.params.items())
    if fit.interval and "phi" in fit.interval.draws:
        low, high = fit.interval.interval("phi")
        values += f" [{low:.3f}, {high:.3f}]"
    return (
        f"<FitResult {_title(fit)}, {fit.n_runs} runs: {values}; R² {fit.r2:.4f}, RMSE "
        f"{fit.rmse:.4f}, status {fit.status}>"
    )


def text(fit: "FitResult", warnings: bool = True) -> str:
    """The whole fit, a line each: formula, values with intervals, quality, warnings."""
    rows = [("parameter", "value", _interval_title(fit)), *_rows(fit)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    table = [
        f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {interval}".rstrip()
        for name, value, interval in rows
    ]
    lines = [f"{_title(fit)}: {fit.form.formula}", *table, *_quality(fit)]
    if warnings:
        lines += [f"warning: {warning}" for warning in fit.all_warnings]
    return "\n".join(lines)


def html(fit: "FitResult") -> str:
    """The whole fit as a table of values with lines on its quality."""
    head, *body = [("parameter", "value", _interval_title(fit)), *_rows(fit)]
    rows = "".join(_html_row(row, "td") for row in body)
    lines = [*_quality(fit), *(f"Warning: {warning}" for warning in fit.all_warnings)]
    notes = "<br>".join(escape.escape(line) for line in lines)
    caption = escape.escape(f"{_title(fit)}: {fit.form.formula}")
    return (
        f'<table class="dataframe"><caption>{caption}</caption>{_html_row(head, "th")}{rows}'
        f"</table><p>{notes}</p>"
    )


def _html_row(cells: tuple[str, ...], tag: str) -> str:
    inside = "".join(f"<{tag}>{escape.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def _title(fit: "FitResult") -> str:
    return f"{fit.law.name} law" + (f", split {fit.split}" if fit.split else "")


def _interval_title(fit: "FitResult") -> str:
    return f"{fit.interval.level:.0%} interval" if fit.interval else ""


def _rows(fit: "FitResult") -> Iterator[tuple[str, str, str]]:
    for name, value in fit.params.items():
        interval = ""
        if name in fit.fixed:
            interval = "held"
        elif fit.interval:
            interval = "{:.5g} to {:.5g}".format(*fit.interval.interval(name))
        yield name, f"{value:.6g}", interval


def _quality(fit: "FitResult") -> Iterator[str]:
    origin = f"cases {', '.join(fit.cases) or MISSING}; sources {', '.join(fit.sources) or MISSING}"
    yield f"{fit.n_runs} runs ({origin})"
    yield (
        f"R² {fit.r2:.5f}, RMSE {fit.rmse:.5f} and largest residual {fit.max_abs_residual:.5f} "
        f"nats, Huber sum {fit.objective:.4e} (δ = {fit.delta:g})"
    )
    yield (
        f"{fit.starts_at_optimum:.1%} of {fit.starts} starts at the optimum "
        f"(solver {fit.solver}, seed {fit.seed}); status {fit.status}"
    )
    if fit.interval:
        yield _interval_source(fit.interval)


def _interval_source(interval: "Bootstrap") -> str:
    unit = "(budget, r) cells" if interval.method == "block" else "runs"
    line = (
        f"{interval.level:.0%} percentile interval, {interval.method} bootstrap of "
        f"{interval.n_units} {unit}: {interval.resamples} resamples of {interval.starts} starts, "
        f"seed {interval.seed}"
    )
    if "phi" in interval.draws:
        line += f"; φ touched 0 in {interval.touched(0)} and 1 in {interval.touched(1)}"
    return line
