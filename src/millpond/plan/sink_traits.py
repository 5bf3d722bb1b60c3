"""Optional capabilities of sinks.

A sink has `write`, or `open`, which returns a writer; `sinks/sink.py` describes both forms.
Each further capability is a protocol in this file, and callers check with `isinstance`.
The file is here, not next to the sinks, because the planner does not import `sinks`.

Sinks need not inherit from these classes: their methods and attributes are enough.
`misspelt` finds those that nobody would call.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa


@runtime_checkable
class WritesRows(Protocol):
    """A sink without a connection, or an open one, that stores the rows of a delivery."""

    def write(self, delivery: Any) -> Any: ...


@runtime_checkable
class OpensTarget(Protocol):
    """A sink that connects before its first delivery."""

    def open(self, binding: Any) -> Any: ...


@runtime_checkable
class DeliversDeltas(Protocol):
    """A sink of the first releases: it gets deltas with their weights, whatever the mode."""

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None: ...


@runtime_checkable
class ChecksView(Protocol):
    """A sink that refuses columns which its target cannot have, when it is defined."""

    def check_view(self, schema: pa.Schema, settings: Any) -> None: ...


@runtime_checkable
class ClosesTarget(Protocol):
    """An open sink that holds something to release."""

    def close(self) -> None: ...


@runtime_checkable
class StatesGuarantee(Protocol):
    """A sink that says which guarantee it can give; without it, `ExactlyOnce` says so."""

    guarantee: Any


@runtime_checkable
class ExactlyOnce(Protocol):
    """A sink of the first releases that says whether it is exactly once."""

    exactly_once: bool


@runtime_checkable
class StatesModes(Protocol):
    """A sink that lists its modes, the default first."""

    modes: tuple[Any, ...]


@runtime_checkable
class AppendOnly(Protocol):
    """A sink of the first releases that says whether it only takes new rows."""

    append_only: bool


@runtime_checkable
class ColumnsByName(Protocol):
    """A sink whose target holds rows under the names of their columns, so that these cannot change."""

    columns_by_name: bool


@runtime_checkable
class ModeHints(Protocol):
    """A sink that says what to use instead of a mode that it does not have."""

    mode_hints: Mapping[str, str]


_OPTIONAL = ("check_view", "columns_by_name", "guarantee", "mode_hints", "modes")


def misspelt(sink: object) -> tuple[str, str] | None:
    """An attribute of the sink's class that is nearly one that Millpond asks for, and the right name.

    Fields of a dataclass are settings, with names of their own.

    >>> class Lines:
    ...     gaurantee = "exactly_once"
    >>> misspelt(Lines())
    ('gaurantee', 'guarantee')
    """
    own = {f.name for f in dataclasses.fields(sink)} if dataclasses.is_dataclass(sink) else set()
    for name in dir(type(sink)):
        matches = difflib.get_close_matches(name, _OPTIONAL, 1, cutoff=0.8)
        if matches and name not in own and name not in _OPTIONAL and not hasattr(sink, matches[0]):
            return name, matches[0]
    return None
