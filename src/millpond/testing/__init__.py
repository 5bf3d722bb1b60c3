"""Tests pipelines in this process, without a JVM, with control over time."""

from millpond.testing.harness import Harness
from millpond.testing.transcript import check_transcript, run_transcript

__all__ = ["Harness", "check_transcript", "run_transcript"]
