"""SHOW: lists objects, epochs, savepoints, watermarks, lag, scaling and late rows, or shows a definition.

SHOW { TABLES | SOURCES | VIEWS | … } [FROM schema] [LIKE 'pattern']     SHOW INDEXES [FROM table]
SHOW COLUMNS FROM name     SHOW SCHEMAS     SHOW CREATE [kind] name
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.masking import masked_options
from millpond.plan.objects import SEQUENCE_OF, SqlObject
from millpond.sql.result import Result
from millpond.sql.statements.comment import comment_statements
from millpond.sql.statements.describe import described, described_functions, texts
from millpond.sql.statements.objects import all_objects_with_uses
from millpond.sql.text.parse import Words, closest_name
from millpond.sql.text.schema_names import PUBLIC, as_written, schema_of, without_schema

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_KINDS = {
    "TABLES": ("table",),
    "SOURCES": ("source",),
    "VIEWS": ("view", "materialized view"),
    "SINKS": ("sink",),
    "INDEXES": ("index",),
    "FUNCTIONS": ("function",),
    "LATE": ("late rows",),
    "OBJECTS": ("table", "source", "view", "materialized view", "sink", "index"),
}
_SQL_TYPES = {
    pa.string(): "VARCHAR",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us"): "TIMESTAMP",
}
_SINKS = pa.schema(
    [
        ("name", pa.string()),
        ("kind", pa.string()),
        ("view", pa.string()),
        ("connector", pa.string()),
        ("mode", pa.string()),
        ("guarantee", pa.string()),
        ("state", pa.string()),
        ("epoch", pa.int64()),
        ("behind", pa.int64()),
        ("error", pa.string()),
    ]
)
_EPOCHS = pa.schema(
    [
        ("epoch", pa.int64()),
        ("kind", pa.string()),
        ("at", pa.timestamp("us")),
        ("rows", pa.int64()),
        ("ms", pa.float64()),
        ("note", pa.string()),
    ]
)


def run(session: SqlSession, words: Words) -> Result:
    only_kept = words.take("MATERIALIZED")
    what = words.fragment.word(words.at)
    words.at += 1
    if what in _DEFINITIONS:
        return _DEFINITIONS[what](session, words)
    if what in _KINDS:
        return _objects(session, words, what, only_kept)
    words.end()
    if what in _FACTS:
        return _FACTS[what](session)
    names = [*_KINDS, *_DEFINITIONS, *_FACTS, "CONNECTORS", "SECRETS", "JOBS"]
    words.at -= 1
    words.fail("SHOW what?", closest_name(what or "?", names) or f"one of {', '.join(names)}")
    raise AssertionError


def _definition(session: SqlSession, words: Words) -> Result:
    words.take("MATERIALIZED", "VIEW") or words.take("VIEW") or words.take("TABLE") or words.take("SINK")
    _ = len(words.rest) > 1 and words.take("INDEX")
    _ = len(words.rest) > 1 and words.take("FUNCTION")
    found = session.catalog.get(words.name())
    words.end()
    said = [found.said or f"{found.kind} of the flow API", *found.options.get("altered", ())]
    said += comment_statements(found)
    return texts(["definition"], [[masked_options(as_written(";\n".join(said), session.catalog.schemas))]])


def _columns(session: SqlSession, words: Words) -> Result:
    words.need("FROM")
    found = session.catalog.get(words.name())
    words.end()
    return described(list(found.columns), found.key)


def _schemas(session: SqlSession, words: Words) -> Result:
    _, pattern = _limits(words, "SCHEMAS")
    names = sorted({PUBLIC, "information_schema", "pg_catalog", *session.catalog.schemas})
    return texts(["name"], [[name] for name in names if _like(name, pattern)])


def _objects(session: SqlSession, words: Words, what: str, only_kept: bool) -> Result:
    """List the objects of some kinds."""
    within, pattern = _limits(words, what)
    kinds = ("materialized view",) if only_kept else _KINDS[what]
    schemas = session.catalog.schemas
    known = session.catalog.objects if what == "FUNCTIONS" else all_objects_with_uses(session.plan)
    found = [
        o
        for o in known.values()
        if o.kind in kinds
        and (what != "TABLES" or SEQUENCE_OF not in o.options)
        and _is_within(session, o, within)
        and _like(without_schema(o.name, schemas), pattern)
    ]
    if what == "FUNCTIONS":
        return described_functions(found)
    if what == "SINKS":
        return _sinks(session, found)
    if what == "LATE":
        return _late(session, found)
    head = session.host.find_head()
    stopped = {} if head is None else head.stopped_sinks
    listed = [
        [
            o.name,
            f"{stopped[o.name]} sink" if o.kind == "sink" and o.name in stopped else o.kind,
            ", ".join(f"{c.name} {c.type}" for c in o.columns),
        ]
        for o in found
    ]
    return texts(["name", "kind", "columns"], sorted(listed))


def _sinks(session: SqlSession, objects: list[SqlObject]) -> Result:
    """List sinks with what they promise and how far they are."""
    names = {o.name for o in objects}
    found = sorted((s for s in session.host.sinks() if s.name in names), key=lambda sink: sink.name)
    rows = {
        "name": [s.name for s in found],
        "kind": [f"{s.state} sink" if s.state in ("detached", "paused") else "sink" for s in found],
        "view": [s.view for s in found],
        "connector": [s.connector for s in found],
        "mode": [s.mode for s in found],
        "guarantee": [s.guarantee for s in found],
        "state": [s.state for s in found],
        "epoch": [s.epoch for s in found],
        "behind": [s.behind for s in found],
        "error": [None if s.error is None else str(s.error).partition("\n")[0] for s in found],
    }
    types = [_SQL_TYPES[f.type] for f in _SINKS]
    return Result.of_rows(_SINKS.names, types, pa.table(rows, schema=_SINKS))


def _late(session: SqlSession, found: list[SqlObject]) -> Result:
    """List the tables of late rows, with the number of rows and the watermark of each."""
    head = session.host.head() if session.has_epoch() else None
    counts = {} if head is None else head.counts
    marks = {o.name: None if head is None else head.watermarks.get(o.options["watermark"]) for o in found}
    rows = {
        "name": pa.array([o.name for o in found], pa.string()),
        "rows": pa.array([counts.get(f"late/{o.options['watermark']}", 0) for o in found], pa.int64()),
        "watermark": pa.array([m and m["bound"] for m in marks.values()], pa.timestamp("us")),
    }
    return Result.of_rows(list(rows), ["VARCHAR", "BIGINT", "TIMESTAMP"], pa.table(rows).sort_by("name"))


def _limits(words: Words, what: str) -> tuple[str | None, str | None]:
    """Read `FROM schema`, of indexes `FROM table`, and `LIKE 'pattern'`: what SHOW is limited to."""
    within = (
        words.name("name of a table" if what == "INDEXES" else "name of a schema")
        if words.take("FROM")
        else None
    )
    pattern = words.text() if words.take("LIKE") else None
    words.end()
    return within, pattern


def _like(name: str, pattern: str | None) -> bool:
    """Does a name match a pattern of LIKE?"""
    if pattern is None:
        return True
    parts = ({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern)
    return re.fullmatch("".join(parts), name, re.IGNORECASE) is not None


def _is_within(session: SqlSession, found: SqlObject, within: str | None) -> bool:
    """Is an object in a schema, or an index on a table?"""
    if within is None:
        return True
    if found.kind == "index":
        return session.catalog.get(within).name in found.uses
    return (schema_of(found.name, session.catalog.schemas) or PUBLIC).lower() == within.lower()


def _epochs(session: SqlSession) -> Result:
    epochs = session.host.epochs() if session.has_epoch() else []
    rows = [
        {
            "epoch": e.epoch,
            "kind": e.kind,
            "at": e.when.replace(tzinfo=None),
            "rows": e.rows,
            "ms": e.ms,
            "note": e.note,
        }
        for e in epochs
    ]
    types = ["BIGINT", "VARCHAR", "TIMESTAMP", "BIGINT", "DOUBLE", "VARCHAR"]
    return Result.of_rows(_EPOCHS.names, types, pa.Table.from_pylist(rows, schema=_EPOCHS))


def _savepoints(session: SqlSession) -> Result:
    savepoints = session.host.savepoints() if session.has_epoch() else {}
    return texts(["name", "epoch"], [[name, str(epoch)] for name, epoch in sorted(savepoints.items())])


def _watermarks(session: SqlSession) -> Result:
    return _typed(session.host.watermarks())


def _lag(session: SqlSession) -> Result:
    return _typed(session.host.source_lag())


def _shedding(session: SqlSession) -> Result:
    return _typed(session.host.shedding())


def _scaling(session: SqlSession) -> Result:
    session.require_epoch()
    return _typed(session.host.scaling())


def _typed(table: pa.Table) -> Result:
    return Result.of_rows(table.column_names, [_SQL_TYPES[f.type] for f in table.schema], table)


# What words may follow.
_DEFINITIONS: dict[str, Callable[[SqlSession, Words], Result]] = {
    "CREATE": _definition,
    "COLUMNS": _columns,
    "SCHEMAS": _schemas,
}
# What stands alone.
_FACTS: dict[str, Callable[[SqlSession], Result]] = {
    "EPOCHS": _epochs,
    "SAVEPOINTS": _savepoints,
    "WATERMARKS": _watermarks,
    "LAG": _lag,
    "SHEDDING": _shedding,
    "SCALING": _scaling,
}
