"""Delivers one epoch to one sink.

Law 7: a sink receives the difference between the rows it read at the previous epoch and those it reads at
this epoch, by the programs of these epochs.  An error of the sink is an event, so it stops nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from millpond import delta as deltas
from millpond.engine.change.backfill import write_errors
from millpond.engine.coordinator.append_sinks import insertions_only, is_append_only
from millpond.engine.coordinator.protocol import Deliver, Delivered, DeliverFailed
from millpond.engine.coordinator.running_program import RunningProgram
from millpond.engine.coordinator.sink_deliveries import is_empty
from millpond.engine.coordinator.worker_preparing import WorkerPreparing
from millpond.engine.missing_files import missing_file_error
from millpond.engine.task.worker import Worker
from millpond.errors import DataError, MillpondError, UnavailableError
from millpond.kernels.user_code import ENDINGS, is_interrupt
from millpond.plan.nodes import SinkNode
from millpond.plan.sink_settings import guarantee_of, modes_of
from millpond.plan.view_changes import (
    OTHER_PROGRAM,
    PlanOf,
    all_rows,
    sink_changes,
    sink_table,
)
from millpond.secret_references import secrets_from
from millpond.sinks.delivery import Delivery, EpochDelta, RefusedRow, SinkBinding
from millpond.sinks.row_changes import appended
from millpond.sinks.writing import SinkWriters
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.runs.run_ref import RunRef
from millpond.state.secret_files import SecretFiles
from millpond.state.store.store import MissingError


def deliver(
    ask: Deliver,
    program: RunningProgram,
    worker: Worker,
    head: Manifest | None,
    writers: SinkWriters,
    preparing: WorkerPreparing,
) -> Delivered | DeliverFailed:
    node = program.plan.sinks.get(ask.sink)
    if node is None:
        gone = UnavailableError("the sink was dropped", detail=ask.sink)
        return DeliverFailed(ask.sink, ask.epoch, gone)
    try:
        delivery = _delivery(ask, node, program, worker)
    except MissingError as error:
        return DeliverFailed(ask.sink, ask.epoch, missing_file_error(worker.store, head, error))
    except MillpondError as error:
        return DeliverFailed(ask.sink, ask.epoch, error)
    if delivery is None:
        return Delivered(ask.sink, ask.epoch)
    try:
        with secrets_from(SecretFiles(worker.store).value):
            refused = writers.write(node.sink, delivery, partial(preparing.prepare, ask))
    except (Exception, *ENDINGS) as error:
        if is_interrupt(error):
            raise
        return DeliverFailed(ask.sink, ask.epoch, _named(ask, error))
    try:
        return Delivered(
            ask.sink,
            ask.epoch,
            _error_rows(ask, refused, worker),
            len(refused),
            rows=sum(part.delta.num_rows for part in delivery.parts),
            bytes=sum(part.delta.nbytes for part in delivery.parts),
        )
    except MillpondError as error:
        return DeliverFailed(ask.sink, ask.epoch, error)


def _delivery(ask: Deliver, node: SinkNode, program: RunningProgram, worker: Worker) -> Delivery | None:
    """What the sink receives; None if nothing has changed."""
    parts = []
    for epoch in range(ask.first, ask.epoch + 1):
        changes = _changes(ask, epoch, node, program, worker)
        if changes is not None and changes.num_rows:
            parts.append(EpochDelta(epoch, changes))
    if not parts:
        return None
    manifest = history.read_manifest(worker.store, ask.epoch)
    last = parts[-1].delta
    schema = pa.schema(
        [last.schema.field(n) for n in last.column_names if n not in (deltas.WEIGHT, deltas.HASH)]
    )
    settings = node.settings
    mode = settings.mode or modes_of(node.sink)[0]
    binding = SinkBinding(
        manifest.pond,
        ask.sink,
        ask.token,
        mode,
        settings.guarantee or guarantee_of(node.sink),
        settings.key,
        schema.remove_metadata(),
    )
    rows = None
    if mode == "complete":
        table = sink_table(program.plan_of(manifest, worker), ask.sink)
        snapshot = Snapshot(worker.store, manifest, worker.pages, worker.open_file)
        rows = schema.empty_table() if table is None else appended(all_rows(snapshot, table))
    deltas_of_epochs = tuple(EpochDelta(part.epoch, _with_columns(part.delta, schema)) for part in parts)
    return Delivery(binding, ask.epoch, ask.first - 1, deltas_of_epochs, rows)


def _with_columns(delta: pa.Table, schema: pa.Schema) -> pa.Table:
    """The delta with the columns of the newest epoch of a delivery; new ones are NULL in older rows."""
    wanted = [*schema, pa.field(deltas.WEIGHT, pa.int64())]
    if delta.schema.names == [f.name for f in wanted]:
        return delta
    names = delta.column_names
    columns = [
        delta.column(f.name).cast(f.type) if f.name in names else pa.nulls(delta.num_rows, f.type)
        for f in wanted
    ]
    return pa.table(columns, schema=pa.schema(wanted))


def _changes(
    ask: Deliver, epoch: int, node: SinkNode, program: RunningProgram, worker: Worker
) -> pa.Table | None:
    """The delta of one epoch that the sink receives."""
    manifest = history.read_manifest(worker.store, epoch)
    if is_empty(manifest) and manifest.kind != "takeover" and not (ask.all_rows and epoch == ask.first):
        return None
    snapshot = Snapshot(worker.store, manifest, worker.pages, worker.open_file)
    plan = program.plan_of(manifest, worker)
    if ask.all_rows and epoch == ask.first:
        table = sink_table(plan, ask.sink)
        return None if table is None or not node.settings.snapshot else all_rows(snapshot, table)
    if not node.settings.snapshot and _is_new(ask.sink, snapshot, lambda m: program.plan_of(m, worker)):
        return None
    delta = sink_changes(snapshot, ask.sink, lambda m: program.plan_of(m, worker))
    if delta is not None and manifest.kind == "rollback" and is_append_only(node):
        return insertions_only(delta)  # the rollback was forced
    return delta


def _is_new(sink: str, snapshot: Snapshot, plan_of: PlanOf) -> bool:
    """Does this epoch create the sink, in a pond that exists?"""
    if snapshot.epoch == 0 or snapshot.manifest.kind not in OTHER_PROGRAM:
        return False
    return sink_table(plan_of(snapshot.at(snapshot.epoch - 1).manifest), sink) is None


def _error_rows(ask: Deliver, refused: Sequence[RefusedRow], worker: Worker) -> tuple[RunRef, ...]:
    """Write the rows that a target refused as error rows, which the next commit contains."""
    if not refused:
        return ()
    rows = pa.table(
        {
            "step": pa.array([ask.sink] * len(refused), pa.string()),
            "row": pa.array([r.row for r in refused], pa.string()),
            "reason": pa.array([r.reason for r in refused], pa.string()),
            deltas.WEIGHT: pa.array([1] * len(refused), pa.int64()),
        }
    )
    return write_errors(worker, {ask.error_bucket: rows}, ask.token, ask.head)


def _named(ask: Deliver, error: BaseException) -> MillpondError:
    """The error with the name of the sink; a Millpond error keeps its kind, which says who must act.

    A DataError of a target is no damage of the pond: the pond runs on, and the delivery is tried again.
    """
    named: MillpondError
    if isinstance(error, MillpondError):
        message = f"sink {ask.sink!r} failed: {error.message}"
        kind = UnavailableError if isinstance(error, DataError) else type(error)
        named = kind(message, detail=error.detail, hint=error.hint, epoch=ask.epoch)
    else:
        named = UnavailableError(
            f"sink {ask.sink!r} failed",
            detail=f"{type(error).__name__}: {error}",
            hint=getattr(error, "hint", None),
            epoch=ask.epoch,
        )
    named.__cause__ = error
    return named
