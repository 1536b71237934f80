"""Names of the files in the folder of a run, readable without torch."""

SPEC = "spec.json"
METRICS = "metrics.jsonl"
LOCK = ".lock"
CHECKPOINTS = "checkpoints"
