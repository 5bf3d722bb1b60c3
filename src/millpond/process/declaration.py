"""What a user declared for a keyed process step, and what `bind` derives from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from millpond.process.function import Code
from millpond.process.outputs import MAIN
from millpond.process.spec import StateSpec


@dataclass(frozen=True)
class Declared:
    key: tuple[str, ...]
    code: Code
    states: tuple[StateSpec, ...]
    schema: pa.Schema  # of its output
    sides: tuple[tuple[str, pa.Schema], ...] = ()
    latest: bool = False  # each key has one output row, the newest
    timeout_us: int | None = 60_000_000  # of one call

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The schemas of all outputs, the main one first."""
        return {MAIN: self.schema, **dict(self.sides)}

    @property
    def keyed_states(self) -> tuple[StateSpec, ...]:
        return tuple(state for state in self.states if state.kind != "broadcast")


@dataclass(frozen=True)
class ProcessFacts:
    """What `bind` derived from the inputs."""

    columns: tuple[str, ...]  # of the input
    control: tuple[str, ...]
    time: str | None
    watermark: str | None
    aware: bool  # does the time column have a time zone?
