"""Runs each test of the folder with all, no or some passes of the physical plan; see `tests.passes`."""

from __future__ import annotations

from tests.passes import some_passes

__all__ = ["some_passes"]
