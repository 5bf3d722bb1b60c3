"""Millpond: a stateful stream processor in Python on Apache Spark.

import millpond
pond = millpond.open("my-pond")
"""

from millpond.errors import (
    ConflictError,
    DataError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)
from millpond.flow.states import (
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from millpond.pond import Pond, open, restore
from millpond.process.context import ProcessContext, Timer
from millpond.process.function import Process
from millpond.version import __version__

__all__ = [
    "AggregatingState",
    "BroadcastState",
    "ConflictError",
    "DataError",
    "InternalError",
    "InvalidError",
    "ListState",
    "MapState",
    "MillpondError",
    "Pond",
    "Process",
    "ProcessContext",
    "ReducingState",
    "Timer",
    "UnavailableError",
    "ValueState",
    "__version__",
    "open",
    "restore",
]
