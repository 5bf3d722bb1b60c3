"""Streams, tables and functions that Python defines, as steps of the plan in the making."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.calls import need_text
from millpond.flow.durations import Duration
from millpond.flow.names import check_columns, check_name
from millpond.flow.schemas import Like, schema_of
from millpond.flow.stream import Stream, ViewHandle
from millpond.operators.bag import Bag
from millpond.operators.duck import quoted
from millpond.operators.scan import Scan
from millpond.operators.upsert import Upsert
from millpond.plan.change import dependants, require_view, without_views
from millpond.plan.nodes import Plan
from millpond.pond.parts import Parts
from millpond.pond.places import folder_of
from millpond.sources.inbox_table import SEQUENCE, InboxTable
from millpond.state.store import Store

if TYPE_CHECKING:
    from millpond.sql.session import Session

FunctionKind = Literal["scalar", "aggregate", "table"]


@contextlib.contextmanager
def _whole(builder: Builder) -> Iterator[None]:
    """A definition that is refused leaves nothing behind."""
    before = builder.plan
    try:
        yield
    except BaseException:
        builder.plan = before
        raise


def stream(
    builder: Builder, store: Store, name: str, source: Any, event_time: str | None, delay: Duration
) -> Stream:
    _check_free(builder, "a stream", name)
    _check_source(name, source)
    if event_time is None and delay:
        raise InvalidError(
            "delay= needs event_time=",
            detail=f"delay is {delay!r}",
            hint='stream(..., event_time="at", delay="5s")',
        )
    if hasattr(source, "staged"):
        source = source.staged(folder_of(store, name), name)
    check_columns(source.schema.names, f"stream {name!r}")
    with _whole(builder):
        step = builder.add(name, Scan(source, source.schema, source.append_only), (), name)
        if not source.append_only:
            step = builder.add(None, Bag(), (step,), f"{name}.rows")
        found = Stream(builder, step)
        return found if event_time is None else found.watermark(event_time, delay, id=f"{name}.watermark")


def table(builder: Builder, name: str, schema: Like, key: str | Sequence[str] | None) -> ViewHandle:
    _check_free(builder, "a table", name)
    if key is not None and not isinstance(key, str | Sequence):
        raise InvalidError("the key of a table must be some of its columns", detail=f"got {key!r}", step=name)
    columns = schema_of(schema, step=name)
    check_columns(columns.names, f"table {name!r}")
    source = InboxTable(columns)
    with _whole(builder):
        scan = builder.add(name, Scan(source, source.schema, False), (), name)
        if key is None:
            step = builder.add(None, Bag(SEQUENCE), (scan,), f"{name}.rows")
        else:
            by = (key,) if isinstance(key, str) else tuple(key)
            step = builder.add(None, Upsert(by, SEQUENCE), (scan,), f"{name}.rows")
        return Stream(builder, step).view(name)


def _check_source(name: str, source: Any) -> None:
    """Refuse what is no source, and say what to use for what it is."""
    if not isinstance(source, type) and all(hasattr(source, part) for part in ("poll", "read", "schema")):
        return
    if hasattr(source, "staged") and not isinstance(source, type):
        return
    kind = type(source)
    library = kind.__module__.partition(".")[0]
    if isinstance(source, type):
        hint = f"pass an instance: {source.__name__}(...)"
    elif isinstance(source, str | os.PathLike):
        hint = (
            f"of a folder of files: FileSource({os.fspath(source)!r}, format=...), of millpond.sources.files"
        )
    elif library == "pyspark":
        hint = "a Spark DataFrame is DataFrameSource(df), of millpond.sources.dataframe"
    elif library in ("pandas", "polars", "pyarrow") or isinstance(source, list | tuple):
        hint = (
            f"rows in memory go into a table: pond.table({name!r}, schema), and then "
            f"pond.insert({name!r}, rows); in tests use a MemorySource"
        )
    elif isinstance(source, Mapping):
        hint = f"rows that come by pond.insert() need pond.table({name!r}, {{...}}); tests, a MemorySource"
    else:
        hint = "for example FileSource(folder), KafkaSource(...), of millpond.sources"
    raise InvalidError(
        f"stream {name!r} needs a source", detail=f"got {kind.__name__} {source!r}"[:200], hint=hint
    )


def _check_free(builder: Builder, what: str, name: str) -> None:
    """Names of streams and tables: SQL must tell them apart."""
    scans = [n.step for n in builder.plan.nodes.values() if isinstance(n.operator, Scan)]
    check_name(what, name, taken=scans)


def stream_of(builder: Builder, plan: Plan, name: str) -> Stream:
    """What has this name, in SQL or in Python, under the names that its columns are shown by."""
    from millpond.sql.catalog import Catalog  # SQL is loaded where it is used

    need_text("a name", name)
    found = Catalog(plan).get(name, "table", "source", "materialized view")
    assert found.step is not None
    stream = Stream(builder, found.step)
    called = [(c.name, c.held) for c in found.columns]
    if all(shown == held for shown, held in called):
        return stream
    return stream.select(**{shown: quoted(held) for shown, held in called})


def replace(builder: Builder, views: Sequence[str], backfill: bool) -> None:
    """Note which views may mean something else than in the pond; the next run acts on it."""
    if builder.sealed:
        raise InvalidError(
            "the pipeline is already running",
            hint="call replace() before drain(), start() or run(); of a running pond, drop the view and "
            "define it again inside `with pond.changing():`",
        )
    for name in views:
        require_view(builder.plan, name)
    if views:
        builder.replaced.update(dict.fromkeys(views, backfill))
    else:
        builder.replaces_all = backfill


def drops_later(parts: Parts, name: str, cascade: bool) -> bool:
    """Note that a view of the pond which this program leaves out may go; False where there is none."""
    builder, head = parts.builder, parts.head()
    if builder.sealed or not builder.plan.nodes or name in builder.plan.views or head is None:
        return False
    stored = parts.reader.plan_of(head)
    if name not in stored.views:
        return False
    others = [n for n in dependants(stored, [name]) if n in stored.views and n not in builder.plan.views]
    if others and not cascade:
        without_views(stored, [name])  # says who uses it
    builder.dropped.update([name, *others])
    return True


def function(
    session: Session,
    name: Any,
    function: Any,
    *,
    returns: Any,
    arguments: Any,
    kind: FunctionKind | None,
    vectorised: bool,
    nulls: bool,
    init: Callable[[], Any] | None,
    accumulate: Callable[..., Any] | None,
    retract: Callable[..., Any] | None,
    finish: Callable[[Any], Any] | None,
) -> Any:
    """Registered and given back, or, before the function is known, what will do so."""
    from millpond.operators.python_function import Steps
    from millpond.sql.python_functions import Registered, register

    if function is None and accumulate is not None and finish is not None and init is not None:
        function, kind = Steps(init, accumulate, finish, retract), kind or "aggregate"
    elif any(part is not None for part in (init, accumulate, retract, finish)):
        raise InvalidError(
            "an aggregate of functions needs init, accumulate and finish",
            hint="pass these three, and retract if there is one; or a class that has them",
        )
    if name is not None and not isinstance(name, str) and not callable(name):
        raise InvalidError(
            "a function needs a name", detail=f"got {name!r}", hint='pond.function("name", function)'
        )
    if function is None and callable(name):
        name, function = name.__name__, name

    def made(given: Any) -> Any:
        called = name if name is not None else given.__name__
        register(session, Registered(called, given, returns, arguments, kind, vectorised, nulls))
        return given

    return made if function is None else made(function)
