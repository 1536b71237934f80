"""`python -m tools.book build`: the book without the rest of the command line."""

from tools.book import app

app(prog_name="looped book")
