"""`python -m benchmarks fit | train`."""

from benchmarks import app

app(prog_name="python -m benchmarks")
