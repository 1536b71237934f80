"""The one error of the book."""


class BookError(Exception):
    """The book cannot be built: says which page, what is wrong, and what to do."""
