"""Keyed streams: steps that bring all rows of a key together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.arguments.call_errors import check_expressions, checked, need_number, need_text, no_method
from millpond.arguments.durations import Duration
from millpond.arguments.schemas import Like, check_parameters, schema_of
from millpond.errors import InvalidError
from millpond.flow.aggregates import parse_aggregates
from millpond.flow.descriptions import html_description, text_description
from millpond.flow.exact_aggregates import counted_exactly, query_of_rows
from millpond.flow.process import Target, process_batch_step, process_step
from millpond.flow.shared_slices import SharedSlices, SpreadGroups
from millpond.flow.window_kinds import Windows
from millpond.flow.window_steps import Mode, watermark_of
from millpond.flow.windowed import WindowedStream
from millpond.flow.windowing import windowing
from millpond.kernels.aggregate_feeds import AggregateFeed, Close, feeds_for
from millpond.kernels.duck import quoted
from millpond.kernels.python_rows import Row
from millpond.kernels.triggers import Trigger
from millpond.operators.aggregate import Aggregate
from millpond.operators.distinct import Distinct
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.extreme import Extreme
from millpond.operators.filter import Filter
from millpond.operators.in_order import InOrder
from millpond.operators.map import Map
from millpond.operators.per_key import PerKey, is_run_alone
from millpond.operators.reduce import Reduce
from millpond.operators.scan import Scan
from millpond.operators.top_n import TopN
from millpond.operators.window import Hop, Tumble
from millpond.ordering import Order
from millpond.sources.constant import OneRow

if TYPE_CHECKING:
    from millpond.flow.stream import ProcessedStream, Stream

GLOBAL_BUCKETS = 16  # the first half of the hierarchy for a ranking without a key

KEYED_HINTS = dict.fromkeys(
    ("sum", "count", "min", "max", "avg", "agg"), 'use aggregate(n="count(*)", s="sum(x)")'
)


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

    def __init__(
        self, stream: Stream, key: Sequence[str], closes: Close | SharedSlices | SpreadGroups | None = None
    ) -> None:
        self.stream = stream
        self.key = tuple(key)
        self._closes = closes  # the key is a window or a slice; windows are emitted when they close

    def __repr__(self) -> str:
        return text_description(self.stream, self.stream._shown_name, self.key, type(self).__name__)

    def _repr_html_(self) -> str:
        return html_description(self.stream, self.stream._shown_name, self.key, type(self).__name__)

    def window(
        self,
        windows: Windows,
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
            operator = InOrder(self.key, column, slack, bound, forgets=True)
        step = builder.add(id, operator, (stream.step,), f"{stream.step}.in_order")
        return self._keyed_over(step, self.key, None)

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
        check_expressions(aggregates)
        if buckets is not None:
            need_number("buckets", buckets, 1)
        if not aggregates:
            raise InvalidError("aggregate needs at least one aggregate", hint='for example n="count(*)"')
        slices = self._closes if isinstance(self._closes, SharedSlices) else None
        spreads = self._closes if isinstance(self._closes, SpreadGroups) else None
        shared = slices or spreads
        base = id or (shared.default if shared else f"{stream.step}.by-{'-'.join(self.key) or 'all'}")
        append_only = stream.shape.append_only
        parsed = parse_aggregates(aggregates, stream.columns, step=base, append_only=append_only)
        if not append_only:
            parsed = replace(parsed, aggs=counted_exactly(parsed.aggs))
        source = stream
        if parsed.computed:
            used = {a.argument for a in parsed.aggs if a.argument in stream.columns}
            used |= {*self.key, *(spreads.spread.extra if spreads else ())}
            keep = [c for c in stream.columns if c in used]
            pairs = [(c, quoted(c)) for c in keep] + list(parsed.computed)
            try:
                arguments = builder.add(None, Map(tuple(pairs)), (stream.step,), f"{base}.arguments")
            except InvalidError as error:
                error.step = id or base  # the step that the user wrote
                raise
            source = self._stream_of(arguments)
        if slices is not None:
            return self._stream_of(builder.add(id, slices.aggregate(parsed.aggs), (source.step,), base))
        if not source.shape.append_only:
            query = query_of_rows(self.key, parsed.aggs, source.schema, base)
            if query is not None:
                per_key = builder.ended(PerKey(self.key, sql=query, passes=self.key), (source.step,))
                return self._stream_of(builder.add(id, per_key, (source.step,), base))
        tasks = buckets or (None if self.key else GLOBAL_BUCKETS)
        feeds = feeds_for(parsed.aggs, source.shape.append_only, staged=tasks is not None)
        inputs = []
        for feed in feeds:
            if feed.kind == "values" and tasks is not None:
                inputs.append(self._candidates(source, feed, parsed.aggs[feed.aggs[0]].function, tasks, base))
                continue
            if feed.kind == "distinct":
                assert feed.column is not None
                columns = tuple(dict.fromkeys((*self.key, feed.column)))
                present = builder.add(
                    None,
                    Filter(f"{quoted(feed.column)} IS NOT NULL"),
                    (source.step,),
                    f"{base}.{feed.column}-given",
                )
                apart = builder.ended(Distinct(columns), (present,))
                inputs.append(builder.add(None, apart, (present,), f"{base}.{feed.column}-distinct"))
            else:
                inputs.append(source.step)
        closes = self._close(on_close)
        if not self.key:
            feeds = (*feeds, AggregateFeed("always", ()))
            inputs.append(builder.constant("one-row", Scan(OneRow(), OneRow().schema, True)))
        spread = None if spreads is None else spreads.spread
        operator = builder.ended(
            Aggregate(self.key, parsed.aggs, feeds, closes, spread=spread), tuple(inputs)
        )
        return self._stream_of(builder.add(id, operator, tuple(inputs), base))

    def _candidates(self, source: Stream, feed: AggregateFeed, function: str, buckets: int, base: str) -> str:
        """The first half of the hierarchy (key, bucket) -> key: the best value of each bucket."""
        assert feed.column is not None
        builder = source._builder
        columns = tuple((c, quoted(c)) for c in dict.fromkeys((*self.key, feed.column)))
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
        operator = TopN(self.key, parsed_orders(by, self.stream), n, offset, with_ties, rank)
        base = id or f"{self.stream.step}.top-{n}"
        builder = self.stream._builder
        source = self.stream.step
        spread = buckets or (None if self.key else GLOBAL_BUCKETS)
        if spread is not None and not with_ties:
            first, operator = operator.split(spread)
            source = builder.add(None, builder.ended(first, (source,)), (source,), f"{base}.buckets")
        return self._stream_of(builder.add(id, builder.ended(operator, (source,)), (source,), base))

    def first(self, by: str | Sequence[str], *, id: str | None = None) -> Stream:
        """The first row of each key by an order, for example ``first("date_time desc")`` for the latest.

        >>> _ = orders.key_by("who").first("n").view("smallest")
        >>> _ = pond.drain()
        >>> pond.read("smallest").to_pylist()
        [{'who': 'ann', 'n': 2}]
        """
        return self._then(
            id, Extreme(self.key, parsed_orders(by, self.stream), tuple(self.stream.columns)), "first"
        )

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
        return self.stream._with_sides(step, picked)

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
        return self._stream_of(step)

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
        columns = None if schema is None else schema_of(schema, step=step)
        by_key = sql is not None and is_run_alone(sql, self.key)
        return self._then(id, PerKey(self.key, columns, function, sql, alone=by_key), "apply")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            before = f"call {name}() before key_by()" if hasattr(type(self.stream), name) else None
            raise no_method(self, name, {name: before} if before else KEYED_HINTS)

    def _close(self, on_close: bool) -> Close | None:
        if not on_close:
            assert not isinstance(self._closes, SharedSlices)
            return None if isinstance(self._closes, SpreadGroups) else self._closes
        shape = self.stream.shape
        if "window_end" not in self.key or shape.watermark is None:
            raise InvalidError(
                "on_close needs windows and a watermark",
                hint='watermark("ts", "4s").tumble("10s").key_by("window_end").aggregate(on_close=True, ...)',
                step=self.stream.step,
            )
        return Close("window_end", shape.watermark, _slide(self.stream))

    def _stream_of(self, step: str) -> Stream:
        """Another step of the same pipeline as a stream."""
        return self.stream._at(step)

    def _keyed_over(
        self, step: str, key: tuple[str, ...], closes: Close | SharedSlices | SpreadGroups | None
    ) -> KeyedStream:
        return KeyedStream(self._stream_of(step), key, closes)

    def _then(self, id: str | None, operator: Any, verb: str) -> Stream:
        builder, inputs = self.stream._builder, (self.stream.step,)
        ended = builder.ended(operator, inputs)
        return self._stream_of(builder.add(id, ended, inputs, f"{self.stream.step}.{verb}"))


def parsed_orders(by: str | Sequence[str], stream: Stream) -> tuple[Order, ...]:
    """``"price desc"`` or a list of such, as orders.

    NULLs come last, as in PostgreSQL for ascending order.
    """
    orders = []
    if not isinstance(by, str | Sequence):
        need_text("an order", by, '"column" or "column desc", or a list of them')
    for text in [by] if isinstance(by, str) else by:
        need_text("an order", text, '"column" or "column desc"')
        column, _, direction = text.strip().partition(" ")
        stream._known((column,))
        if direction.strip().lower() not in ("", "asc", "desc"):
            raise InvalidError(f"not an order: {text!r}", hint='write "column" or "column desc"')
        orders.append(Order(column, descending=direction.strip().lower() == "desc"))
    if not orders:
        raise InvalidError("an order needs at least one column")
    return tuple(orders)


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
