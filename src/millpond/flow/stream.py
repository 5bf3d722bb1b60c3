"""Streams: the front end in Python.

Every method adds one step to the plan and returns a new stream.  Expressions
are SQL over the columns, typed when they are written; functions are Python.
Each step may be given an id, which names it in errors, metrics and state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.flow.aggregates import parse_aggregates
from millpond.flow.builder import Builder
from millpond.flow.call_errors import checked, need_number, need_text, no_method
from millpond.flow.durations import Duration, microseconds, strategy_of
from millpond.flow.join_time_bounds import time_spans
from millpond.flow.names import check_name
from millpond.flow.process import Target, process_batch_step, process_step
from millpond.flow.samples import batch_step_schema, rows_step_schema
from millpond.flow.schemas import Like, check_parameters, schema_of
from millpond.flow.window_steps import Mode, watermark_of
from millpond.flow.windowed import JoinKind, WindowedStream, windowing
from millpond.kernels.python_rows import Row
from millpond.kernels.triggers import Trigger
from millpond.kernels.watermark_strategies import Bounded, Custom, Strategy
from millpond.kernels.window_assigners import WindowAssigner
from millpond.operators.aggregate import Aggregate, AggregateFeed, Close, feeds_for
from millpond.operators.branch import Arm, Branch, Predicate
from millpond.operators.distinct import Distinct
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.emit_panes import EmitPanes
from millpond.operators.extreme import Extreme
from millpond.operators.filter import Filter
from millpond.operators.filter_rows import FilterRows
from millpond.operators.flat_map import FlatMap
from millpond.operators.in_order import InOrder
from millpond.operators.join import Join
from millpond.operators.late_rows import LateRows
from millpond.operators.map import Map
from millpond.operators.map_batches import MapBatches
from millpond.operators.materialize import Materialize
from millpond.operators.operator import Shape
from millpond.operators.per_key import PerKey, is_run_alone
from millpond.operators.reduce import Reduce
from millpond.operators.scan import Scan
from millpond.operators.shard import SHARD, Shard
from millpond.operators.top_n import TopN
from millpond.operators.union import Union
from millpond.operators.watermark import Watermark
from millpond.operators.window import Hop, Tumble
from millpond.ordering import Order
from millpond.plan.nodes import Node, SinkNode, View
from millpond.plan.watermark_steps import watermark_steps
from millpond.table_preview import html_facts

GLOBAL_BUCKETS = 16  # the first half of the hierarchy for a ranking without a key


KEY_FIRST = ("process", "process_batch", "apply", "first")
KEYED_HINTS = {
    **dict.fromkeys(("sum", "count", "min", "max", "avg", "agg"), 'use aggregate(n="count(*)", s="sum(x)")'),
}
STREAM_HINTS = {
    **KEYED_HINTS,
    **{name: f'call key_by("column") first: stream.key_by("column").{name}(...)' for name in KEY_FIRST},
    **dict.fromkeys(("group_by", "groupBy", "groupby", "keyBy"), 'use key_by("column")'),
    **dict.fromkeys(("where", "having"), 'use filter("condition")'),
    **dict.fromkeys(
        ("window", "windowed"), 'call key_by("column") first: key_by("column").window(tumbling("10s"))'
    ),
    **dict.fromkeys(("withColumn", "with_column", "assign"), 'use with_columns(name="expression")'),
    "sink": 'give it a name first: stream.view("name").sink("sink", ...)',
    "write": 'give it a name first: stream.view("name").sink("sink", ...)',
}


@checked
class Stream:
    """Rows that arrive, change and leave; every method adds a step and returns another stream.

    The examples of its methods begin with these lines:

    >>> import datetime, millpond
    >>> from millpond.sources.memory import MemorySource
    >>> pond = millpond.open("memory://", engine="inline")
    >>> orders = pond.table("orders", {"who": str, "n": int})
    >>> _ = pond.insert("orders", [{"who": "ann", "n": 5}, {"who": "bob", "n": 2}])
    >>> source = MemorySource({"page": str, "at": datetime.datetime})
    >>> clicks = pond.stream("clicks", source)
    >>> noon = datetime.datetime(2024, 1, 1, 12)
    >>> source.push([{"page": "home", "at": noon + datetime.timedelta(seconds=s)} for s in (1, 14)])
    """

    def __init__(self, builder: Builder, step: str) -> None:
        self._builder = builder
        self.step = step
        builder.track(self)

    def _follow(self, ids: Mapping[str, str]) -> None:
        """Use the new ids of steps: those that the pond has for them."""
        self.step = ids.get(self.step, self.step)

    def __repr__(self) -> str:
        return described(self, self._shown_name, self.shape.key)

    def _repr_html_(self) -> str:
        return described_html(self, self._shown_name, self.shape.key)

    @property
    def _shown_name(self) -> str:
        return self.step

    @property
    def shape(self) -> Shape:
        """What is known of the rows: schema, key, event time, watermark, and whether rows are only appended.

        >>> orders.shape.append_only, clicks.shape.append_only
        (False, True)
        """
        return self._builder.shape(self.step)

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types.

        >>> orders.schema.types
        [DataType(string), DataType(int64)]
        """
        return self.shape.schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns.

        >>> orders.columns
        ['who', 'n']
        """
        return list(self.schema.names)

    # -- row by row -----------------------------------------------------------

    def select(self, *columns: str, id: str | None = None, **computed: str) -> Stream:
        """Keep only these columns and these expressions.

        >>> _ = orders.select("who", double="n * 2").filter("who = 'ann'").view("doubles")
        >>> _ = pond.drain()
        >>> pond.read("doubles").to_pylist()
        [{'who': 'ann', 'double': 10}]
        """
        self._known(columns)
        if not columns and not computed:
            raise InvalidError(
                "select needs at least one column", hint='select("k", total="a + b")', step=self.step
            )
        _expressions(computed)
        pairs = [(c, _quoted(c)) for c in columns] + list(computed.items())
        return self._then(id, Map(tuple(pairs)), "select")

    def with_columns(self, *, id: str | None = None, **computed: str) -> Stream:
        """Keep all columns, and add or replace some by expressions.

        >>> orders.with_columns(n="n::double", large="n > 2")
        Stream('orders.rows.with_columns': who string, n double, large bool; from orders, orders.rows)
        """
        _expressions(computed)
        pairs = [(c, computed.get(c, _quoted(c))) for c in self.columns]
        pairs += [(c, e) for c, e in computed.items() if c not in self.columns]
        return self._then(id, Map(tuple(pairs)), "with_columns")

    def filter(self, predicate: Predicate, *, id: str | None = None) -> Stream:
        """Keep the rows for which a condition is true: SQL, or a Python function of the row.

        >>> _ = orders.filter("n > 2").filter(lambda row: row.who != "bob").view("large")
        >>> _ = pond.drain()
        >>> pond.read("large").to_pylist()
        [{'who': 'ann', 'n': 5}]
        """
        if isinstance(predicate, str):
            return self._then(id, Filter(predicate), "filter")
        check_parameters(predicate, "a row", yields=False, step=self._named(id, "filter"))
        return self._then(id, FilterRows(predicate), "filter")

    def branch(self, *predicates: Predicate, id: str | None = None) -> tuple[Stream, ...]:
        """Split a stream: a row goes to the first condition that is true, and to the last stream if none is.

        >>> large, medium, small = orders.branch("n > 10", lambda row: row.n > 3)
        >>> _ = medium.view("medium")
        >>> _ = pond.drain()
        >>> pond.read("medium").to_pylist()
        [{'who': 'ann', 'n': 5}]
        """
        base = self._named(id, "branch")
        if not predicates:
            raise InvalidError(
                "branch needs at least one condition",
                hint='for example big, rest = s.branch("price > 100")',
                step=base,
            )
        for predicate in predicates:
            if not isinstance(predicate, str):
                check_parameters(predicate, "a row", yields=False, step=base)
        taken = {column.lower() for column in self.columns}
        column = next(c for c in ("branch", *(f"branch{n}" for n in range(len(taken) + 1))) if c not in taken)
        split = self._then(id, Branch(predicates, column), "branch")
        ways = [(n, str(n + 1)) for n in range(len(predicates))] + [(len(predicates), "rest")]
        return tuple(split._then(None, Arm(column, number), name) for number, name in ways)

    def map(
        self,
        function: Callable[[Row], Any],
        schema: Like | None = None,
        *,
        sample: Any = None,
        id: str | None = None,
    ) -> Stream:
        """Call Python for each row; it returns one row, as a dict, a tuple or a dataclass instance.

        The columns come from `schema` (an Arrow schema, a dict of types, a dataclass), from the function's
        return annotation, or from calling it with the `sample` rows.

        >>> _ = orders.map(lambda row: {"text": row.who * row.n}, {"text": str}).view("texts")
        >>> _ = pond.drain()
        >>> sorted(pond.read("texts").column("text").to_pylist())
        ['annannannannann', 'bobbob']
        """
        step = self._named(id, "map")
        check_parameters(function, "a row", yields=False, step=step)
        found = rows_step_schema(function, schema, sample, self.schema, many=False, step=step)
        return self._then(id, FlatMap(function, found, one=True), "map")

    def flat_map(
        self,
        function: Callable[[Row], Iterable[Any]],
        schema: Like | None = None,
        *,
        sample: Any = None,
        id: str | None = None,
    ) -> Stream:
        """Call Python for each row; it returns or yields any number of rows.

        The columns are declared as for `map`.

        >>> letters = orders.flat_map(lambda row: [{"letter": c} for c in row.who], {"letter": str})
        >>> _ = letters.distinct().view("letters")
        >>> _ = pond.drain()
        >>> sorted(pond.read("letters").column("letter").to_pylist())
        ['a', 'b', 'n', 'o']
        """
        step = self._named(id, "flat_map")
        check_parameters(function, "a row", step=step)
        found = rows_step_schema(function, schema, sample, self.schema, many=True, step=step)
        return self._then(id, FlatMap(function, found), "flat_map")

    def map_batches(
        self,
        function: Callable[[pa.Table], pa.Table],
        schema: Like | None = None,
        *,
        sample: Any = None,
        id: str | None = None,
    ) -> Stream:
        """Call Python with Arrow tables; a call gets rows of one task, in no particular order.

        >>> _ = orders.map_batches(lambda table: table.select(["n"]), {"n": int}).view("numbers")
        >>> _ = pond.drain()
        >>> sorted(pond.read("numbers").column("n").to_pylist())
        [2, 5]
        """
        step = self._named(id, "map_batches")
        check_parameters(function, "an Arrow table", yields=False, step=step)
        found = batch_step_schema(function, schema, sample, self.schema, step=step)
        return self._then(id, MapBatches(function, found), "map_batches")

    def union(self, *others: Stream, id: str | None = None) -> Stream:
        """The rows of several streams with the same columns.

        >>> _ = orders.union(orders.filter("n > 2")).aggregate(rows="count(*)").view("counted")
        >>> _ = pond.drain()
        >>> pond.read("counted").to_pylist()
        [{'rows': 3}]
        """
        for other in others:
            self._need_stream("union", other)
        steps = (self.step, *(o.step for o in others))
        return Stream(self._builder, self._builder.add(id, Union(), steps, f"union-{self.step}"))

    # -- time -------------------------------------------------------------------

    def watermark(
        self,
        time: str,
        delay: Duration | Strategy = 0,
        *,
        idle: Duration | None = None,
        max_drift: Duration | None = None,
        punctuation: str | None = None,
        id: str | None = None,
    ) -> Stream:
        """Declare event time: rows more than `delay` behind the newest are late, and are stored apart.

        Every partition of every source has its own watermark, and the least of them bounds the stream.
        `delay` may be a strategy of `millpond.watermarks`.  After `idle` without rows a partition no longer
        holds the others back.  A partition that is more than `max_drift` ahead of the slowest one is not
        read.  Rows for which the SQL condition `punctuation` is true say "nothing older will come" by
        their time, and are not passed on.

        >>> clicks.watermark("at", "5s").shape.time
        'at'
        """
        self._known((time,))
        given = strategy_of(delay)
        delay_us = given.delay_us if isinstance(given, Bounded) else 0
        made = Watermark(
            time,
            delay_us,
            None if isinstance(given, Bounded) else given,
            None if idle is None else microseconds(idle),
            None if max_drift is None else microseconds(max_drift),
            punctuation,
        )
        found = self._then(id, made, "watermark")
        if isinstance(given, Custom):
            each = watermark_steps(found._builder.plan).named(found.step)
            if each is not None and not each.by_partition:
                raise InvalidError(
                    "a custom watermark needs rows that come straight from sources",
                    detail="their order is lost behind joins, aggregates and other steps with state",
                    hint="set it before them",
                    step=found.step,
                )
        return found

    def late(self, *, id: str | None = None) -> Stream:
        """The late rows of this stream's watermark, unchanged.

        >>> _ = clicks.watermark("at", "5s").late().view("late_clicks")
        >>> _ = pond.drain()
        >>> source.push([{"page": "old", "at": datetime.datetime(2023, 1, 1)}])
        >>> _ = pond.drain()
        >>> pond.read("late_clicks").column("page").to_pylist()
        ['old']
        """
        mark = self.shape.watermark
        if mark is None:
            raise InvalidError(
                "this stream has no watermark, so no row is late",
                hint='call watermark("at", "5s") or pass event_time= to stream(), and late() right after it',
                step=self.step,
            )
        node = self._builder.plan.nodes[mark]
        assert isinstance(node.operator, Watermark)
        operator = LateRows(node.operator.time, mark)
        return Stream(self._builder, self._builder.add(id, operator, node.inputs, f"{mark}.late"))

    def tumble(self, size: Duration, *, time: str | None = None, id: str | None = None) -> Stream:
        """Add window_start and window_end of windows that follow each other without gaps.

        >>> _ = clicks.tumble("10s", time="at").key_by("window_start").aggregate(n="count(*)").view("per_10s")
        >>> _ = pond.drain()
        >>> for at, n in pond.sql("SELECT * FROM per_10s ORDER BY window_start").fetchall():
        ...     print(at, n)
        2024-01-01 12:00:00 1
        2024-01-01 12:00:10 1
        """
        return self._then(id, Tumble(self._time(time), microseconds(size)), "tumble")

    def hop(
        self, size: Duration, slide: Duration, *, time: str | None = None, id: str | None = None
    ) -> Stream:
        """Add window_start and window_end of overlapping windows; a row is in size / slide of them.

        >>> windows = clicks.hop("20s", "10s", time="at")
        >>> _ = windows.key_by("window_start").aggregate(n="count(*)").view("per_20s")
        >>> _ = pond.drain()
        >>> for at, n in pond.sql("SELECT * FROM per_20s ORDER BY window_start").fetchall():
        ...     print(at, n)
        2024-01-01 11:59:50 1
        2024-01-01 12:00:00 2
        2024-01-01 12:00:10 1
        """
        return self._then(id, Hop(self._time(time), microseconds(size), microseconds(slide)), "hop")

    # -- per key ------------------------------------------------------------------

    def key_by(self, *columns: str, id: str | None = None, **computed: str) -> KeyedStream:
        """See the stream by key: by columns, and by expressions, which become columns.

        Without columns all rows have one key, and one task processes them.

        >>> orders.key_by("who", large="n > 2")
        KeyedStream('orders.rows.key_by': large bool, who string, n int64; key who, large; from orders, ...)
        """
        self._known(columns)
        if not computed:
            if id is not None:
                raise InvalidError(
                    "key_by adds no step when all keys are columns",
                    hint=f"give the id {id!r} to the step that follows",
                    step=self.step,
                )
            return KeyedStream(self, columns)
        _expressions(computed)
        if twice := [c for c in computed if c.lower() in {o.lower() for o in self.columns}]:
            raise InvalidError(
                f"there is a column {twice[0]!r} already",
                hint="give the computed key another name, or change the column with with_columns()",
                step=self._named(id, "key_by"),
            )
        pairs = [*computed.items(), *((c, _quoted(c)) for c in self.columns)]
        return KeyedStream(self._then(id, Map(tuple(pairs)), "key_by"), (*columns, *computed))

    def shards(self, n: int, *by: str, id: str | None = None) -> KeyedStream:
        """Distribute the rows to n shards, for state that belongs to no key, by the new column `shard`.

        The columns `by`, or all columns, determine the shard of a row.

        >>> orders.shards(4, "who").key
        ('shard',)
        """
        need_number("the number of shards", n, 1)
        self._known(by)
        return KeyedStream(self._then(id, Shard(n, tuple(by)), "shards"), (SHARD,))

    def aggregate(self, *unnamed: Any, id: str | None = None, **aggregates: str) -> Stream:
        """Aggregate all rows to one row, without a key.

        >>> _ = orders.aggregate(n="count(*)", total="sum(n)").view("all_orders")
        >>> _ = pond.drain()
        >>> pond.read("all_orders").to_pylist()
        [{'n': 2, 'total': 7}]
        """
        return KeyedStream(self, ()).aggregate(*unnamed, on_close=False, buckets=None, id=id, **aggregates)

    def reduce(self, function: Callable[[Row, Row], Any], *, id: str | None = None) -> Stream:
        """Combine all rows to one, two by two; see `KeyedStream.reduce`.

        >>> _ = orders.reduce(lambda a, b: {"who": a.who + b.who, "n": a.n + b.n}).view("combined")
        >>> _ = pond.drain()
        >>> pond.read("combined").to_pylist()
        [{'who': 'annbob', 'n': 7}]
        """
        return KeyedStream(self, ()).reduce(function, id=id)

    def distinct(self, *columns: str, id: str | None = None) -> Stream:
        """Each row once, of these columns or of all.

        >>> _ = clicks.distinct("page").view("pages")
        >>> _ = pond.drain()
        >>> pond.read("pages").to_pylist()
        [{'page': 'home'}]
        """
        self._known(columns)
        return self._then(id, Distinct(tuple(columns) or tuple(self.columns)), "distinct")

    def top_n(self, n: int, by: str | Sequence[str], *, id: str | None = None) -> Stream:
        """The first n rows of all; `by` is "column" or "column desc".

        >>> _ = orders.top_n(1, "n desc").view("largest")
        >>> _ = pond.drain()
        >>> pond.read("largest").to_pylist()
        [{'who': 'ann', 'n': 5}]
        """
        return KeyedStream(self, ()).top_n(n, by, id=id)

    def join(
        self,
        other: Stream,
        on: str | Sequence[str] | Sequence[tuple[str, str]],
        kind: JoinKind = "inner",
        *,
        where: str | None = None,
        suffix: str = "_right",
        broadcast: Literal["left", "right"] | None = None,
        id: str | None = None,
    ) -> Stream:
        """Join with another stream on equal columns; its columns whose names are taken get a suffix.

        >>> cities = pond.table("cities", {"who": str, "city": str}, key="who")
        >>> _ = orders.join(cities, on="who").view("orders_with_city")
        >>> _ = pond.insert("cities", {"who": "ann", "city": "Oslo"})
        >>> _ = pond.drain()
        >>> pond.read("orders_with_city").to_pylist()
        [{'who': 'ann', 'n': 5, 'city': 'Oslo'}]
        """
        self._need_stream("join", other)
        if broadcast not in (None, "left", "right"):
            raise InvalidError(f"no side {broadcast!r} to broadcast", hint='"left", "right" or None')
        if kind not in get_args(JoinKind):
            raise InvalidError(f"no join of kind {kind!r}", hint=f"kinds are {', '.join(get_args(JoinKind))}")
        pairs = _pairs(on)
        self._known([p[0] for p in pairs])
        other._known([p[1] for p in pairs])
        columns = [(c, 0, c) for c in self.columns]
        if kind not in ("semi", "anti"):
            shared = {right for left, right in pairs if left == right} if kind in ("inner", "left") else set()
            taken = set(self.columns)
            for c in other.columns:
                if c in shared:
                    continue
                name = c if c not in taken else c + suffix
                if name in taken:
                    raise InvalidError(
                        f"column {name!r} would come twice", hint="choose another suffix", step=id
                    )
                taken.add(name)
                columns.append((name, 1, c))
        operator = Join(
            tuple(p[0] for p in pairs), tuple(p[1] for p in pairs), kind, tuple(columns), where, broadcast
        )
        inputs = (self.step, other.step)
        spans = time_spans(where, columns) if where is not None else ()
        ended = self._builder.ended(operator, inputs, spans)
        step = self._builder.add(id, ended, inputs, f"join-{self.step}-{other.step}")
        return Stream(self._builder, step)

    # -- views ------------------------------------------------------------------------

    def view(self, name: str, *, key: str | Sequence[str] | None = None) -> ViewHandle:
        """Keep the rows under a name that any process can read, at any retained epoch.

        >>> orders.filter("n > 2").view("large", key="who").name
        'large'
        >>> _ = pond.drain()
        >>> pond.lookup("large", "ann").to_pylist()
        [{'who': 'ann', 'n': 5}]
        """
        check_name("a view", name, taken=self._builder.plan.views)
        if key is not None and not isinstance(key, str | Sequence):
            need_text("the key of a view", key, "a column, or a list of columns")
        wanted = tuple([key] if isinstance(key, str) else key) if key is not None else None
        if wanted is not None:
            self._known(wanted)
        if wanted is None or wanted == self.shape.key:
            self._builder.keep(self.step)
        step, table = self.step, self._builder.plan.nodes[self.step].binding.view
        held = None
        if table is not None:
            specs = self._builder.plan.nodes[step].binding.tables
            held = next(t.key for t in specs if t.name == table)
        if table is None or (wanted is not None and wanted != held):
            lookup = wanted or self.shape.key or _plain_columns(self.schema)
            step = self._builder.add(None, Materialize(lookup), (self.step,), f"{name}.view")
            table = self._builder.plan.nodes[step].binding.view
        assert table is not None
        view = View(name, step, table, feed=feed_of(self._builder.plan.nodes[step]))
        self._builder.change(lambda plan: plan.with_view(view))
        return ViewHandle(self._builder, step, name)

    def _then(self, id: str | None, operator: Any, verb: str) -> Stream:
        ended = self._builder.ended(operator, (self.step,))
        return Stream(self._builder, self._builder.add(id, ended, (self.step,), f"{self.step}.{verb}"))

    def _named(self, id: str | None, verb: str) -> str:
        """The future id of a step, for errors before it exists."""
        return id or f"{self.step}.{verb}"

    def _known(self, columns: Iterable[str]) -> None:
        import difflib

        for column in columns:
            need_text("the name of a column", column, 'for example key_by("city", "day")')
            if column not in self.columns:
                near = difflib.get_close_matches(column, self.columns, 1)
                raise InvalidError(
                    f"no column named {column!r}",
                    detail=f"columns are {', '.join(self.columns)}",
                    hint=f"did you mean {near[0]!r}?" if near else None,
                    step=self.step,
                )

    def _need_stream(self, what: str, other: Any) -> None:
        if isinstance(other, KeyedStream):
            raise InvalidError(
                f"{what} needs a stream", detail="got a KeyedStream", hint="call it before key_by()"
            )
        if not isinstance(other, Stream):
            raise InvalidError(
                f"{what} needs a stream",
                detail=f"got {type(other).__name__} {other!r}"[:200],
                hint="pass what stream(), table() or a step returned; of a name, pond.stream_of(name)",
            )
        if other._builder is not self._builder:
            raise InvalidError(
                f"{what} needs a stream of the same pond",
                hint="define both streams on one pond",
                step=self.step,
            )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_method(self, name, STREAM_HINTS)

    def _time(self, column: str | None) -> str:
        found = column or self.shape.time
        if found is None:
            raise InvalidError(
                "no time column", hint="pass time=..., or set a watermark first", step=self.step
            )
        self._known((found,))
        return found


@checked
class ViewHandle(Stream):
    """A stream with a name, whose changes can be delivered to sinks.

    >>> import millpond
    >>> pond = millpond.open("memory://", engine="inline")
    >>> orders = pond.table("orders", {"who": str, "n": int})
    """

    def __init__(self, builder: Builder, step: str, name: str) -> None:
        super().__init__(builder, step)
        self.name = name

    @property
    def _shown_name(self) -> str:
        return self.name

    def sink(self, name: str, sink: Any) -> ViewHandle:
        """Deliver the view's changes, epoch by epoch, after each commit.

        >>> from millpond.sinks.callback import CallbackSink
        >>> _ = orders.sink("printed", CallbackSink(lambda epoch, changes: print(changes.to_pylist())))
        >>> _ = pond.insert("orders", {"who": "ann", "n": 5})
        >>> _ = pond.drain()
        [{'who': 'ann', 'n': 5, '_w': 1}]
        """
        check_name("a sink", name)
        if not callable(getattr(sink, "deliver", None)):
            raise InvalidError(
                f"{sink!r} is no sink"[:200],
                hint="for example CallbackSink(function) or ParquetSink(folder), of millpond.sinks",
            )
        self._builder.change(lambda plan: plan.with_sink(SinkNode(name, self.name, sink)))
        return self


@checked
class ProcessedStream(Stream):
    """The output of a process step, with its side outputs.

    >>> import millpond
    >>> from millpond.sources.memory import MemorySource
    >>> pond = millpond.open("memory://", engine="inline")
    >>> source = MemorySource({"who": str, "n": int})
    >>> orders = pond.stream("orders", source)
    """

    def __init__(self, builder: Builder, step: str, sides: Mapping[str, str]) -> None:
        super().__init__(builder, step)
        self._sides = sides

    def _follow(self, ids: Mapping[str, str]) -> None:
        super()._follow(ids)
        self._sides = {name: ids.get(step, step) for name, step in self._sides.items()}

    def side(self, name: str) -> Stream:
        """A side output, declared with `sides=`.

        >>> def check(row, ctx):
        ...     if row.n > 100:
        ...         ctx.emit("large", {"n": row.n})
        >>> checked = orders.key_by("who").process(check, {"n": int}, sides={"large": {"n": int}})
        >>> _ = checked.side("large").view("large")
        >>> source.push({"who": "ann", "n": 500})
        >>> _ = pond.drain()
        >>> pond.read("large").to_pylist()
        [{'n': 500}]
        """
        if name not in self._sides:
            raise InvalidError(
                f"no side output {name!r}",
                detail=f"declared are {', '.join(self._sides) or 'none'}",
                hint="declare it: process(..., sides={...})",
                step=self.step,
            )
        return Stream(self._builder, self._sides[name])


@checked
class KeyedStream:
    """A stream seen by key; the next step brings all rows of a key together.

    The examples of its methods begin with these lines:

    >>> import millpond, pyarrow as pa
    >>> from millpond.sources.memory import MemorySource
    >>> pond = millpond.open("memory://", engine="inline")
    >>> source = MemorySource({"who": str, "n": int})
    >>> orders = pond.stream("orders", source)
    >>> source.push([{"who": "ann", "n": 5}, {"who": "ann", "n": 2}])
    """

    def __init__(self, stream: Stream, key: Sequence[str], closes: Close | None = None) -> None:
        self.stream = stream
        self.key = tuple(key)
        self._closes = closes  # the key is a window, which is emitted when it closes

    def __repr__(self) -> str:
        return described(self.stream, self.stream._shown_name, self.key, type(self).__name__)

    def _repr_html_(self) -> str:
        return described_html(self.stream, self.stream._shown_name, self.key, type(self).__name__)

    def window(
        self,
        windows: WindowAssigner,
        *,
        trigger: Trigger | None = None,
        allowed_lateness: Duration | None = None,
        mode: Mode | None = None,
        panes: bool = False,
        on_close: bool = False,
        time: str | None = None,
    ) -> WindowedStream:
        """Group the rows of each key by windows of event time (`millpond.windows`).

        Without a `trigger` (`millpond.triggers`) results change with every epoch; `on_close` is short for
        `trigger=after_watermark()`: each window once, at its end.  A window takes rows until the watermark
        has passed its end by the `allowed_lateness`.  In mode "retracting" each pane retracts the one
        before, in mode "accumulating" it only replaces it in views, and in mode "discarding" a pane has
        only what is new.
        With `panes` the output has the columns pane, pane_timing and pane_last.

        >>> import datetime
        >>> from millpond.windows import tumbling
        >>> visits = MemorySource({"who": str, "at": datetime.datetime})
        >>> by_day = pond.stream("visits", visits).watermark("at", "0s").key_by("who").window(tumbling("1d"))
        >>> _ = by_day.aggregate(n="count(*)").view("visits_per_day")
        >>> visits.push([{"who": "ann", "at": datetime.datetime(2024, 1, 1, hour)} for hour in (9, 17)])
        >>> _ = pond.drain()
        >>> pond.read("visits_per_day").column("n").to_pylist()
        [2]
        """
        spec = windowing(windows, trigger, allowed_lateness, mode, panes, on_close)
        return WindowedStream(self, spec, time)

    def in_order(
        self, slack: int | None = None, *, time: str | None = None, id: str | None = None
    ) -> KeyedStream:
        """Hand the rows of each key on in the order of their event time.

        A row is held until the watermark has passed its time, or until more than `slack` rows of its key are
        held.  A row that comes after a later one was handed on is late (`pond.late(step)`).

        >>> import datetime
        >>> steps = MemorySource({"who": str, "at": datetime.datetime})
        >>> walk = pond.stream("steps", steps).key_by("who").in_order(slack=1, time="at")
        >>> _ = walk.stream.view("walk")
        >>> steps.push([{"who": "ann", "at": datetime.datetime(2024, 1, 1, hour)} for hour in (9, 8)])
        >>> _ = pond.drain()
        >>> [row["at"].hour for row in pond.read("walk").to_pylist()]
        [8]
        """
        stream = self.stream
        builder, column = stream._builder, stream._time(time)
        bound = watermark_of(builder, stream.step, column)
        if slack is not None:
            need_number("the slack", slack, 0)
        elif bound is None:
            raise InvalidError(
                "in_order needs a watermark or a slack",
                hint='call watermark("at", "5s") before key_by(), or pass slack=1000',
                step=stream.step,
            )
        operator: InOrder | EmitOnClose
        if slack is None:
            assert bound is not None
            operator = EmitOnClose(self.key, bound)
        else:
            operator = InOrder(self.key, column, slack, bound)
        step = builder.add(id, operator, (stream.step,), f"{stream.step}.in_order")
        return KeyedStream(Stream(builder, step), self.key)

    def aggregate(
        self,
        *unnamed: Any,
        on_close: bool = False,
        buckets: int | None = None,
        id: str | None = None,
        **aggregates: str,
    ) -> Stream:
        """One row per key, exact under inserts, updates and deletes.

        With `on_close` the key must include `window_end`: each window is emitted once, when it has closed.
        `buckets` first spreads the values of min and max of hot keys over so many tasks; without a
        key this is always done.

        >>> _ = orders.key_by("who").aggregate(n="count(*)", total="sum(n)").view("totals")
        >>> _ = pond.drain()
        >>> pond.read("totals").to_pylist()
        [{'who': 'ann', 'n': 2, 'total': 7}]
        """
        stream, builder = self.stream, self.stream._builder
        if unnamed:
            raise InvalidError(
                "an aggregate needs a name",
                detail=f"got {unnamed[0]!r}",
                hint=f"name its column: aggregate(n={unnamed[0]!r})",
            )
        _expressions(aggregates)
        if buckets is not None:
            need_number("buckets", buckets, 1)
        if not aggregates:
            raise InvalidError("aggregate needs at least one aggregate", hint='for example n="count(*)"')
        base = id or f"{stream.step}.by-{'-'.join(self.key) or 'all'}"
        parsed = parse_aggregates(aggregates, stream.columns, step=base)
        source = stream
        if parsed.computed:
            used = {a.argument for a in parsed.aggs if a.argument in stream.columns}
            keep = [c for c in stream.columns if c in self.key or c in used]
            pairs = [(c, _quoted(c)) for c in keep] + list(parsed.computed)
            source = Stream(
                builder, builder.add(None, Map(tuple(pairs)), (stream.step,), f"{base}.arguments")
            )
        spread = buckets or (None if self.key else GLOBAL_BUCKETS)
        feeds = feeds_for(parsed.aggs, source.shape.append_only, staged=spread is not None)
        inputs = []
        for feed in feeds:
            if feed.kind == "values" and spread is not None:
                inputs.append(
                    self._candidates(source, feed, parsed.aggs[feed.aggs[0]].function, spread, base)
                )
                continue
            if feed.kind == "distinct":
                assert feed.column is not None
                columns = tuple(dict.fromkeys((*self.key, feed.column)))
                present = builder.add(
                    None,
                    Filter(f"{_quoted(feed.column)} IS NOT NULL"),
                    (source.step,),
                    f"{base}.{feed.column}-given",
                )
                apart = builder.ended(Distinct(columns), (present,))
                inputs.append(builder.add(None, apart, (present,), f"{base}.{feed.column}-distinct"))
            else:
                inputs.append(source.step)
        closes = self._close(on_close)
        if not self.key:
            from millpond.sources.constant import OneRow  # the edges are loaded where they are used

            feeds = (*feeds, AggregateFeed("always", ()))
            inputs.append(builder.constant("one-row", Scan(OneRow(), OneRow().schema, True)))
        operator = builder.ended(Aggregate(self.key, parsed.aggs, feeds, closes), tuple(inputs))
        return Stream(builder, builder.add(id, operator, tuple(inputs), base))

    def _candidates(self, source: Stream, feed: AggregateFeed, function: str, buckets: int, base: str) -> str:
        """The first half of the hierarchy (key, bucket) -> key: the best value of each bucket."""
        assert feed.column is not None
        builder = source._builder
        columns = tuple((c, _quoted(c)) for c in dict.fromkeys((*self.key, feed.column)))
        narrow = builder.add(None, Map(columns), (source.step,), f"{base}.{feed.column}-values")
        best = TopN(self.key, (Order(feed.column, descending=function == "max"),), 1)
        first = builder.ended(best.split(buckets)[0], (narrow,))
        return builder.add(None, first, (narrow,), f"{base}.{feed.column}-{function}-buckets")

    def top_n(
        self,
        n: int,
        by: str | Sequence[str],
        *,
        offset: int = 0,
        with_ties: bool = False,
        rank: str | None = None,
        buckets: int | None = None,
        id: str | None = None,
    ) -> Stream:
        """The first n rows of each key by an order; ties are broken by all columns.

        `buckets` first ranks the rows of hot keys in so many buckets; without a key this is always done.

        >>> _ = orders.key_by("who").top_n(1, "n desc").view("largest")
        >>> _ = pond.drain()
        >>> pond.read("largest").to_pylist()
        [{'who': 'ann', 'n': 5}]
        """
        need_number("n", n, 1)
        need_number("offset", offset, 0)
        if buckets is not None:
            need_number("buckets", buckets, 1)
        operator = TopN(self.key, orders(by, self.stream), n, offset, with_ties, rank)
        base = id or f"{self.stream.step}.top-{n}"
        builder = self.stream._builder
        source = self.stream.step
        spread = buckets or (None if self.key else GLOBAL_BUCKETS)
        if spread is not None and not with_ties:
            first, operator = operator.split(spread)
            source = builder.add(None, builder.ended(first, (source,)), (source,), f"{base}.buckets")
        return Stream(builder, builder.add(id, builder.ended(operator, (source,)), (source,), base))

    def first(self, by: str | Sequence[str], *, id: str | None = None) -> Stream:
        """The first row of each key by an order, for example ``first("date_time desc")`` for the latest.

        >>> _ = orders.key_by("who").first("n").view("smallest")
        >>> _ = pond.drain()
        >>> pond.read("smallest").to_pylist()
        [{'who': 'ann', 'n': 2}]
        """
        return self._then(id, Extreme(self.key, orders(by, self.stream), tuple(self.stream.columns)), "first")

    def reduce(self, function: Callable[[Row, Row], Any], *, id: str | None = None) -> Stream:
        """One row per key: its rows are combined two by two, in the order of their columns.

        The function gets two rows and returns one with the same columns; it may leave out the key.
        A change of a key combines all its rows again, so its cost grows with the key: prefer an aggregate.

        >>> _ = orders.key_by("who").reduce(lambda a, b: {"n": a.n * b.n}).view("products")
        >>> _ = pond.drain()
        >>> pond.read("products").to_pylist()
        [{'who': 'ann', 'n': 10}]
        """
        check_parameters(function, "a row", "a row", yields=False, step=self.stream._named(id, "reduce"))
        return self._then(id, Reduce(self.key, function), "reduce")

    def process(
        self,
        code: Target,
        schema: Like | None = None,
        *,
        sides: Mapping[str, Like] | None = None,
        control: Stream | None = None,
        latest: bool = False,
        timeout: Duration | None = "60s",
        id: str | None = None,
    ) -> ProcessedStream:
        """Your Python per key, with state and timers: a `Process` class, or a function of a row.

        `schema` describes the rows it returns (or annotate the return type).  `sides` are further outputs,
        reached by `.side(name)`.  `control` is a stream that every key receives before its rows.  With
        `latest` the newest row of a key replaces the one before.  One call may take `timeout`.

        >>> def number(row, n=millpond.ValueState(int, default=0)):
        ...     n.value += 1
        ...     return {"who": row.who, "number": n.value}
        >>> _ = orders.key_by("who").process(number, {"who": str, "number": int}).view("numbered")
        >>> _ = pond.drain()
        >>> sorted(pond.read("numbered").column("number").to_pylist())
        [1, 2]
        """
        builder = self.stream._builder
        if control is not None:
            self.stream._need_stream("process", control)
        step, picked = process_step(
            builder,
            self.stream.step,
            self.key,
            code,
            schema,
            sides=sides,
            control=None if control is None else control.step,
            latest=latest,
            timeout=timeout,
            id=id,
        )
        return ProcessedStream(builder, step, picked)

    def process_batch(
        self, function: Callable[..., pa.Table], schema: Like, *, id: str | None = None
    ) -> Stream:
        """Like process(), for all keys of a task at once and in Arrow: states are arrays, one value per key.

        The function gets `batch.rows` by key and in order, `batch.keys`, `batch.key_of` and `batch.starts`;
        it reads and sets the `values` of its states, and returns a table.

        >>> def tally(batch, n=millpond.ValueState(int, default=0)):
        ...     counts = pa.array(batch.rows.group_by("who").aggregate([("n", "count")])["n_count"])
        ...     n.values = pa.compute.add(n.values, counts)
        ...     return pa.table({"n": n.values})
        >>> _ = orders.key_by("who").process_batch(tally, {"n": int}).view("tallies")
        >>> _ = pond.drain()
        >>> pond.read("tallies").to_pylist()
        [{'n': 2}]
        """
        builder = self.stream._builder
        step = process_batch_step(builder, self.stream.step, self.key, function, schema, id=id)
        return Stream(builder, step)

    def apply(
        self,
        function: Callable[..., Any] | None = None,
        schema: Like | None = None,
        *,
        sql: str | None = None,
        id: str | None = None,
    ) -> Stream:
        """Compute anything within a key from all its rows: a query over `input`, or a Python function.

        >>> _ = orders.key_by("who").apply(sql="SELECT median(n) AS median FROM input").view("medians")
        >>> _ = pond.drain()
        >>> pond.read("medians").to_pylist()
        [{'median': 3.5}]
        """
        step = self.stream._named(id, "apply")
        if sql is not None:
            need_text("sql", sql, "a query over `input`")
        if function is not None:
            check_parameters(function, "the key", "its rows as an Arrow table", yields=False, step=step)
        found = None if schema is None else schema_of(schema, step=step)
        alone = sql is not None and is_run_alone(sql, self.key)
        return self._then(id, PerKey(self.key, found, function, sql, alone=alone), "apply")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            before = f"call {name}() before key_by()" if hasattr(Stream, name) else None
            raise no_method(self, name, {name: before} if before else KEYED_HINTS)

    def _close(self, on_close: bool) -> Close | None:
        if not on_close:
            return self._closes
        shape = self.stream.shape
        if "window_end" not in self.key or shape.watermark is None:
            raise InvalidError(
                "on_close needs windows and a watermark",
                hint='watermark("ts", "4s").tumble("10s").key_by("window_end").aggregate(on_close=True, ...)',
                step=self.stream.step,
            )
        return Close("window_end", shape.watermark, _slide(self.stream))

    def _over(self, step: str) -> Stream:
        """Another step of the same pipeline as a stream."""
        return Stream(self.stream._builder, step)

    def _keyed_over(self, step: str, key: tuple[str, ...], closes: Close | None) -> KeyedStream:
        return KeyedStream(self._over(step), key, closes)

    def _then(self, id: str | None, operator: Any, verb: str) -> Stream:
        builder, inputs = self.stream._builder, (self.stream.step,)
        ended = builder.ended(operator, inputs)
        return Stream(builder, builder.add(id, ended, inputs, f"{self.stream.step}.{verb}"))


def feed_of(node: Node) -> str | None:
    """The table with what readers of a view's changes receive, if it is not the view's own table."""
    if isinstance(node.operator, EmitPanes) and node.operator.accumulates:
        return f"{node.step}/feed"
    return None


def described(stream: Stream, name: str, key: Sequence[str] | None = None, kind: str | None = None) -> str:
    """One line: the name, the columns with their types, the key, and the steps in front of it."""
    facts = [", ".join(f"{f.name} {f.type}" for f in stream.schema)]
    if key:
        facts.append(f"key {', '.join(key)}")
    if steps := _steps_before(stream):
        facts.append(f"from {', '.join(steps)}")
    return f"{kind or type(stream).__name__}({name!r}: {'; '.join(facts)})"


def described_html(
    stream: Stream, name: str, key: Sequence[str] | None = None, kind: str | None = None
) -> str:
    """The same as an HTML table."""
    columns = ", ".join(f"{f.name} {f.type}" for f in stream.schema)
    steps = ", ".join([*_steps_before(stream), stream.step])
    facts = [("columns", columns), ("key", ", ".join(key or ()) or "none"), ("steps", steps)]
    return html_facts(f"{kind or type(stream).__name__} {name}", facts)


def _steps_before(stream: Stream) -> list[str]:
    """The steps that a stream is made of, without its last one, in the order of the plan."""
    nodes = stream._builder.plan.nodes
    found: set[str] = set()
    pending = list(nodes[stream.step].inputs)
    while pending:
        step = pending.pop()
        if step not in found:
            found.add(step)
            pending += nodes[step].inputs
    return [step for step in nodes if step in found]


def orders(by: str | Sequence[str], stream: Stream) -> tuple[Order, ...]:
    """``"price desc"`` or a list of such, as orders.

    NULLs come last, as in PostgreSQL for ascending order.
    """
    found = []
    if not isinstance(by, str | Sequence):
        need_text("an order", by, '"column" or "column desc", or a list of them')
    for text in [by] if isinstance(by, str) else by:
        need_text("an order", text, '"column" or "column desc"')
        column, _, direction = text.strip().partition(" ")
        stream._known((column,))
        if direction.strip().lower() not in ("", "asc", "desc"):
            raise InvalidError(f"not an order: {text!r}", hint='write "column" or "column desc"')
        found.append(Order(column, descending=direction.strip().lower() == "desc"))
    if not found:
        raise InvalidError("an order needs at least one column")
    return tuple(found)


def _expressions(computed: Mapping[str, Any]) -> None:
    for name, text in computed.items():
        need_text(f"the expression of column {name!r}", text, f'SQL in quotes: {name}="..."')


def _pairs(on: Any) -> list[tuple[str, str]]:
    """The columns that a join compares, of the left side and of the right."""
    hint = 'on="k", on=["a", "b"], or on=[("left_column", "right_column")]'
    given = [on] if isinstance(on, str) else on
    if not isinstance(given, Sequence) or not given:
        raise InvalidError("a join needs columns to join on", detail=f"got {on!r}"[:200], hint=hint)
    pairs = [(o, o) if isinstance(o, str) else o for o in given]
    if odd := [p for p in pairs if not isinstance(p, Sequence) or len(p) != 2]:
        raise InvalidError("a join compares two columns", detail=f"got {odd[0]!r}"[:200], hint=hint)
    return [(left, right) for left, right in pairs]


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _plain_columns(schema: pa.Schema) -> tuple[str, ...]:
    return tuple(f.name for f in schema if not pa.types.is_nested(f.type))


def _slide(stream: Stream) -> int:
    """The unit of which all window ends are multiples."""
    plan = stream._builder.plan
    step = stream.step
    while True:
        node = plan.nodes[step]
        if isinstance(node.operator, Hop):
            return math.gcd(node.operator.size_us, node.operator.slide_us)
        if isinstance(node.operator, Tumble):
            return node.operator.size_us
        if len(node.inputs) != 1:
            raise InvalidError("on_close needs tumble() or hop() before it", step=stream.step)
        (step,) = node.inputs
