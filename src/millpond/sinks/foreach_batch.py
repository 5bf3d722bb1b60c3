"""A Python function that receives each delivery as a DataFrame of Spark, at least once per epoch.

Like `foreachBatch` of Spark's streaming: the function can use any writer of Spark.
Law 7: the same epoch always has the same rows, so a function that stores the epoch with them, in one act, and
skips epochs that it has stored, writes each exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millpond.sinks.callback import CallbackSink
from millpond.sinks.dataframes import running_session, to_spark
from millpond.sinks.delivery import Delivery


@dataclass(frozen=True, eq=False)
class ForeachBatchSink(CallbackSink):
    """Calls ``function(df, epoch)``; after an exception the delivery is repeated later.

    The DataFrame belongs to the Spark session of the process; one is made if there is none.
    """

    function: Callable[[Any, int], Any] | None = field(default=None, metadata={"durable": False})

    def write(self, delivery: Delivery) -> None:
        function = self._loaded(delivery.epoch)
        function(to_spark(delivery.rows, running_session()), delivery.epoch)
