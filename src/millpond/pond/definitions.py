"""Adds the streams, tables and functions that Python defines to the plan."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from millpond.arguments.call_errors import need_text
from millpond.arguments.durations import Duration
from millpond.arguments.names import check_columns, check_name
from millpond.arguments.schemas import Like, schema_of
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream, ViewHandle
from millpond.kernels.duck import quoted
from millpond.kernels.watermark_strategies import Strategy
from millpond.operators.bag import Bag
from millpond.operators.scan import Scan
from millpond.operators.source_traits import RetractsOwnRows, StagesRows
from millpond.operators.upsert import Upsert
from millpond.plan.change import dependants, require_view, without_views
from millpond.plan.nodes import Plan
from millpond.pond.components import Components
from millpond.pond.location import folder_of
from millpond.sources.dataframe import DataFrameSource
from millpond.sources.inbox_table import SEQUENCE, InboxTable
from millpond.sources.streaming_dataframe import StreamingDataFrameSource
from millpond.state.store.store import Store

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

FunctionKind = Literal["scalar", "aggregate", "table", "watermark"]


@contextlib.contextmanager
def _all_or_nothing(builder: Builder) -> Iterator[None]:
    """Restore the plan if a definition is refused."""
    before = builder.plan
    try:
        yield
    except BaseException:
        builder.plan = before
        raise


def stream(
    builder: Builder,
    store: Store,
    name: str,
    source: Any,
    event_time: str | None,
    delay: Duration | Strategy,
    more: Mapping[str, Any],
) -> Stream:
    _check_free(builder, "a stream", name)
    source = _source_of_dataframe(source)
    _check_source(name, source)
    options = {"delay": delay or None, **more}
    first = next((option for option, value in options.items() if value is not None), None)
    if event_time is None and first is not None:
        raise InvalidError(
            f"{first}= needs event_time=",
            detail=f"{first} is {options[first]!r}",
            hint='stream(..., event_time="at", delay="5s")',
        )
    if isinstance(source, StagesRows):
        source = source.staged(folder_of(store, name), name)
    check_columns(source.schema.names, f"stream {name!r}")
    with _all_or_nothing(builder):
        step = builder.add(name, Scan(source, source.schema, source.append_only), (), name)
        if not source.append_only and not isinstance(source, RetractsOwnRows):
            step = builder.add(None, Bag(), (step,), f"{name}.rows")
        rows = Stream(builder, step)
        return (
            rows if event_time is None else rows.watermark(event_time, delay, id=f"{name}.watermark", **more)
        )


def table(builder: Builder, name: str, schema: Like, key: str | Sequence[str] | None) -> ViewHandle:
    _check_free(builder, "a table", name)
    if key is not None and not isinstance(key, str | Sequence):
        raise InvalidError("the key of a table must be some of its columns", detail=f"got {key!r}", step=name)
    columns = schema_of(schema, step=name)
    check_columns(columns.names, f"table {name!r}")
    source = InboxTable(columns)
    with _all_or_nothing(builder):
        scan = builder.add(name, Scan(source, source.schema, False), (), name)
        if key is None:
            step = builder.add(None, Bag(SEQUENCE), (scan,), f"{name}.rows")
        else:
            by = (key,) if isinstance(key, str) else tuple(key)
            step = builder.add(None, Upsert(by, SEQUENCE), (scan,), f"{name}.rows")
        return Stream(builder, step).view(name)


def _source_of_dataframe(source: Any) -> Any:
    """The source of a Spark DataFrame; other objects are returned as they are."""
    if type(source).__module__.partition(".")[0] != "pyspark" or not hasattr(source, "isStreaming"):
        return source
    return StreamingDataFrameSource(source) if source.isStreaming else DataFrameSource(source)


def _check_source(name: str, source: Any) -> None:
    """Refuse an object that is not a source, and suggest the source to use."""
    if not isinstance(source, type) and all(hasattr(source, part) for part in ("poll", "read", "schema")):
        return
    if isinstance(source, StagesRows) and not isinstance(source, type):
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
        hint = "pass a Spark DataFrame"
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
    """Refuse a name that SQL could not distinguish from another stream or table."""
    scans = [n.step for n in builder.plan.nodes.values() if isinstance(n.operator, Scan)]
    check_name(what, name, taken=scans)


def stream_of(builder: Builder, plan: Plan, name: str) -> Stream:
    """The stream of a table, source or materialized view, with the column names that SQL shows."""
    from millpond.sql.binding.catalog import Catalog  # SQL is loaded where it is used

    need_text("a name", name)
    relation = Catalog(plan).get(name, "table", "source", "materialized view")
    assert relation.step is not None
    stream = Stream(builder, relation.step)
    called = [(c.name, c.stored_name) for c in relation.columns]
    if all(shown == stored for shown, stored in called):
        return stream
    return stream.select(**{shown: quoted(stored) for shown, stored in called})


def replace(builder: Builder, views: Sequence[str], backfill: bool) -> None:
    """Record which views may differ from those of the pond; the next run replaces them."""
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


def drops_later(components: Components, name: str, cascade: bool) -> bool:
    """Record that a view that this program omits is to be dropped; False if the pond has none."""
    builder, head = components.builder, components.head()
    if builder.sealed or not builder.plan.nodes or name in builder.plan.views or head is None:
        return False
    stored = components.reader.plan_of(head)
    if name not in stored.views:
        return False
    others = [n for n in dependants(stored, [name]) if n in stored.views and n not in builder.plan.views]
    if others and not cascade:
        without_views(stored, [name])  # the error names the users of the view
    builder.dropped.update([name, *others])
    return True


def function(
    session: SqlSession,
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
    """Register a function and return it; without a function, return a decorator that does so."""
    from millpond.kernels.python_function import Steps
    from millpond.sql.binding.python_functions import Registered, register

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

    def made(code: Any) -> Any:
        called = name if name is not None else code.__name__
        register(session, Registered(called, code, returns, arguments, kind, vectorised, nulls))
        return code

    return made if function is None else made(function)
