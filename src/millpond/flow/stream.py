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
from millpond.flow.calls import checked, need_number, need_text, no_method
from millpond.flow.durations import Duration, microseconds
from millpond.flow.names import check_name
from millpond.flow.process import Target, process_batch_step, process_step
from millpond.flow.samples import batch_step_schema, rows_step_schema
from millpond.flow.schemas import Like, check_parameters, schema_of
from millpond.flow.time_spans import time_spans
from millpond.operators.aggregate import Aggregate, Close, Feed, feeds_for
from millpond.operators.branch import Arm, Branch, Predicate
from millpond.operators.distinct import Distinct
from millpond.operators.extreme import Extreme
from millpond.operators.filter import Filter
from millpond.operators.filter_rows import FilterRows
from millpond.operators.flat_map import FlatMap, Row
from millpond.operators.join import Join
from millpond.operators.late import LateRows
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
from millpond.plan.nodes import SinkNode, View

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
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
    **dict.fromkeys(("window", "windowed"), 'use tumble("10s") or hop("10s", "5s")'),
    **dict.fromkeys(("withColumn", "with_column", "assign"), 'use with_columns(name="expression")'),
    "sink": 'give it a name first: stream.view("name").sink("sink", ...)',
    "write": 'give it a name first: stream.view("name").sink("sink", ...)',
}


