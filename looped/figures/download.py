"""The link below a figure or table that saves its data."""

import base64
import html


def csv_link(name: str, csv: str | None) -> str:
    """HTML link that saves `csv` as `name`.csv; empty without data.

    The link contains the data, so that it works in a page that is opened from disk.
    """
    if csv is None:
        return ""
    data = base64.b64encode(csv.encode()).decode()
    return (
        f'<a class="book-download" download="{html.escape(name)}.csv" '
        f'href="data:text/csv;base64,{data}">Download data (CSV)</a>'
    )
