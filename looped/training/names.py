"""Names of the files in a run's folder, for those that look into it without torch."""

SPEC = "spec.json"
METRICS = "metrics.jsonl"
LOCK = ".lock"
CHECKPOINTS = "checkpoints"
