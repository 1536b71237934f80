"""How a chart becomes something to look at: the Altair renderer "book".

A chart is written into the page as its JSON specification and an image of it, in one element:

    <div class="book-chart" role="figure" aria-label="..."><img ...><script ...>{...}</script></div>

In the book `charts.js` draws the specification in place of the image. Where that script is missing
(a notebook viewer, a browser without JavaScript) the image stays. Nothing is fetched from anywhere.
JupyterLab draws Vega-Lite itself, so there Altair's own "mimetype" renderer is used.
"""

import base64
import html
import json
import os
from importlib.util import find_spec

import altair as alt

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
"""Version of Vega-Lite that Altair writes, as vl-convert wants it: major.minor."""

IMAGE_WIDTH = 680
"""Width (pixels) of an image of a chart that on the page is as wide as the column."""


def enable() -> None:
    """Make every chart of this process show itself in the right way for where it runs."""
    alt.renderers.register("book", mimebundle)
    # Jupyter Server names the session for the kernels that it starts; papermill does not.
    alt.renderers.enable("mimetype" if "JPY_SESSION_NAME" in os.environ else "book")


def mimebundle(spec: dict, **_metadata) -> dict:
    """The forms of a chart, by MIME type: HTML for the book, PNG for print, text for the rest."""
    # Altair writes missing text as NaN, which is no JSON: a browser would draw nothing.
    spec = json.loads(json.dumps(spec), parse_constant=lambda _: None)
    about = spec.pop("usermeta", {}).get("looped", {})
    description = spec.get("description", "Chart without a description")
    label = html.escape(description)
    image, bundle = "", {"text/plain": description}
    if images := _images(spec):
        svg, png = (base64.b64encode(data).decode() for data in images)
        image = f'<img alt="{label}" src="data:image/svg+xml;base64,{svg}">'
        bundle["image/png"] = png  # for print, and for viewers that show no HTML
    chart = (
        f'<div class="book-chart" role="figure" aria-label="{label}">{image}'
        f'<script type="application/json">{_script_safe(spec)}</script></div>'
    )
    return bundle | {"text/html": chart + csv_link(about)}


def csv_link(about: dict) -> str:
    """Link that saves `about["csv"]` as `about["name"].csv`; empty without data.

    The link holds the data itself, so that it works in a page opened from disk.
    """
    if "csv" not in about:
        return ""
    data = base64.b64encode(about["csv"].encode()).decode()
    name = html.escape(f"{about['name']}.csv")
    return (
        f'<a class="book-download" download="{name}" href="data:text/csv;base64,{data}">'
        "Download data (CSV)</a>"
    )


def _images(spec: dict) -> tuple[bytes, bytes] | None:
    """The chart as SVG and as PNG, black on white; None where vl-convert is not installed."""
    if find_spec("vl_convert") is None:
        return None
    import vl_convert

    spec = spec | {"background": "white"}
    if spec.get("width") == "container":
        spec["width"] = IMAGE_WIDTH
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE).encode()
    return svg, vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE)


def _script_safe(spec: dict) -> str:
    """JSON that may stand inside a script element: no `</script>` in a string can end it."""
    return json.dumps(spec, separators=(",", ":")).replace("</", r"<\/")
