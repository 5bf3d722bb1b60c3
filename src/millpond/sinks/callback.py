"""A Python function as a sink: called after each commit, at least once per epoch.

For exactly-once delivery, store the id with the data and skip ids that are already stored: the same id always
comes with the same rows.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import cloudpickle
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.plan.sink_settings import MODES, Guarantee, SinkMode
from millpond.sinks.delivery import Delivery
from millpond.stored_code import Stored


@dataclass(frozen=True, eq=False)
class CallbackSink:
    """Calls ``function("<pond>:<epoch>", delta)``; after an exception the delivery is retried later.

    >>> sink = CallbackSink(lambda id, delta: print(id, delta.to_pylist()))
    >>> sink.deliver("pond", 7, pa.table({"k": ["a"], "_w": [1]}))
    pond:7 [{'k': 'a', '_w': 1}]
    """

    function: Callable[[str, pa.Table], Any] | None = field(default=None, metadata={"durable": False})
    # What the plan stores.  None for a function that cannot be stored (for example, one with a connection):
    # such a sink works only in the process that defines it.
    pickled: bytes | Stored | None = field(default=None, repr=False, metadata={"pickle_of": "function"})

    exactly_once: ClassVar[bool] = False
    guarantee: ClassVar[Guarantee] = "at_least_once"
    modes: ClassVar[tuple[SinkMode, ...]] = MODES

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
        """Compares functions, or their bytes if they are not loaded: comparing runs no code."""
        if not isinstance(other, CallbackSink) or type(other) is not type(self):
            return False
        if self.function is not None and other.function is not None:
            return bool(self.function == other.function)
        return self._bytes() == other._bytes()

    def __hash__(self) -> int:
        return hash(type(self))

    def write(self, delivery: Delivery) -> None:
        self._call(delivery.id, delivery.epoch, delivery.rows)

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        """Call the function with these rows."""
        self._call(f"{pond}:{epoch}", epoch, delta)

    def _call(self, id: str, epoch: int, rows: pa.Table) -> None:
        self._loaded(epoch)(id, rows)

    def _loaded(self, epoch: int) -> Callable[..., Any]:
        """The function, loaded from the plan if this process did not define it."""
        function: Callable[..., Any] | None = self.function
        if function is None and isinstance(self.pickled, Stored):
            function = self.pickled.load()
        if function is None:
            raise InvalidError(
                "the function of this sink is not known here",
                detail="it could not be stored with the plan",
                hint="define the pipeline again in this process before it runs",
                epoch=epoch,
            )
        return function

    def _bytes(self) -> bytes | None:
        if isinstance(self.pickled, Stored):
            return base64.b64decode(self.pickled.raw["$pickle"])
        return self.pickled


def _pickled(function: Any) -> bytes | None:
    try:
        raw: bytes = cloudpickle.dumps(function)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError, NotImplementedError):
        return None
    return raw
