"""`python -m looped.bench fit | train`."""

from looped.bench import app

app(prog_name="python -m looped.bench")
