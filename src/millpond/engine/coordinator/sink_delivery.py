"""Delivers one epoch to one sink.

Law 7: a sink receives the difference between the rows it read at the previous epoch and those it reads at
this epoch, by the programs of these epochs.  An error of the sink is an event, so it stops nothing else.
"""

from __future__ import annotations

import pyarrow as pa

from millpond.engine.coordinator.append_sinks import is_append_only, shown_only
from millpond.engine.coordinator.protocol import Deliver, Delivered, DeliverFailed
from millpond.engine.coordinator.running_program import RunningProgram
from millpond.engine.coordinator.view_changes import all_rows, sink_changes, sink_table
from millpond.engine.missing_files import missing_file_error
from millpond.engine.task.worker import Worker
from millpond.errors import MillpondError, UnavailableError
from millpond.kernels.user_code import ENDINGS, is_interrupt
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.store.store import MissingError


def deliver(
    ask: Deliver, program: RunningProgram, worker: Worker, head: Manifest | None
) -> Delivered | DeliverFailed:
    node = program.plan.sinks.get(ask.sink)
    if node is None:
        gone = UnavailableError("the sink was dropped", detail=ask.sink)
        return DeliverFailed(ask.sink, ask.epoch, gone)
    try:
        manifest = history.read_manifest(worker.store, ask.epoch)
        delta = _delta(ask, program, worker, manifest)
        if delta is not None and manifest.kind == "rollback" and is_append_only(node.sink):
            delta = shown_only(delta)  # the rollback was forced
    except MissingError as error:
        return DeliverFailed(ask.sink, ask.epoch, missing_file_error(worker.store, head, error))
    except MillpondError as error:
        return DeliverFailed(ask.sink, ask.epoch, error)
    try:
        if delta is not None and delta.num_rows:
            node.sink.deliver(manifest.pond, ask.epoch, delta)
    except (Exception, *ENDINGS) as error:
        if is_interrupt(error):
            raise
        return DeliverFailed(ask.sink, ask.epoch, _named(ask, error))
    return Delivered(ask.sink, ask.epoch)


def _delta(ask: Deliver, program: RunningProgram, worker: Worker, manifest: Manifest) -> pa.Table | None:
    snapshot = Snapshot(worker.store, manifest, worker.pages, worker.open_file)
    if not ask.all_rows:
        return sink_changes(snapshot, ask.sink, lambda m: program.plan_of(m, worker))
    table = sink_table(program.plan_of(manifest, worker), ask.sink)
    return None if table is None else all_rows(snapshot, table)


def _named(ask: Deliver, error: BaseException) -> MillpondError:
    """The error with the name of the sink; a Millpond error keeps its kind, which says who must act."""
    named: MillpondError
    if isinstance(error, MillpondError):
        message = f"sink {ask.sink!r} failed: {error.message}"
        named = type(error)(message, detail=error.detail, hint=error.hint, epoch=ask.epoch)
    else:
        named = UnavailableError(
            f"sink {ask.sink!r} failed",
            detail=f"{type(error).__name__}: {error}",
            hint=getattr(error, "hint", None),
            epoch=ask.epoch,
        )
    named.__cause__ = error
    return named