@checked
class Stream:
    """Rows that arrive, change and leave."""

    def __init__(self, builder: Builder, step: str) -> None:
        self._builder = builder
        self.step = step
        builder.hold(self)

    def follow(self, ids: Mapping[str, str]) -> None:
        """Steps have got other ids: those that the pond knows them by."""
        self.step = ids.get(self.step, self.step)

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name} {f.type}" for f in self.schema)
        return f"{type(self).__name__}({self.step!r}: {columns})"

    @property
    def shape(self) -> Shape:
        return self._builder.shape(self.step)

    @property
    def schema(self) -> pa.Schema:
        return self.shape.schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    # -- row by row -----------------------------------------------------------

    def select(self, *columns: str, id: str | None = None, **computed: str) -> Stream:
        """These columns, and these expressions; nothing else."""
        self._known(columns)
        if not columns and not computed:
            raise InvalidError(
                "select needs at least one column", hint='select("k", total="a + b")', step=self.step
            )
        _expressions(computed)
        pairs = [(c, _quoted(c)) for c in columns] + list(computed.items())
        return self._then(id, Map(tuple(pairs)), "select")

    def with_columns(self, *, id: str | None = None, **computed: str) -> Stream:
        """All columns, some of them new or replaced by expressions."""
        _expressions(computed)
        pairs = [(c, computed.get(c, _quoted(c))) for c in self.columns]
        pairs += [(c, e) for c, e in computed.items() if c not in self.columns]
        return self._then(id, Map(tuple(pairs)), "with_columns")

    def filter(self, predicate: Predicate, *, id: str | None = None) -> Stream:
        """The rows where a condition is true: SQL, or a Python function of the row."""
        if isinstance(predicate, str):
            return self._then(id, Filter(predicate), "filter")
        check_parameters(predicate, "a row", yields=False, step=self._named(id, "filter"))
        return self._then(id, FilterRows(predicate), "filter")

    def branch(self, *predicates: Predicate, id: str | None = None) -> tuple[Stream, ...]:
        """As many streams as conditions and one more: a row goes to the first that is true, else to the last.

        ``big, small, rest = bids.branch("price > 100", lambda row: row.price > 10)``
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
        """Python per row: one row for each, as a dict, a tuple or a dataclass instance.

        What it returns is told by `schema` (of Arrow, a dict of types, a dataclass), by the function's
        return annotation, or by trying it on `sample` rows.
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
        """Python per row: none, one or many rows for each; the schema is told as for `map`."""
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
        """Arrow in, Arrow out; called with the rows of a task, in no particular order."""
        step = self._named(id, "map_batches")
        check_parameters(function, "an Arrow table", yields=False, step=step)
        found = batch_step_schema(function, schema, sample, self.schema, step=step)
        return self._then(id, MapBatches(function, found), "map_batches")

    def union(self, *others: Stream, id: str | None = None) -> Stream:
        """The rows of all; they must have the same columns."""
        for other in others:
            self._need_stream("union", other)
        steps = (self.step, *(o.step for o in others))
        return Stream(self._builder, self._builder.add(id, Union(), steps, f"union-{self.step}"))

    # -- time -------------------------------------------------------------------

    def watermark(self, time: str, delay: Duration, *, id: str | None = None) -> Stream:
        """Rows more than `delay` behind the newest are late: counted and kept apart."""
        self._known((time,))
        return self._then(id, Watermark(time, microseconds(delay)), "watermark")

    def late(self, *, id: str | None = None) -> Stream:
        """The rows that came too late for this stream's watermark, as they came to it."""
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
        """Add window_start and window_end of windows that follow each other."""
        return self._then(id, Tumble(self._time(time), microseconds(size)), "tumble")

    def hop(
        self, size: Duration, slide: Duration, *, time: str | None = None, id: str | None = None
    ) -> Stream:
        """Add window_start and window_end of windows that overlap; a row is in size / slide of them."""
        return self._then(id, Hop(self._time(time), microseconds(size), microseconds(slide)), "hop")

    # -- per key ------------------------------------------------------------------

    def key_by(self, *columns: str, id: str | None = None, **computed: str) -> KeyedStream:
        """By these columns, and by expressions, which become columns in front: ``key_by(day="ts::date")``."""
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
        """Deal the rows to n shards, for state that belongs to no key: keyed by the new column `shard`.

        A row's shard follows from the columns `by`, or from all of them.
        """
        need_number("the number of shards", n, 1)
        self._known(by)
        return KeyedStream(self._then(id, Shard(n, tuple(by)), "shards"), (SHARD,))

    def aggregate(self, *unnamed: Any, id: str | None = None, **aggregates: str) -> Stream:
        """Over all rows: one row, without a key."""
        return KeyedStream(self, ()).aggregate(*unnamed, on_close=False, buckets=None, id=id, **aggregates)

    def reduce(self, function: Callable[[Row, Row], Any], *, id: str | None = None) -> Stream:
        """All rows made one, two by two; see `KeyedStream.reduce`."""
        return KeyedStream(self, ()).reduce(function, id=id)

    def distinct(self, *columns: str, id: str | None = None) -> Stream:
        """Each row once, of these columns or of all."""
        self._known(columns)
        return self._then(id, Distinct(tuple(columns) or tuple(self.columns)), "distinct")

    def top_n(self, n: int, by: str | Sequence[str], *, id: str | None = None) -> Stream:
        """The first n rows of all; `by` is "column" or "column desc"."""
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
        """Join on equal columns; columns of the other side that clash get a suffix."""
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

    # -- where people look ------------------------------------------------------------

    def view(self, name: str, *, key: str | Sequence[str] | None = None) -> ViewHandle:
        """Keep the rows under a name that can be read, in any process, at any retained epoch."""
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
        view = View(name, step, table)
        self._builder.change(lambda plan: plan.with_view(view))
        return ViewHandle(self._builder, step, name)

    def _then(self, id: str | None, operator: Any, verb: str) -> Stream:
        ended = self._builder.ended(operator, (self.step,))
        return Stream(self._builder, self._builder.add(id, ended, (self.step,), f"{self.step}.{verb}"))

    def _named(self, id: str | None, verb: str) -> str:
        """What a step will be called, for errors before there is one."""
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
    """A stream with a name; changes of it can go to sinks."""

    def __init__(self, builder: Builder, step: str, name: str) -> None:
        super().__init__(builder, step)
        self.name = name

    def sink(self, name: str, sink: Any) -> ViewHandle:
        """Deliver the view's changes, epoch by epoch, after each commit."""
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
    """What a process step gives, and its side outputs."""

    def __init__(self, builder: Builder, step: str, sides: Mapping[str, str]) -> None:
        super().__init__(builder, step)
        self._sides = sides

    def follow(self, ids: Mapping[str, str]) -> None:
        super().follow(ids)
        self._sides = {name: ids.get(step, step) for name, step in self._sides.items()}

    def side(self, name: str) -> Stream:
        """A side output, declared with `sides=`."""
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
    """A stream seen by key; the next step brings all rows of a key together."""

    def __init__(self, stream: Stream, key: Sequence[str]) -> None:
        self.stream = stream
        self.key = tuple(key)

    def aggregate(
        self,
        *unnamed: Any,
        on_close: bool = False,
        buckets: int | None = None,
        id: str | None = None,
        **aggregates: str,
    ) -> Stream:
        """One row per key, exact under any change: ``aggregate(n="count(*)", total="sum(price)")``.

        With `on_close` the key must hold `window_end`: each window is shown once, when it is over.
        `buckets` spreads the values of min and max of hot keys over so many tasks first; without a
        key that is always done.
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

            feeds = (*feeds, Feed("always", ()))
            inputs.append(builder.constant("one-row", Scan(OneRow(), OneRow().schema, True)))
        operator = builder.ended(Aggregate(self.key, parsed.aggs, feeds, closes), tuple(inputs))
        return Stream(builder, builder.add(id, operator, tuple(inputs), base))

    def _candidates(self, source: Stream, feed: Feed, function: str, buckets: int, base: str) -> str:
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

        `buckets` ranks the rows of hot keys in so many parts first; without a key that is always done.
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
        """The first row of each key by an order, e.g. ``first("date_time desc")`` for the latest."""
        return self._then(id, Extreme(self.key, orders(by, self.stream), tuple(self.stream.columns)), "first")

    def reduce(self, function: Callable[[Row, Row], Any], *, id: str | None = None) -> Stream:
        """One row per key: its rows made one, two by two, in the order of their columns.

        The function gets two rows and returns one of the same columns; it may leave out the key. Changes of
        a key fold all its rows anew, so they cost its size: where there is an aggregate, use that.
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

        `schema` is of the rows it gives (or annotate what it returns).  `sides` are further outputs,
        reached by `.side(name)`.  `control` is a stream that every key hears before its rows.  With
        `latest` the newest row given for a key replaces the one before.  One call may take `timeout`.
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

        ``def tally(batch, n=ValueState(int, default=0))`` gets `batch.rows` by key and in order,
        `batch.keys`, `batch.key_of`, `batch.starts`; reads and sets `n.values`; returns a table.
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
        """Anything computed within a key, from all its rows: a query over `input`, or Python."""
        step = self.stream._named(id, "apply")
        if sql is not None:
            need_text("sql", sql, "a query over `input`")
        if function is not None:
            check_parameters(function, "the key", "its rows as an Arrow table", yields=False, step=step)
        found = None if schema is None else schema_of(schema, step=step)
        alone = sql is not None and is_run_alone(sql)
        return self._then(id, PerKey(self.key, found, function, sql, alone=alone), "apply")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            before = f"call {name}() before key_by()" if hasattr(Stream, name) else None
            raise no_method(self, name, {name: before} if before else KEYED_HINTS)

    def _close(self, on_close: bool) -> Close | None:
        if not on_close:
            return None
        shape = self.stream.shape
        if "window_end" not in self.key or shape.watermark is None:
            raise InvalidError(
                "on_close needs windows and a watermark",
                hint='watermark("ts", "4s").tumble("10s").key_by("window_end").aggregate(on_close=True, ...)',
                step=self.stream.step,
            )
        return Close("window_end", shape.watermark, _slide(self.stream))

    def _then(self, id: str | None, operator: Any, verb: str) -> Stream:
        builder, inputs = self.stream._builder, (self.stream.step,)
        ended = builder.ended(operator, inputs)
        return Stream(builder, builder.add(id, ended, inputs, f"{self.stream.step}.{verb}"))


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
    """What all window ends are multiples of: windows of one stream close on it."""
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
