"""The errors of the package. Each message says what, got, expected, and what to do."""


class ConfigError(ValueError):
    """A model or run configuration that cannot exist."""


class RecordError(ValueError):
    """A run that fails the schema: names file, row, field and value."""

    def __init__(self, problem, *, file=None, row=None, field=None, value=None, fix=None):
        self.file, self.row, self.field, self.value = file, row, field, value
        where = [str(file)] if file is not None else []
        where += [f"row {row}"] if row is not None else []
        where += [f"column {field!r}"] if field is not None else []
        got = f" (got {value!r})" if value is not None else ""
        remedy = f". {fix}" if fix else ""
        super().__init__(f"{', '.join(where)}{': ' if where else ''}{problem}{got}{remedy}")


class FitError(RuntimeError):
    """No usable estimate came out of a fit."""


class NoMinimum(FitError):
    """An isoFLOP cell without an interior minimum, or with fewer than three runs."""


class TrainingError(RuntimeError):
    """A run that cannot go on: names the step and what went wrong; its last checkpoint is kept."""
