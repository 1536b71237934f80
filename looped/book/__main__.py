"""`python -m looped.book build`: the book without the rest of the command line."""

from looped.book import app

app(prog_name="looped book")
