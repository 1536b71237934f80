"""Ingest: runs of other projects, from a result file to a checked source of runs."""

from looped.registry.ingest.steps import Ingested, ingest

__all__ = ["Ingested", "ingest"]
