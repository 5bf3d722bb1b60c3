"""The open writers of sinks, one for each sink, used only by the thread of that sink.

A writer stays open between deliveries.  It is opened again after an error, and when the sink, its columns or
the token of the coordinator have changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from millpond.masking import masked
from millpond.plan.sink_traits import ClosesTarget, OpensTarget, WritesRows
from millpond.sinks.delivery import Delivery, Part, RefusedRow, SinkBinding
from millpond.sinks.sink import Prepared, PreparingSink

PREPARERS = 2  # threads that prepare parts of one delivery
# Prepares parts in other processes; None if they should be prepared here.
PrepareElsewhere = Callable[[PreparingSink, Sequence[Part]], "list[Prepared] | None"]
log = logging.getLogger("millpond.engine")


@dataclass(frozen=True)
class _Opened:
    sink: Any
    binding: SinkBinding
    writer: Any


class SinkWriters:
    def __init__(self) -> None:
        self._opened: dict[str, _Opened] = {}

    def write(
        self, sink: Any, delivery: Delivery, elsewhere: PrepareElsewhere | None = None
    ) -> Sequence[RefusedRow]:
        """Give a delivery to a sink; returns the rows that its target refused.

        `elsewhere` may prepare the parts of a sink of the full form; by default it is done here.
        """
        name = delivery.binding.sink
        try:
            return _write(sink, self._writer(sink, delivery.binding), delivery, elsewhere) or ()
        except BaseException:
            self.close(name)
            raise

    def _writer(self, sink: Any, binding: SinkBinding) -> Any:
        found = self._opened.get(binding.sink)
        if found is not None and found.sink is sink and found.binding == binding:
            return found.writer
        self.close(binding.sink)
        writer = sink.open(binding) if isinstance(sink, OpensTarget) else sink
        self._opened[binding.sink] = _Opened(sink, binding, writer)
        return writer

    def close(self, name: str) -> None:
        opened = self._opened.pop(name, None)
        if opened is None or opened.writer is opened.sink or not isinstance(opened.writer, ClosesTarget):
            return
        try:
            opened.writer.close()
        except Exception as error:  # it is closed because of another error, or for good
            log.info("sink %r could not be closed: %s: %s", name, type(error).__name__, masked(str(error)))

    def close_all(self, busy: Collection[str] = ()) -> None:
        """Close all writers, except those of sinks that are still busy."""
        for name in list(self._opened):
            if name not in busy:
                self.close(name)


def _write(
    sink: Any, writer: Any, delivery: Delivery, elsewhere: PrepareElsewhere | None
) -> Sequence[RefusedRow] | None:
    if isinstance(writer, WritesRows):
        refused: Sequence[RefusedRow] | None = writer.write(delivery)
        return refused
    if isinstance(sink, PreparingSink):
        return _publish(sink, writer, delivery, elsewhere)
    writer.deliver(delivery.binding.pond, delivery.epoch, delivery.changes)
    return None


def _publish(
    sink: PreparingSink, writer: Any, delivery: Delivery, elsewhere: PrepareElsewhere | None
) -> Sequence[RefusedRow] | None:
    """Prepare all parts, several at a time, then publish them in one act."""
    prepared: list[Prepared] = []
    if not writer.has(delivery):
        parts = delivery.cut()
        found = None if elsewhere is None else elsewhere(sink, parts)
        prepared = _prepared_here(sink, parts) if found is None else found
    refused: Sequence[RefusedRow] | None = writer.publish(delivery, prepared)
    return refused


def _prepared_here(sink: PreparingSink, parts: Sequence[Part]) -> list[Prepared]:
    if len(parts) <= 1:
        return [sink.prepare(part) for part in parts]
    name = f"prepare-{parts[0].binding.sink}"
    with ThreadPoolExecutor(min(PREPARERS, len(parts)), name) as pool:
        # Threads begin without the context of their caller, which knows the secrets of the pond.
        runs = [(copy_context(), part) for part in parts]
        return list(pool.map(lambda run: run[0].run(sink.prepare, run[1]), runs))
