"""What a keyed process step was told, and what `bind` worked out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from millpond.operators.process.function import Code
from millpond.operators.process.outputs import MAIN
from millpond.operators.process.spec import StateSpec


@dataclass(frozen=True)
class Declared:
    key: tuple[str, ...]
    code: Code
    states: tuple[StateSpec, ...]
    schema: pa.Schema  # of the rows it gives
    sides: tuple[tuple[str, pa.Schema], ...] = ()
    latest: bool = False  # the newest row of each key is its only one
    timeout_us: int | None = 60_000_000  # for one call

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """Of all outputs, the main one first."""
        return {MAIN: self.schema, **dict(self.sides)}

    @property
    def keyed_states(self) -> tuple[StateSpec, ...]:
        return tuple(state for state in self.states if state.kind != "broadcast")


@dataclass(frozen=True)
class Facts:
    """What `bind` worked out."""

    columns: tuple[str, ...]  # of the input
    control: tuple[str, ...]
    time: str | None
    watermark: str | None
    aware: bool  # has the time column a zone?
