"""A Python function as a sink: called after each commit, at least once an epoch.

Whoever needs exactly once keeps the id with the data and drops what it has
already: the same id always comes with the same rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import cloudpickle
import pyarrow as pa

from millpond.errors import InvalidError


@dataclass(frozen=True, eq=False)
class CallbackSink:
    """Calls ``function("<pond>:<epoch>", delta)``; an exception means: not delivered, try again later.

    >>> sink = CallbackSink(lambda id, delta: print(id, delta.to_pylist()))
    >>> sink.deliver("pond", 7, pa.table({"k": ["a"], "_w": [1]}))
    pond:7 [{'k': 'a', '_w': 1}]
    """

    function: Callable[[str, pa.Table], Any] | None = field(default=None, metadata={"durable": False})
    # What the plan keeps.  None for a function that cannot be stored (say, one that holds a connection):
    # such a sink works in the process that defines it, and only there.
    pickled: bytes | None = field(default=None, repr=False)

    exactly_once: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.function is None and self.pickled is None:
            return
        if self.function is not None and not callable(self.function):
            raise InvalidError(
                f"not a function: {self.function!r}", hint="pass one that takes an id and a table"
            )
        if self.pickled is None:
            object.__setattr__(self, "pickled", _pickled(self.function))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallbackSink) and self._function() == other._function()

    def __hash__(self) -> int:
        return hash(self._function())

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        function = self._function()
        if function is None:
            raise InvalidError(
                "the function of this sink is not known here",
                detail="it could not be stored with the plan",
                hint="define the pipeline again in this process before it runs",
                epoch=epoch,
            )
        function(f"{pond}:{epoch}", delta)

    def _function(self) -> Callable[[str, pa.Table], Any] | None:
        if self.function is None and self.pickled is not None:
            object.__setattr__(self, "function", cloudpickle.loads(self.pickled))
        return self.function


def _pickled(function: Any) -> bytes | None:
    try:
        raw: bytes = cloudpickle.dumps(function)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError, NotImplementedError):
        return None
    return raw
