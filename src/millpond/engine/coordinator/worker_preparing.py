"""Prepares the parts of large deliveries on the engine's workers, beside the chain.

Law 7: preparing begins after the commit, and in a job of its own, so a slow target delays neither epochs nor
other sinks: it never takes more than half of the cores, and one delivery at a time prepares here.
The rows of a part reach its worker through the store, under a name of the kind that the collector removes if
the process dies (law 6: no manifest ever names it).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import pyarrow as pa

from millpond.engine.coordinator.protocol import Deliver
from millpond.engine.engine import Engine
from millpond.engine.task.memory import as_large_as_before
from millpond.engine.task.worker import Worker, worker_for
from millpond.errors import InvalidError
from millpond.secret_references import secrets_from
from millpond.sinks.delivery import Part
from millpond.sinks.sink import Prepared, PreparingSink
from millpond.state.runs import run_names
from millpond.state.secret_files import SecretFiles

PARTS_MIN = 4  # of a delivery that is prepared by workers: passing rows on costs time, too
AT_ONCE_MIN = 2  # tasks: with fewer, threads of the driver are as fast
log = logging.getLogger("millpond.engine")


@dataclass(frozen=True)
class PreparingTask:
    """A part without its rows, which are in the store."""

    store: str
    options: dict[str, Any] = field(repr=False)
    sink: Any
    part: Part
    name: str


class WorkerPreparing:
    def __init__(self, worker: Worker, engine: Engine, options: Mapping[str, Any]) -> None:
        self._worker = worker
        self._engine = engine
        self._options = dict(options)
        self._busy = threading.Lock()

    @property
    def cores(self) -> int:
        return self._engine.default_parallelism

    def prepare(self, ask: Deliver, sink: PreparingSink, parts: Sequence[Part]) -> list[Prepared] | None:
        """What was prepared, in the order of the parts; None if the driver should do it."""
        at_once = self.cores // 2
        if len(parts) < PARTS_MIN or at_once < AT_ONCE_MIN or not self._busy.acquire(blocking=False):
            return None
        try:
            prepared: list[Prepared] = []
            for first in range(0, len(parts), at_once):
                prepared += self._some(ask, sink, parts[first : first + at_once])
            return prepared
        except InvalidError as error:
            # Workers may lack what the driver has, such as a secret in an environment variable.
            log.warning("sink %r is prepared in the driver: %s", ask.sink, error.message)
            return None
        finally:
            self._busy.release()

    def _some(self, ask: Deliver, sink: PreparingSink, parts: Sequence[Part]) -> list[Prepared]:
        store, tasks = self._worker.store, []
        try:
            for part in parts:
                name = run_names.new_name(ask.token, ask.head, run_names.COORDINATOR, part.number)
                run_names.put_run(store, name, _encoded(part.rows))
                empty = replace(part, rows=part.rows.slice(0, 0))
                tasks.append(PreparingTask(store.uri, self._options, sink, empty, name))
            raw = self._engine.map(_prepare_part, [cloudpickle.dumps(task) for task in tasks])
        finally:
            for task in tasks:
                store.delete(task.name)
        return [json.loads(one) for one in raw]


def _encoded(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _prepare_part(raw: bytes) -> bytes:
    """In a worker: prepare one part."""
    task: PreparingTask = cloudpickle.loads(raw)
    store = worker_for(task.store, **task.options).store
    with as_large_as_before(), secrets_from(SecretFiles(store).value):
        rows = pa.ipc.open_stream(store.map(task.name)).read_all()
        return json.dumps(task.sink.prepare(replace(task.part, rows=rows))).encode()
