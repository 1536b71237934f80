"""Runs that others trained, from their file to a checked source of runs."""

from looped.registry.ingest.steps import Ingested, ingest

__all__ = ["Ingested", "ingest"]
