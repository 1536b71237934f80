"""`python -m looped ...` is `looped ...`; torchrun wants the module."""

from looped.cli import app

app(prog_name="looped")
