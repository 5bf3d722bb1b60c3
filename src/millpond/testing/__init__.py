"""Tests of pipelines, for their authors: in this process, without a JVM, with time under control."""

from millpond.testing.harness import Harness
from millpond.testing.transcript import check_transcript, run_transcript

__all__ = ["Harness", "check_transcript", "run_transcript"]
