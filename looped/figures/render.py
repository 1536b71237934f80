"""The Altair renderer "book": how a chart is written into a page of the book.

A chart becomes its JSON specification and an image of it, in one element:

    <div class="book-chart" role="figure" aria-label="..."><img ...><script ...>{...}</script></div>

In the book `charts.js` draws the specification in place of the image. Where that script is missing
(a notebook viewer, a browser without JavaScript) the image stays. Nothing is loaded from a network.

Only the builder of the book calls `enable_book_renderer`. Everywhere else Altair's own settings
apply: its default renderer loads Vega from a CDN; in JupyterLab `alt.renderers.enable("mimetype")`
draws charts without a network.
"""

import base64
import html
import json
from importlib.util import find_spec
from typing import Any

import altair as alt

from looped.figures.tables import csv_link

# Version of Vega-Lite that Altair writes, in the form that vl-convert expects: major.minor.
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
IMAGE_WIDTH = 680  # pixels, of a chart that fills the column of the page


def enable_book_renderer() -> None:
    """Show every chart of this process in the form that a page of the book needs."""
    alt.renderers.register("book", mimebundle)
    alt.renderers.enable("book")


def mimebundle(spec: dict[str, Any], **_metadata: Any) -> dict[str, str]:
    """MIME type -> form of a chart: HTML for the book, PNG for print, text for anything else."""
    # Altair writes missing text as NaN, which is not valid JSON: a browser would draw nothing.
    spec = json.loads(json.dumps(spec), parse_constant=lambda _: None)
    about = spec.pop("usermeta", {}).get("looped", {})
    description = spec.get("description", "Chart without a description")
    label = html.escape(description)
    image, bundle = "", {"text/plain": description}
    if images := _images(spec):
        svg, png = (base64.b64encode(data).decode() for data in images)
        image = f'<img alt="{label}" src="data:image/svg+xml;base64,{svg}">'
        bundle["image/png"] = png  # for print, and for viewers without HTML
    # No `</script>` of a string can end the script element.
    safe = json.dumps(spec, separators=(",", ":")).replace("</", r"<\/")
    chart = (
        f'<div class="book-chart" role="figure" aria-label="{label}">{image}'
        f'<script type="application/json">{safe}</script></div>'
    )
    return bundle | {"text/html": chart + csv_link(about.get("name", ""), about.get("csv"))}


def _images(spec: dict) -> tuple[bytes, bytes] | None:
    """The chart as SVG and as PNG, black on white; None if vl-convert is not installed."""
    if find_spec("vl_convert") is None:
        return None
    import vl_convert

    spec = spec | {"background": "white"}
    if spec.get("width") == "container":
        spec["width"] = IMAGE_WIDTH
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE).encode()
    return svg, vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE)
