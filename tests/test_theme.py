"""Figures and tables: colours that can be told apart, and what a page needs of each chart."""

import base64
import json
import re
import subprocess
import sys

import altair as alt
import pandas as pd
import pytest
import vl_convert

import looped.figures
from looped.figures import render, theme
from looped.quantities import QUANTITIES

PAGES = {"light": "#ffffff", "dark": "#121212"}
RUNS = pd.DataFrame({"n_recur": [1, 2], "val_loss": [3.25, 3.5], "note": ["a|b", None]})


def luminance(color: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def chart() -> alt.Chart:
    return (
        alt.Chart(RUNS)
        .mark_point()
        .encode(theme.axis(alt.Y, "val_loss"), theme.recur_color([1, 2]))
    )


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("n_recurs", [[1, 2, 4, 8], [1, 3, 6, 12, 16]])
def test_recurrences_stand_out_from_the_page(n_recurs, page):
    for color in theme.recur_color(n_recurs).to_dict()["scale"]["range"]:
        assert contrast(color, PAGES[page]) >= 3  # WCAG 2.2, 1.4.11: graphical objects


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("n_budgets", [1, 2, 6, 9])
def test_budgets_stand_out_from_the_page(n_budgets, page):
    for color in theme.budget_color(range(1, n_budgets + 1)).to_dict()["scale"]["range"]:
        assert contrast(color, PAGES[page]) >= 3


@pytest.mark.parametrize("channel", [theme.recur_color, theme.recur_dash])
def test_each_n_recur_has_a_colour_and_a_dash_of_its_own(channel):
    scale = channel([8, 1, 2, 4, 6]).to_dict()["scale"]
    assert scale["domain"] == [1, 2, 4, 6, 8]
    assert len({str(value) for value in scale["range"]}) == 5


@pytest.mark.parametrize("channel", [theme.recur_color, theme.recur_dash])
def test_an_n_recur_looks_the_same_beside_any_others(channel):
    alone, among = (channel(r).to_dict()["scale"]["range"] for r in ([4], [1, 2, 4, 8]))
    assert alone == [among[2]]


def test_few_budgets_use_the_whole_range_of_colours():
    scale = theme.budget_color([3e18, 1e18, 3e18]).to_dict()["scale"]
    assert scale == {
        "domain": [1e18, 3e18],
        "range": [theme.BUDGET_COLORS[0], theme.BUDGET_COLORS[-1]],
    }


def test_axis_without_a_known_title_is_refused():
    with pytest.raises(ValueError, match="no axis title for 'speed'"):
        theme.axis(alt.Y, "speed")


def test_single_plots_fill_the_column_and_panels_do_not_ask_for_it():
    single = theme.finish(chart(), "a", "A chart.", RUNS).to_dict()
    layered = theme.finish(chart() + chart().mark_line(), "a", "A chart.", RUNS).to_dict()
    assert single["width"] == layered["width"] == "container"
    assert single["height"] == theme.HEIGHT
    panels = theme.finish(chart().facet("n_recur:N", columns=2), "a", "A chart.", RUNS).to_dict()
    by_row = theme.finish(chart().encode(row="n_recur:N"), "a", "A chart.", RUNS).to_dict()
    assert "width" not in panels
    assert "width" not in by_row


def test_finish_keeps_the_height_that_a_figure_chose():
    tall = theme.finish(chart().properties(height=99), "a", "A chart.", RUNS)
    assert tall.to_dict()["height"] == 99


def test_a_figure_needs_a_description():
    with pytest.raises(ValueError, match="figure 'curve' has no description"):
        theme.finish(chart(), "curve", " ", RUNS)


def test_the_page_gets_specification_image_label_and_data():
    finished = theme.finish(chart(), "curve", 'Loss "falls"\n with N.', RUNS)
    bundle = render.mimebundle(finished.to_dict())
    assert bundle["text/plain"] == 'Loss "falls" with N.'
    html = bundle["text/html"]
    assert 'aria-label="Loss &quot;falls&quot; with N."' in html
    spec = json.loads(re.search(r'<script type="application/json">(.*)</script>', html)[1])
    assert spec["description"] == 'Loss "falls" with N.'
    assert "usermeta" not in spec
    assert '<img alt="Loss &quot;falls&quot; with N." src="data:image/svg+xml;base64,' in html
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    name, data = re.search(r'download="(.*?)" href="data:text/csv;base64,(.*?)"', html).groups()
    assert name == "curve.csv"
    assert base64.b64decode(data).decode() == RUNS.to_csv(index=False)


def test_missing_text_is_null_in_the_page():
    chart = theme.finish(alt.Chart(RUNS).mark_point().encode(text="note:N"), "a", "A.", RUNS)
    page = render.mimebundle(chart.to_dict())["text/html"]
    spec = page.split('<script type="application/json">')[1].split("</script>")[0]
    assert "NaN" not in spec
    assert json.loads(spec)["datasets"]


def test_no_text_of_a_chart_can_end_its_script_element():
    finished = theme.finish(chart(), "a", "Ends </script> here.", RUNS)
    assert render.mimebundle(finished.to_dict())["text/html"].count("</script>") == 1


def test_without_vl_convert_a_chart_has_no_image(monkeypatch):
    monkeypatch.setattr(render, "find_spec", lambda name: None)
    bundle = render.mimebundle(theme.finish(chart(), "a", "A chart.", RUNS).to_dict())
    assert bundle.keys() == {"text/html", "text/plain"}
    assert "<img" not in bundle["text/html"]


def test_tables_do_not_import_altair_and_figures_do_on_first_use():
    code = (
        "import sys, looped; looped.figures.table; print('altair' in sys.modules)\n"
        "looped.figures.isoflop; print('altair' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_only_the_book_changes_the_renderer_of_altair():
    code = (
        "import altair as alt, looped\n"
        "alt.renderers.enable('json'); looped.figures.isoflop; print(alt.renderers.active)\n"
        "looped.figures.enable_book_renderer(); print(alt.renderers.active)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["json", "book"]


def test_table_in_the_book_is_a_numbered_myst_table():
    table = looped.figures.table(
        RUNS.rename(columns={"n_recur": "count"}),
        name="tbl-a",
        caption="Two\nruns.",
        formats={"val_loss": ".1f"},
    )
    source = table.to_markdown()
    assert source.startswith("::::{table} Two runs.\n:name: tbl-a\n")
    assert "| count | L | note |\n| ---: | ---: | :--- |\n" in source
    assert "| 1 | 3.2 | a\\|b |\n| 2 | 3.5 | – |\n" in source
    assert 'download="tbl-a.csv"' in source


def test_table_cells_do_not_break_inside_a_setting_or_a_number():
    frame = pd.DataFrame({"fit": ["r = 1", "pre-norm"], "se": ["2e-05", "a = b"]})
    cells = looped.figures.table(frame, name="tbl-a", caption="A.").cells
    assert cells[1:] == [["r\u00a0=\u00a01", "2e\u201105"], ["pre-norm", "a = b"]]


def test_an_estimate_and_its_interval_share_a_cell():
    frame = pd.DataFrame(
        {
            "phi": [0.4591, 0.43],
            "delta_phi": [0.03, -0.5],
            "low": [0.01, -0.6],
            "high": [0.05, -0.4],
            "phi_low": [0.4151, None],
            "phi_high": [0.516, None],
        }
    )
    table = looped.figures.table(frame, name="tbl-a", caption="A.", formats={"phi": ".2f"})
    assert table.cells == [
        ["φ", "Δφ"],
        ["0.46 [0.42,\u00a00.52]", "+0.030 [+0.010,\u00a0+0.050]"],
        ["0.43", "-0.500 [-0.600,\u00a0-0.400]"],
    ]
    assert table.csv == frame.to_csv(index=False)


def test_ends_without_an_estimate_before_them_are_columns():
    frame = pd.DataFrame({"split": ["stated"], "low": [0.1], "high": [0.2]})
    cells = looped.figures.table(frame, name="tbl-a", caption="A.").cells
    assert cells == [["split", "low", "high"], ["stated", "0.100", "0.200"]]


def test_headings_and_formats_follow_the_quantity_before_the_ending():
    frame = pd.DataFrame({"n_tokens_star": [1234567.0], "phi_variant": [0.5], "n_recur": [4.0]})
    cells = looped.figures.table(frame, name="tbl-a", caption="A.").cells
    assert cells == [["D*", "φ variant", "r"], ["1,234,567", "0.500", "4"]]


def test_a_table_without_rows_is_a_remark_if_one_is_named():
    shown = looped.figures.table(RUNS[:0], name="tbl-a", caption="A.", missing="No runs.")
    assert "No runs." in shown._repr_mimebundle_()["text/html"]


def test_unknown_columns_take_the_format_of_the_quantity_that_like_names():
    frame = pd.DataFrame({"r = 2": [0.123456], "phi": [0.5]})
    cells = looped.figures.table(frame, name="tbl-a", caption="A.", like="residual").cells
    assert cells[1] == ["+0.1235", "0.500"]


@pytest.mark.parametrize("name", sorted(QUANTITIES))
def test_every_quantity_has_formats_that_python_and_vega_read_alike(name):
    about = QUANTITIES[name]
    assert about.symbol
    for value in (3, 1234) if about.format.endswith("d") else (0.26, 1234.7):
        shown = format(value, about.format)
        spec = {
            "data": {"values": [{"value": value}]},
            "mark": "text",
            "encoding": {"text": {"field": "value", "type": "quantitative", "format": about.d3}},
        }
        drawn = vl_convert.vegalite_to_svg(spec, vl_version=render.VEGA_LITE)
        if about.format and "e" not in shown:
            assert f">{shown}<" in drawn


def test_table_in_a_notebook_is_html():
    html = looped.figures.table(RUNS, name="tbl-a", caption="N < D.").to_html()
    assert "<caption>N &lt; D.</caption>" in html
    assert '<td style="text-align:right">3.2500</td>' in html


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Table 1", "caption": "A."}, "table name 'Table 1'"),
        ({"name": "tbl-a", "caption": ""}, "has no caption"),
        ({"name": "tbl-a", "caption": "A.", "formats": {"phi": ".3f"}}, r"formats for \['phi'\]"),
    ],
)
def test_table_refuses_what_the_book_could_not_number(options, message):
    with pytest.raises(ValueError, match=message):
        looped.figures.table(RUNS, **options)
