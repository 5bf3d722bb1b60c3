"""What a pond knows about itself, as relations of one epoch: the schema `millpond` in SQL.

Law: every row comes from the manifests, the catalog and the storage, so any process can read them,
without a running pipeline, and for past epochs too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.delta import WEIGHT
from millpond.errors import UnavailableError
from millpond.kernels.duck import connect, handed
from millpond.kernels.value_errors import with_readable_reasons
from millpond.masking import masked_options
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ConstantRows, ReadsInbox, ReportsLag
from millpond.plan.nodes import Plan
from millpond.plan.sink_check import SinkStatus, connector_of, promise_of
from millpond.plan.tables import table_specs
from millpond.plan.tags import tag_of
from millpond.serve.epoch_summaries import summary
from millpond.serve.epoch_times import level_ms, level_skew, phase_ms, skew
from millpond.serve.sink_lag import epochs_behind
from millpond.serve.source_lag import source_lag
from millpond.serve.step_activity import STEPS, step_rows
from millpond.serve.watermark_progress import COLUMNS as WATERMARKS
from millpond.serve.watermark_progress import watermark_progress
from millpond.sql.binding.catalog import all_objects
from millpond.state.audit_log import read_audit
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest, is_retained
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.retention import LATE
from millpond.state.tables.error_rows import ERRORS_SPEC
from millpond.stored_code import Stored

TEXT, WHOLE, REAL, TIME = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us")


@dataclass(frozen=True)
class Known:
    """One epoch, its plan, and what the process that asks knows beyond the manifests."""

    snapshot: Snapshot
    plan: Plan
    is_newest: bool
    sinks: Callable[[], list[SinkStatus]]  # as the runner of this process knows them
    # Rows of `epochs` that were read before: manifests never change, and there may be thousands of them.
    epoch_rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def relations(self) -> dict[str, str]:
        """The name of the view that shows each table."""
        return {view.table: view.name for view in self.plan.views.values()}


Rows = Callable[[Known], Iterator[pa.Table]]

EPOCHS = pa.schema(
    [
        ("epoch", WHOLE),
        ("kind", TEXT),  # epoch, create, takeover, change, rollback, fork
        ("at", TIME),
        ("rows", WHOLE),  # admitted; NULL if no level was run
        ("ms", REAL),  # for running the levels
        ("admit_ms", REAL),  # for asking the sources
        ("commit_ms", REAL),  # of the commit before
        ("deliver_ms", REAL),  # of the deliveries to sinks since the epoch before
        ("level_ms", pa.list_(REAL)),  # of the slowest task of each level
        ("level_skew", pa.list_(REAL)),  # of which that is a multiple of the mean of its level
        ("parallelism", WHOLE),
        ("tasks", WHOLE),
        ("skew", REAL),  # the slowest task of the slowest level, as a multiple of the mean of that level
        ("backlog_rows", WHOLE),  # that the sources had left; NULL if unknown
        ("late_rows", WHOLE),  # in all epochs up to this one
        ("error_rows", WHOLE),
        ("changed_rows", WHOLE),  # of all state tables
        ("bytes", WHOLE),  # of new state
        ("note", TEXT),
    ]
)


def _epochs(known: Known) -> Iterator[pa.Table]:
    store, head = known.snapshot.store, known.snapshot.manifest
    retained = [e for e in history.epochs(store) if is_retained(head, e) and e <= head.epoch]
    for old in [epoch for epoch in list(known.epoch_rows) if epoch < head.floor]:
        known.epoch_rows.pop(old, None)
    rows = []
    for epoch in retained:
        row = known.epoch_rows.get(epoch)
        if row is None:
            manifest = head if epoch == head.epoch else history.find_manifest(store, epoch)
            if manifest is None:  # collected meanwhile
                continue
            row = known.epoch_rows[epoch] = _epoch_row(manifest)
        named = [f"savepoint {name}" for name, e in head.savepoints.items() if e == epoch]
        rows.append({**row, "note": ", ".join([*named, *([row["note"]] if row["note"] else [])]) or None})
    yield pa.Table.from_pylist(rows, schema=EPOCHS)


def _epoch_row(manifest: Manifest) -> dict[str, Any]:
    shown, metrics = summary(manifest, {}), manifest.metrics
    return {
        "epoch": shown.epoch,
        "kind": shown.kind,
        "at": shown.when.replace(tzinfo=None),
        "rows": shown.rows,
        "ms": shown.ms,
        "admit_ms": phase_ms(metrics, "admit"),
        "commit_ms": phase_ms(metrics, "commit"),
        "deliver_ms": phase_ms(metrics, "deliver"),
        "level_ms": level_ms(metrics) if "tasks" in metrics else None,
        "level_skew": level_skew(metrics) if "tasks" in metrics else None,
        "parallelism": shown.parallelism,
        "tasks": sum(shown.tasks) if shown.tasks else None,
        "skew": skew(metrics),
        "backlog_rows": sum(metrics["backlog"].values()) if "backlog" in metrics else None,
        "late_rows": _counted(manifest, "late/"),
        "error_rows": _counted(manifest, "errors/"),
        "changed_rows": sum(shown.changed.values()),
        "bytes": shown.bytes,
        "note": shown.note,
    }


def _counted(manifest: Manifest, prefix: str) -> int:
    return sum(count for name, count in manifest.counts.items() if name.startswith(prefix))


def _watermarks(known: Known) -> Iterator[pa.Table]:
    yield watermark_progress(known.plan, known.snapshot.manifest, known.snapshot.listing)


def _steps(known: Known) -> Iterator[pa.Table]:
    yield step_rows(known.plan, known.snapshot)


TABLES = pa.schema(
    [
        ("table", TEXT),
        ("relation", TEXT),  # the view or SQL table that shows its rows
        ("step", TEXT),
        ("state", TEXT),
        ("rule", TEXT),  # latest, weights
        ("key", TEXT),
        ("rows", WHOLE),  # an upper bound: runs may overlap
        ("bytes", WHOLE),
        ("runs", WHOLE),
        ("buckets", WHOLE),  # of time; NULL if the table has none
    ]
)


def _tables(known: Known) -> Iterator[pa.Table]:
    rows = []
    specs = {**table_specs(known.plan), ERRORS_SPEC.name: ERRORS_SPEC}
    for name in sorted({*specs, *known.snapshot.listing.tables()}):
        spec, runs = specs.get(name), known.snapshot.runs(name)
        step, _, state = name.rpartition("/")
        rows.append(
            {
                "table": name,
                "relation": known.relations.get(name),
                "step": step or None,
                "state": state,
                "rule": None if spec is None else spec.rule,
                "key": None if spec is None else ", ".join(spec.key),
                "rows": sum(r.rows for r in runs),
                "bytes": sum(r.bytes for r in runs),
                "runs": len(runs),
                "buckets": len({r.bucket for r in runs}) if spec is not None and spec.time else None,
            }
        )
    yield pa.Table.from_pylist(rows, schema=TABLES)


SINKS = pa.schema(
    [
        ("name", TEXT),
        ("view", TEXT),
        ("connector", TEXT),
        ("mode", TEXT),
        ("guarantee", TEXT),
        ("state", TEXT),  # current, behind, failed, detached, paused
        ("epoch", WHOLE),  # the last that it received
        ("behind", WHOLE),  # epochs with changes that it has not received
        ("error", TEXT),
    ]
)


def _sinks(known: Known) -> Iterator[pa.Table]:
    statuses = known.sinks() if known.is_newest else _stored_sinks(known)
    rows = [
        {
            **{name: getattr(s, name) for name in SINKS.names if name != "error"},
            "error": None if s.error is None else str(s.error).partition("\n")[0],
        }
        for s in sorted(statuses, key=lambda s: s.name)
    ]
    yield pa.Table.from_pylist(rows, schema=SINKS)


def _stored_sinks(known: Known) -> list[SinkStatus]:
    """The sinks as the manifest of a past epoch has them."""
    manifest = known.snapshot.manifest
    statuses = []
    for node in known.plan.sinks.values():
        cursor, stopped = manifest.cursors.get(node.name), manifest.stopped_sinks.get(node.name)
        behind = epochs_behind(known.snapshot.store, manifest, -1 if cursor is None else cursor)
        state = stopped or ("behind" if behind else "current")
        statuses.append(
            SinkStatus(
                node.name,
                state,
                None if stopped else cursor,
                None,
                node.view,
                connector_of(node.sink),
                *promise_of(node),
                None if stopped else behind,
            )
        )
    return statuses


SOURCES = pa.schema(
    [
        ("source", TEXT),
        ("connector", TEXT),
        ("relation", TEXT),  # its name in SQL
        ("partition", TEXT),  # NULL: the source as a whole
        ("position", TEXT),  # the next that is read
        ("end_position", TEXT),  # after the last that can be read
        ("lag", WHOLE),  # rows between them; NULL if the source cannot say
        ("error", TEXT),  # why the source could not be asked
    ]
)


def _sources(known: Known) -> Iterator[pa.Table]:
    """A row for each partition of the sources that can tell, else one for each source.

    For the newest epoch it asks the servers; one that does not answer becomes `error`.
    """
    relations = {o.scan: o.name for o in all_objects(known.plan).values() if o.scan is not None}
    rows: list[dict[str, Any]] = []
    for node in known.plan.nodes.values():
        if not isinstance(node.operator, Scan) or isinstance(node.operator.source, ConstantRows):
            continue
        source = node.operator.source
        position = known.snapshot.manifest.positions.get(node.step)
        facts: dict[str, Any] = {
            "source": node.step,
            "connector": _connector(source),
            "relation": relations.get(node.step),
        }
        parts, error = [], None
        if known.is_newest and isinstance(source, ReportsLag):
            try:
                only = Plan(nodes={node.step: node})
                parts = source_lag(only, known.snapshot.manifest).to_pylist()
            except UnavailableError as failure:
                error = failure.message
        for part in parts:
            at = {"partition": part["partition"], "position": _text(part["position"])}
            rows.append({**facts, **at, "end_position": _text(part["end"]), "lag": part["lag"]})
        if not parts:
            rows.append({**facts, "position": _text(position), "error": error})
    yield pa.Table.from_pylist(rows, schema=SOURCES)


def _connector(source: Any) -> str:
    if isinstance(source, ReadsInbox):
        return "inbox"
    if isinstance(source, Stored):
        return source.name
    cls: type = type(source)
    tag = tag_of(cls)
    return cls.__name__ if tag is None else tag.removeprefix("source.")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, default=str)


ERRORS = pa.schema([("step", TEXT), ("row", TEXT), ("reason", TEXT), ("weight", WHOLE)])


def _errors(known: Known) -> Iterator[pa.Table]:
    names = ERRORS_SPEC.schema.names
    rows = known.snapshot.table(ERRORS_SPEC).scan(names).select([*names, WEIGHT])
    yield with_readable_reasons(rows.rename_columns([*names, "weight"]).cast(ERRORS))


LATE_ROWS = pa.schema([("step", TEXT), ("relation", TEXT), ("row", TEXT)])


def _late(known: Known) -> Iterator[pa.Table]:
    """The late rows that are kept, each as JSON: tables differ in their columns."""
    yield LATE_ROWS.empty_table()
    watermarks = {
        o.options["watermark"]: o.name for o in all_objects(known.plan).values() if o.kind == "late rows"
    }
    for name, spec in table_specs(known.plan).items():
        if not name.endswith(LATE):
            continue
        step = name.removesuffix(LATE)
        for batch in known.snapshot.scan_batches(spec, spec.schema.names):
            if batch.num_rows:
                rows = _as_json(batch)
                facts = [
                    pa.repeat(pa.scalar(step, TEXT), len(rows)),
                    pa.repeat(pa.scalar(watermarks.get(step), TEXT), len(rows)),
                ]
                yield pa.table([*facts, rows], schema=LATE_ROWS)


def _as_json(rows: pa.Table) -> pa.Array:
    """Every row as a JSON object."""
    with connect({"threads": 1}) as connection:
        connection.register("late_rows", handed(rows))
        lines = connection.sql("select cast(to_json(late_rows) as varchar) as line from late_rows")
        return lines.to_arrow_table().column(0).combine_chunks().cast(TEXT)


SAVEPOINTS = pa.schema([("name", TEXT), ("epoch", WHOLE)])


def _savepoints(known: Known) -> Iterator[pa.Table]:
    savepoints = sorted(known.snapshot.manifest.savepoints.items())
    yield pa.Table.from_pylist([{"name": n, "epoch": e} for n, e in savepoints], schema=SAVEPOINTS)


OBJECTS = pa.schema(
    [
        ("name", TEXT),
        ("kind", TEXT),
        ("columns", TEXT),
        ("key", TEXT),
        ("uses", TEXT),
        ("definition", TEXT),  # as it was written, without secrets; NULL if Python defined it
    ]
)


def _objects(known: Known) -> Iterator[pa.Table]:
    rows = [
        {
            "name": o.name,
            "kind": o.kind,
            "columns": ", ".join(f"{c.name} {c.type}" for c in o.columns),
            "key": ", ".join(o.key or _lookup_key(known.plan, o.name)) or None,
            "uses": ", ".join(o.uses) or None,
            "definition": masked_options(";\n".join([o.said, *o.options.get("altered", ())]))
            if o.said
            else None,
        }
        for o in all_objects(known.plan).values()
    ]
    yield pa.Table.from_pylist(rows, schema=OBJECTS)


def _lookup_key(plan: Plan, name: str) -> tuple[str, ...]:
    """The columns that a view is looked up by, in the names that it shows."""
    view = plan.views.get(name)
    if view is None:
        return ()
    spec = next(t for t in plan.nodes[view.step].binding.tables if t.name == view.table)
    shown = {stored: shown for shown, stored in view.columns}
    names = view.stored_columns(plan.shape(view.step).schema.names)
    return tuple(shown.get(k, k) for k in spec.key) if set(spec.key) <= set(names) else ()


AUDIT = pa.schema(
    [
        ("at", TIME),
        ("last_at", TIME),  # equal statements within about a second are one row
        ("user_name", TEXT),
        ("protocol", TEXT),  # pg, http, flight
        ("address", TEXT),
        ("kind", TEXT),  # the verb, LOGIN, or an action of the dashboard
        ("statement", TEXT),  # without secrets
        ("outcome", TEXT),  # ok, or the kind of the error
        ("error", TEXT),
        ("count", WHOLE),
        ("ms", REAL),  # of all of them
    ]
)


def _audit(known: Known) -> Iterator[pa.Table]:
    rows = [
        {
            "at": one.at_us,
            "last_at": one.last_us,
            "user_name": one.user,
            "protocol": one.protocol,
            "address": one.address,
            "kind": one.kind,
            "statement": one.statement,
            "outcome": one.outcome,
            "error": one.error,
            "count": one.count,
            "ms": one.ms,
        }
        for one in read_audit(known.snapshot.store)
    ]
    yield pa.Table.from_pylist(rows, schema=AUDIT)


RELATIONS: Mapping[str, tuple[pa.Schema, Rows]] = {
    "epochs": (EPOCHS, _epochs),
    "watermarks": (WATERMARKS, _watermarks),
    "steps": (STEPS, _steps),
    "tables": (TABLES, _tables),
    "sinks": (SINKS, _sinks),
    "sources": (SOURCES, _sources),
    "errors": (ERRORS, _errors),
    "late": (LATE_ROWS, _late),
    "savepoints": (SAVEPOINTS, _savepoints),
    "audit": (AUDIT, _audit),
    "objects": (OBJECTS, _objects),
}
