"""Streams: the front end in Python; steps by key are in `keyed_stream.py`.

Every method adds one step to the plan and returns a new stream.  Expressions
are SQL over the columns, typed when they are written; functions are Python.
Each step may be given an id, which names it in errors, metrics and state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from millpond.arguments.call_errors import check_expressions, checked, need_number, need_text, no_method
from millpond.arguments.durations import Duration, microseconds, strategy_of
from millpond.arguments.names import check_name
from millpond.arguments.schemas import Like, check_parameters
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.descriptions import html_description, text_description
from millpond.flow.join_time_bounds import time_spans
from millpond.flow.keyed_stream import KEYED_HINTS, KeyedStream
from millpond.flow.samples import batch_step_schema, rows_step_schema
from millpond.flow.stream_watermarks import heartbeat_bound, inherited_bound, without_punctuations
from millpond.flow.window_notes import note_gaps
from millpond.flow.windowed import JoinKind
from millpond.kernels.duck import quoted
from millpond.kernels.expressions import compile_predicate
from millpond.kernels.python_rows import Row
from millpond.kernels.slices import check_windows_per_row
from millpond.kernels.watermark_strategies import Bounded, Custom, Inherited, Strategy
from millpond.kernels.window_assigners import Sliding
from millpond.operators.branch import Arm, Branch, Predicate
from millpond.operators.distinct import Distinct
from millpond.operators.emit_panes import EmitPanes
from millpond.operators.filter import Filter
from millpond.operators.filter_rows import FilterRows
from millpond.operators.flat_map import FlatMap
from millpond.operators.join import Join
from millpond.operators.late_rows import LateRows
from millpond.operators.map import Map
from millpond.operators.map_batches import MapBatches
from millpond.operators.materialize import Materialize
from millpond.operators.operator import Shape
from millpond.operators.shard import SHARD, Shard
from millpond.operators.union import Union
from millpond.operators.watermark import Watermark
from millpond.operators.window import Hop, Tumble
from millpond.plan.nodes import Node, View, require_error_bound
from millpond.plan.sink_check import checked_sink
from millpond.plan.sink_settings import Guarantee, SinkMode, SinkSettings, WhenBehind
from millpond.plan.watermark_steps import watermark_steps

KEY_FIRST = ("process", "process_batch", "apply", "first")
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
        return text_description(self, self._shown_name, self.shape.key)

    def _repr_html_(self) -> str:
        return html_description(self, self._shown_name, self.shape.key)

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
        check_expressions(computed)
        pairs = [(c, quoted(c)) for c in columns] + list(computed.items())
        return self._then(id, Map(tuple(pairs)), "select")

    def with_columns(self, *, id: str | None = None, **computed: str) -> Stream:
        """Keep all columns, and add or replace some by expressions.

        >>> orders.with_columns(n="n::double", large="n > 2")
        Stream('orders.rows.with_columns': who string, n double, large bool; from orders, orders.rows)
        """
        check_expressions(computed)
        pairs = [(c, computed.get(c, quoted(c))) for c in self.columns]
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
        heartbeats: Stream | None = None,
        id: str | None = None,
    ) -> Stream:
        """Declare event time: rows more than `delay` behind the newest are late, and are stored apart.

        Every partition of every source has its own watermark, and the least of them bounds the stream.
        `delay` may be a strategy of `millpond.watermarks`.  After `idle` without rows a partition no longer
        holds the others back.  A partition that is more than `max_drift` ahead of the slowest one is not
        read.  Rows for which the SQL condition `punctuation` is true say "nothing older will come" by
        their time, and are not passed on.  So does the watermark of another stream, `heartbeats`, once all
        rows that were there before are read.

        >>> clicks.watermark("at", "5s").shape.time
        'at'
        """
        self._known((time,))
        rule = strategy_of(delay)
        delay_us = rule.delay_us if isinstance(rule, Bounded) else 0
        if heartbeats is not None:
            self._need_stream("watermark", heartbeats)
        made = Watermark(
            time,
            delay_us,
            None if isinstance(rule, Bounded) else rule,
            None if idle is None else microseconds(idle),
            None if max_drift is None else microseconds(max_drift),
            punctuation,
            follows=inherited_bound(self._builder, self.step, time) if isinstance(rule, Inherited) else None,
            heartbeats=None if heartbeats is None else heartbeat_bound(self._builder, heartbeats.step),
        )
        stream = self._then(id, made, "watermark")
        if isinstance(rule, Custom):
            each = watermark_steps(stream._builder.plan).named(stream.step)
            if each is not None and not each.by_partition:
                raise InvalidError(
                    "a custom watermark needs rows that come straight from sources",
                    detail="their order is lost behind joins, aggregates and other steps with state",
                    hint="set it before them",
                    step=stream.step,
                )
        return stream

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
        if not isinstance(node.operator, Watermark):
            raise InvalidError(
                "a union has no late rows of its own: each of its inputs has",
                detail=f"its watermark is the least of theirs, at step {mark!r}",
                hint="call late() of each input right after its watermark, and union these",
                step=self.step,
            )
        source = without_punctuations(self._builder, mark)
        operator = LateRows(node.operator.time, mark)
        return Stream(self._builder, self._builder.add(id, operator, (source,), f"{mark}.late"))

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
        operator = Hop(self._time(time), microseconds(size), microseconds(slide))
        if operator.slide_us > 0:
            windows = Sliding(operator.size_us, operator.slide_us)
            check_windows_per_row(windows, self._named(id, "hop"))
            note_gaps(windows, self.step)
        return self._then(id, operator, "hop")

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
        check_expressions(computed)
        if twice := [c for c in computed if c.lower() in {o.lower() for o in self.columns}]:
            raise InvalidError(
                f"there is a column {twice[0]!r} already",
                hint="give the computed key another name, or change the column with with_columns()",
                step=self._named(id, "key_by"),
            )
        pairs = [*computed.items(), *((c, quoted(c)) for c in self.columns)]
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

        `where` can name the columns of both, also of joins that show the left ones only.

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
        if kind not in ("semi", "anti") or (where is not None and not self._has(where)):
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

    def _has(self, condition: str) -> bool:
        """Does a condition read columns of this stream only?"""
        try:
            compile_predicate(self.schema, condition, append_only=True)
        except InvalidError:
            return False
        return True

    # -- views ------------------------------------------------------------------------

    def view(
        self,
        name: str,
        *,
        key: str | Sequence[str] | None = None,
        exact: bool = False,
        error_bound: float | None = None,
    ) -> ViewHandle:
        """Keep the rows under a name that any process can read, at any retained epoch.

        With `exact`, no row that the view reads may be shed (`pond.shed`).  With `error_bound`, no more rows
        are shed than make counts of groups of average size wrong by this share, with 95 % probability.

        >>> orders.filter("n > 2").view("large", key="who").name
        'large'
        >>> _ = pond.drain()
        >>> pond.lookup("large", "ann").to_pylist()
        [{'who': 'ann', 'n': 5}]
        """
        check_name("a view", name, taken=self._builder.plan.views)
        require_error_bound(error_bound)
        if key is not None and not isinstance(key, str | Sequence):
            need_text("the key of a view", key, "a column, or a list of columns")
        wanted = tuple([key] if isinstance(key, str) else key) if key is not None else None
        if wanted is not None:
            self._known(wanted)
        if wanted is None or wanted == self.shape.key:
            self._builder.keep(self.step)
        step, table = self.step, self._builder.plan.nodes[self.step].binding.view
        table_key = None
        if table is not None:
            specs = self._builder.plan.nodes[step].binding.tables
            table_key = next(t.key for t in specs if t.name == table)
        if table is None or (wanted is not None and wanted != table_key):
            lookup = wanted or self.shape.key or plain_columns(self.schema)
            step = self._builder.add(None, Materialize(lookup), (self.step,), f"{name}.view")
            table = self._builder.plan.nodes[step].binding.view
        assert table is not None
        feed = feed_of(self._builder.plan.nodes[step])
        view = View(name, step, table, feed=feed, exact=exact, error_bound=error_bound)
        self._builder.change(lambda plan: plan.with_view(view))
        return ViewHandle(self._builder, step, name)

    def _at(self, step: str) -> Stream:
        """Another step of the same pipeline."""
        return Stream(self._builder, step)

    def _with_sides(self, step: str, sides: Mapping[str, str]) -> ProcessedStream:
        """Another step of the same pipeline, with the steps of its side outputs."""
        return ProcessedStream(self._builder, step, sides)

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
                matches = difflib.get_close_matches(column, self.columns, 1)
                raise InvalidError(
                    f"no column named {column!r}",
                    detail=f"columns are {', '.join(self.columns)}",
                    hint=f"did you mean {matches[0]!r}?" if matches else None,
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
        time = column or self.shape.time
        if time is None:
            raise InvalidError(
                "no time column", hint="pass time=..., or set a watermark first", step=self.step
            )
        self._known((time,))
        return time


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

    def sink(
        self,
        name: str,
        sink: Any,
        *,
        mode: SinkMode | None = None,
        guarantee: Guarantee | None = None,
        key: str | Sequence[str] = (),
        every: Duration | None = None,
        snapshot: bool = True,
        behind_max: int | None = None,
        when_behind: WhenBehind = "pause",
    ) -> ViewHandle:
        """Deliver the view's changes, epoch by epoch, after each commit.

        `mode` and `guarantee` are the sink's own by default; what the sink or the view cannot give is
        refused.  `key` has the columns by which rows are upserted, by default the view's key.  `every`
        gathers the epochs of that time into one delivery.  Without `snapshot` a new sink receives only
        changes, not the rows that the view already has.  A sink that is more than `behind_max` epochs behind
        is paused, or with `when_behind="hold"` new input waits for it.

        >>> from millpond.sinks.callback import CallbackSink
        >>> _ = orders.sink("printed", CallbackSink(lambda epoch, changes: print(changes.to_pylist())))
        >>> _ = pond.insert("orders", {"who": "ann", "n": 5})
        >>> _ = pond.drain()
        [{'who': 'ann', 'n': 5, '_w': 1}]
        """
        check_name("a sink", name)
        asked = SinkSettings(
            mode,
            guarantee,
            (key,) if isinstance(key, str) else tuple(key),
            0 if every is None else microseconds(every),
            snapshot,
            behind_max,
            when_behind,
        )
        node = checked_sink(self._builder.plan, name, self.name, sink, asked)
        self._builder.change(lambda plan: plan.with_sink(node))
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


def feed_of(node: Node) -> str | None:
    """The table with what readers of a view's changes receive, if it is not the view's own table."""
    if isinstance(node.operator, EmitPanes) and node.operator.accumulates:
        return f"{node.step}/feed"
    return None


def _pairs(on: Any) -> list[tuple[str, str]]:
    """The columns that a join compares, of the left side and of the right."""
    hint = 'on="k", on=["a", "b"], or on=[("left_column", "right_column")]'
    names = [on] if isinstance(on, str) else on
    if not isinstance(names, Sequence) or not names:
        raise InvalidError("a join needs columns to join on", detail=f"got {on!r}"[:200], hint=hint)
    pairs = [(o, o) if isinstance(o, str) else o for o in names]
    if odd := [p for p in pairs if not isinstance(p, Sequence) or len(p) != 2]:
        raise InvalidError("a join compares two columns", detail=f"got {odd[0]!r}"[:200], hint=hint)
    return [(left, right) for left, right in pairs]


def plain_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns by which a view without a key is looked up."""
    return tuple(f.name for f in schema if not pa.types.is_nested(f.type))
