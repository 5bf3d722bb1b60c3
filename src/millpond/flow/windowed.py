"""Windowed streams: rows by key and window, and when the contents of windows are emitted.

Without a trigger the contents of a window are a step keyed by the window: they change with every epoch, and
each change retracts the contents before.  With a trigger, a step holds the rows back until it fires
(`operators.triggered`), the contents are computed from the rows that were released, and a last step
makes panes of them (`operators.emit_panes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from millpond.arguments.call_errors import checked, no_method
from millpond.arguments.schemas import Like
from millpond.errors import InvalidError
from millpond.flow.aggregates import parse_aggregates
from millpond.flow.builder import Builder
from millpond.flow.process import Target
from millpond.flow.shared_slices import SharedSlices, SpreadGroups, can_share, worth_slices
from millpond.flow.stream_watermarks import passed_on_bound
from millpond.flow.window_apply import with_key_columns
from millpond.flow.window_join import BothSides, bound_of_both, windows_of_both, with_key
from millpond.flow.window_kinds import Counting, GapExpression
from millpond.flow.window_notes import note_gaps
from millpond.flow.window_steps import (
    WindowSteps,
    before_watermark,
    end_bound,
    learn_delays,
    watermark_of,
    within_epoch,
)
from millpond.flow.windowing import Windowing
from millpond.kernels.aggregate_feeds import Close
from millpond.kernels.bounds import Bound
from millpond.kernels.custom_windows import CustomWindows
from millpond.kernels.duck import quoted
from millpond.kernels.event_time import check_time
from millpond.kernels.python_rows import Row
from millpond.kernels.slices import check_windows_per_row
from millpond.kernels.triggers import WATERMARK
from millpond.kernels.window_assigners import GAP, GapColumn, Sliding, WindowAssigner
from millpond.operators.assign_slices import SLICE, AssignSlices
from millpond.operators.assign_windows import FIRST, AssignWindows
from millpond.operators.count_windows import CountWindows
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.map import Map
from millpond.operators.merge_windows import MergeWindows
from millpond.operators.panes import KIND, LAST, PANE, TIMING
from millpond.operators.union import Union
from millpond.operators.window import END, START

if TYPE_CHECKING:
    from millpond.flow.keyed_stream import KeyedStream
    from millpond.flow.stream import ProcessedStream, Stream

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
Build = Callable[["KeyedStream", str | None], "Stream"]


@checked
class WindowedStream:
    """A stream by key and window, made by `KeyedStream.window`.

    The examples of its methods begin with these lines:

    >>> import datetime, millpond
    >>> from millpond.sources.memory import MemorySource
    >>> from millpond.windows import tumbling
    >>> pond = millpond.open("memory://", engine="inline")
    >>> source = MemorySource({"who": str, "n": int, "at": datetime.datetime})
    >>> orders = pond.stream("orders", source).watermark("at", "0s")
    >>> noon = datetime.datetime(2024, 1, 1, 12)
    >>> hourly = orders.key_by("who").window(tumbling("1h"))
    >>> source.push([{"who": "ann", "n": n, "at": noon} for n in (5, 2)])
    """

    def __init__(self, keyed: KeyedStream, spec: Windowing, time: str | None) -> None:
        self._keyed_stream = keyed
        self._key = keyed.key
        self._spec = spec
        stream = keyed.stream
        self._builder: Builder = stream._builder
        self._base = f"{stream.step}.window"
        windows = spec.windows
        if isinstance(windows, Counting):
            self._count(stream, windows)
            return
        self._assigner: WindowAssigner = GapColumn() if isinstance(windows, GapExpression) else windows
        passed_on = None
        if time is None and stream.shape.time is None:
            passed_on = passed_on_bound(self._builder, stream.step)
        self._time = stream._time(time if passed_on is None else passed_on.column)
        if taken := [c for c in (START, END, PANE, TIMING, LAST, KIND) if c in stream.columns]:
            raise InvalidError(
                f"the input already has a column {taken[0]!r}",
                hint="rename it with select() before window()",
                step=stream.step,
            )
        note_gaps(self._assigner, stream.step)
        self._watermark = passed_on or watermark_of(self._builder, stream.step, self._time)
        self._check(stream)
        if spec.trigger is not None and any(c not in ("processing", WATERMARK) for c in spec.trigger.clocks):
            learn_delays(self._builder, stream.step)
        self._source, again = before_watermark(self._builder, stream.step)
        if spec.lateness_us and not again:
            raise InvalidError(
                "allowed lateness needs the rows that the watermark took out as late",
                detail="a step between the watermark and the window has state, and has not seen them",
                hint="set the watermark right before key_by(), or leave allowed_lateness out",
                step=stream.step,
            )
        if spec.mode == "discarding" and not stream.shape.append_only:
            raise InvalidError(
                "mode 'discarding' needs append-only input",
                detail="a deleted row may have been in an earlier pane",
                hint="use mode 'retracting'",
                step=stream.step,
            )
        self._reports = not again
        if isinstance(windows, GapExpression):
            self._source = with_gap(self._builder, self._source, windows.expression)
        self._added: str | None = None
        if self._may_share:  # then the rows may get slices instead of windows
            self._slices().bind(self._base, (self._builder.shape(self._source),))
        elif self._may_spread:  # or all their windows at once
            check_windows_per_row(self._assigner, self._base)
            self._latest().bind(self._base, (self._builder.shape(self._source),))
        else:
            self._added = self._step
        self._builder.track(self)

    def _follow(self, ids: Any) -> None:
        self._added = None if self._added is None else ids.get(self._added, self._added)
        self._source = ids.get(self._source, self._source)

    @property
    def _step(self) -> str:
        """The step with a row for every window of each row; added when something needs it."""
        if self._added is None:
            check_windows_per_row(self._assigner, self._base)
            self._added = self._builder.add(None, self._assign(), (self._source,), self._base)
        return self._added

    def __repr__(self) -> str:
        keys = ", ".join(self._key) or "all rows"
        step = self._added or self._base
        return f"WindowedStream({step!r}: {self._spec.windows}; key {keys}; {self._spec.mode})"

    def _count(self, stream: Stream, windows: Counting) -> None:
        spec = self._spec
        if spec.lateness_us:
            raise InvalidError(
                "rows that are counted are never late", hint="leave allowed_lateness out", step=stream.step
            )
        if spec.trigger is not None and not spec.closes:
            raise InvalidError(
                "windows of a number of rows close when they are full",
                hint="pass on_close=True instead of a trigger, or neither",
                step=stream.step,
            )
        if windows.timeout_us is not None and not spec.closes:
            raise InvalidError(
                "a timeout closes windows", hint="pass on_close=True to window()", step=stream.step
            )
        self._watermark = None
        self._source = stream.step
        operator = CountWindows(self._key, windows.n, windows.step, spec.closes, windows.timeout_us)
        self._added = self._builder.add(None, operator, (stream.step,), self._base)
        self._builder.track(self)

    def _check(self, stream: Stream) -> None:
        spec = self._spec
        needs = spec.trigger is not None and any(c != "processing" for c in spec.trigger.clocks)
        if self._watermark is None and (needs or spec.lateness_us):
            raise InvalidError(
                "a trigger at the watermark needs a watermark"
                if needs
                else "allowed lateness needs a watermark",
                hint='call watermark("at", "5s") before key_by(), or pass event_time= to stream()',
                step=stream.step,
            )
        expires = self._watermark is not None and self._assigner.ends
        if spec.trigger is not None and not spec.trigger.may_fire and not expires:
            raise InvalidError(
                "this trigger never fires, and its windows never end",
                hint="use a trigger that fires, such as every('5s'), or windows that end",
                step=stream.step,
            )

    def _assign(self, late: bool = False) -> AssignWindows:
        spec = self._spec
        return AssignWindows(self._time, self._assigner, self._watermark, spec.after_us, late, self._reports)

    @property
    def _may_share(self) -> bool:
        """Can aggregates of these windows be computed from slices?"""
        return self._spec.closes and self._watermark is not None and worth_slices(self._assigner)

    @property
    def _may_spread(self) -> bool:
        """Can aggregates of these windows be computed from groups of rows that are in the same windows?"""
        columns = self._builder.shape(self._source).schema.names
        follows = self._spec.trigger is None and isinstance(self._assigner, Sliding)
        return follows and worth_slices(self._assigner) and FIRST not in columns

    def _latest(self) -> AssignWindows:
        return replace(self._assign(), latest=True)

    def _slices(self) -> AssignSlices:
        return AssignSlices(self._time, self._assigner, self._watermark, self._reports)

    def _shared(self, aggregates: Mapping[str, str]) -> KeyedStream | None:
        """The stream by key and slice, or by latest window, if these aggregates can be computed from that."""
        builder = self._builder
        shape = builder.shape(self._source)
        if isinstance(self._spec.windows, Counting) or not (self._may_share or self._may_spread):
            return None
        if not aggregates or not all(isinstance(a, str) for a in aggregates.values()):
            return None
        parsed = parse_aggregates(aggregates, shape.schema.names, step=self._base)
        texts = [text for _, text in parsed.computed]
        if not can_share(parsed.aggs, shape.append_only) or any(
            name in text for text in texts for name in (START, END, SLICE, FIRST)
        ):
            return None
        if not self._may_share:
            latest = self._latest()
            step = builder.add(None, latest, (self._source,), f"{self._base}.latest")
            groups = SpreadGroups(self._key, latest.spread, self._base)
            return self._keyed_stream._keyed_over(step, self._window_key, groups)
        assert self._watermark is not None
        step = builder.add(None, self._slices(), (self._source,), f"{self._base}.slices")
        kind = check_time(shape.schema, self._time, self._base)
        slices = SharedSlices(self._key, self._assigner, self._watermark, kind, self._base)
        return self._keyed_stream._keyed_over(step, (*self._key, SLICE), slices)

    # -- contents ------------------------------------------------------------------

    def aggregate(self, *unnamed: Any, id: str | None = None, **aggregates: str) -> Stream:
        """Aggregates of each window: one row per key and window.

        >>> _ = hourly.aggregate(n="count(*)", total="sum(n)").view("totals")
        >>> _ = pond.drain()
        >>> [(r["window_start"].hour, r["total"]) for r in pond.read("totals").to_pylist()]
        [(12, 7)]
        """
        shared = None if unnamed else self._shared(aggregates)
        if shared is not None:
            return shared.aggregate(on_close=False, buckets=None, id=id, **aggregates)
        empty = tuple((name, 0) for name, text in aggregates.items() if _counts(text))
        return self._contents(
            lambda keyed, id: keyed.aggregate(*unnamed, on_close=False, buckets=None, id=id, **aggregates),
            id,
            single=True,
            empty=empty,
        )

    def reduce(self, function: Callable[[Row, Row], Any], *, id: str | None = None) -> Stream:
        """One row per key and window, whose rows are combined two by two; see `KeyedStream.reduce`.

        >>> _ = hourly.reduce(lambda a, b: {"n": a.n * b.n, "at": max(a.at, b.at)}).view("products")
        >>> _ = pond.drain()
        >>> pond.read("products").column("n").to_pylist()
        [10]
        """
        return self._contents(lambda keyed, id: keyed.reduce(function, id=id), id, single=True)

    def top_n(self, n: int, by: str | Sequence[str], *, id: str | None = None) -> Stream:
        """The first n rows of each key and window by an order.

        >>> _ = hourly.top_n(1, "n desc").view("largest")
        >>> _ = pond.drain()
        >>> pond.read("largest").column("n").to_pylist()
        [5]
        """
        return self._contents(lambda keyed, id: keyed.top_n(n, by, id=id), id)

    def distinct(self, *columns: str, id: str | None = None) -> Stream:
        """Each combination of these columns once per key and window.

        >>> _ = hourly.distinct("who").view("buyers")
        >>> _ = pond.drain()
        >>> pond.read("buyers").num_rows
        1
        """

        def build(keyed: KeyedStream, id: str | None) -> Stream:
            names = columns or [c for c in keyed.stream.columns if c != PANE]
            return keyed.stream.distinct(*dict.fromkeys((*keyed.key, *names)), id=id)

        return self._contents(build, id)

    def apply(
        self,
        function: Callable[..., Any] | None = None,
        schema: Like | None = None,
        *,
        sql: str | None = None,
        id: str | None = None,
    ) -> Stream:
        """Compute anything from all rows of a window: a query over `input`, or a Python function.

        The key and the window are added to its rows.

        >>> _ = hourly.apply(sql="SELECT median(n) AS median FROM input").view("medians")
        >>> _ = pond.drain()
        >>> pond.read("medians").column("median").to_pylist()
        [3.5]
        """
        return self._contents(lambda keyed, id: with_key_columns(keyed, function, schema, sql, id), id)

    def process(self, code: Target, schema: Like | None = None, **options: Any) -> ProcessedStream:
        """Your Python per key and window, with state and timers; see `KeyedStream.process`.

        With a trigger, rows arrive when their window fires.

        >>> def number(row, n=millpond.ValueState(int, default=0)):
        ...     n.value += 1
        ...     return {"who": row.who, "number": n.value}
        >>> _ = hourly.process(number, {"who": str, "number": int}).view("numbered")
        >>> _ = pond.drain()
        >>> sorted(pond.read("numbered").column("number").to_pylist())
        [1, 2]
        """
        rows = self._rows()
        if self._follows_merges(rows):
            raise InvalidError(
                "process needs windows that take no row back",
                detail="a row between two windows that merge moves their rows to another window",
                hint='pass on_close=True or mode="discarding" to window(), or use apply()',
                step=self._step,
            )
        return self._keyed(rows).process(code, schema, **options)

    def _follows_merges(self, rows: str) -> bool:
        """Are rows retracted because their windows merge, although the input is append-only?"""
        shape = self._builder.shape
        return shape(self._source).append_only and not shape(rows).append_only

    def join(
        self,
        other: WindowedStream,
        kind: JoinKind = "inner",
        *,
        where: str | None = None,
        suffix: str = "_right",
        id: str | None = None,
    ) -> Stream:
        """Join with another windowed stream: rows with equal keys in the same window.

        Keys and windows must be the same.  With `on_close` on both sides a pair is emitted when its window
        closes.  A trigger must be that of both sides, and each pane is the join of the rows that it released.
        Sessions are those of the rows of both sides together.

        >>> payments = MemorySource({"who": str, "paid": int, "at": datetime.datetime})
        >>> paid = pond.stream("payments", payments).watermark("at", "0s").key_by("who")
        >>> _ = hourly.join(paid.window(tumbling("1h"))).view("paid_orders")
        >>> payments.push([{"who": "ann", "paid": 7, "at": noon + datetime.timedelta(minutes=9)}])
        >>> _ = pond.drain()
        >>> sorted((r["n"], r["paid"]) for r in pond.read("paid_orders").to_pylist())
        [(2, 7), (5, 7)]
        """
        if not isinstance(other, WindowedStream):
            raise InvalidError(
                "join needs a windowed stream", hint="call key_by(...).window(...) on the other side, too"
            )
        if self._key != other._key or self._spec.windows != other._spec.windows:
            raise InvalidError(
                "both sides of a join need the same key and the same windows",
                detail=f"{self._spec.windows} by {self._key}, {other._spec.windows} by {other._key}",
            )
        if self._has_trigger or other._has_trigger:
            return self._join_panes(other, kind, where, suffix, id)
        aligned = isinstance(self._spec.windows, Counting) or not self._assigner.merges
        closes = self._spec.closes and other._spec.closes and self._watermark is not None
        # A row has no partner only when its window has closed for both sides.
        waits = closes and kind in ("left", "right", "full", "anti") and self._assigner.ends
        steps = self._windows_with(other) if waits or not aligned else (self._rows(), other._rows())
        left, right = (
            side._keyed_stream._stream_of(step) for side, step in zip((self, other), steps, strict=True)
        )

        def join() -> Stream:
            return left.join(right, list(self._window_key), kind, where=where, suffix=suffix, id=id)

        if not waits:
            return join()
        # All rows of a window come in one epoch, those of both sides.
        step = within_epoch(self._builder, self._window_key, lambda: join().step)
        return self._keyed_stream._stream_of(step)

    @property
    def _has_trigger(self) -> bool:
        """Has it a trigger that is more than the close of each window?"""
        return self._spec.trigger is not None and not self._spec.closes

    def _join_panes(
        self, other: WindowedStream, kind: JoinKind, where: str | None, suffix: str, id: str | None
    ) -> Stream:
        """The panes of the windows of both sides: each is the join of the rows that it released."""
        spec = self._spec
        if spec != other._spec or spec.trigger is None:
            raise InvalidError(
                "both sides of a join need the same trigger, mode, allowed lateness and panes",
                detail=f"{spec}, {other._spec}",
                hint="pass the same options to window() on both sides",
                step=self._base,
            )
        both = BothSides.of(self._builder, (self._step, other._step), self._key)
        watermark = bound_of_both(self._builder, both, (self._watermark, other._watermark))
        steps = replace(self._steps, assigned=both.step, watermark=watermark, base=both.base)
        rows = steps.released()
        more = (PANE,) if spec.mode == "discarding" else ()
        key = (*self._window_key, *more)

        def build() -> str:
            left, right = (self._keyed_stream._stream_of(both.side(n, rows, more)) for n in (0, 1))
            joined = left.join(right, list(key), kind, where=where, suffix=suffix)
            return joined.step if kind not in ("right", "full") else with_key(joined, key, more, suffix)

        return self._keyed_stream._stream_of(steps.panes(build, id=id, shows=spec.panes))

    def _windows_with(self, other: WindowedStream) -> tuple[str, str]:
        """The steps with the rows of both sides, in the windows that they make together."""
        if self._spec.closes != other._spec.closes:
            raise InvalidError(
                "sessions of two sides close together",
                hint="pass on_close=True on both sides, or on none",
                step=self._step,
            )
        return windows_of_both(
            self._builder,
            (self._step, other._step),
            self._key,
            closes=self._spec.closes,
            merges=self._assigner.merges,
            merge=merge_of(self._assigner),
        )

    def late(self, *, id: str | None = None) -> Stream:
        """The rows that came too late for their window, with that window.

        >>> _ = hourly.late().view("late_orders")
        >>> source.push([{"who": "bob", "n": 1, "at": noon + datetime.timedelta(days=1)}])
        >>> _ = pond.drain()
        >>> source.push([{"who": "ann", "n": 9, "at": noon}])
        >>> _ = pond.drain()
        >>> pond.read("late_orders").column("n").to_pylist()
        [9]
        """
        builder = self._builder
        if isinstance(self._spec.windows, Counting):
            raise InvalidError("rows that are counted are never late", step=self._step)
        finishes = self._spec.trigger is not None and not self._spec.closes
        own = None if finishes else id
        steps = [builder.add(own, self._assign(late=True), (self._source,), f"{self._base}.late")]
        if finishes:
            steps.append(self._steps.finished())
        if len(steps) == 1:
            return self._keyed_stream._stream_of(steps[0])
        step = builder.add(id, Union(), tuple(steps), f"{self._base}.all_late")
        return self._keyed_stream._stream_of(step)

    # -- steps ---------------------------------------------------------------------

    @property
    def _window_key(self) -> tuple[str, ...]:
        return (*self._key, START, END)

    def _keyed(self, step: str, *more: str, closes: Close | None = None) -> KeyedStream:
        return self._keyed_stream._keyed_over(step, (*self._window_key, *more), closes)

    def _until(self, step: str) -> Bound | None:
        """The bound by which the state of a window expires."""
        return end_bound(self._builder, step)

    def _assigned(self) -> str:
        """The step with all rows and their windows, merged where windows of a key merge."""
        if isinstance(self._spec.windows, Counting) or not self._assigner.merges:
            return self._step
        operator = MergeWindows(self._key, self._until(self._step), merge_of(self._assigner))
        return self._builder.add(None, operator, (self._step,), f"{self._base}.merged")

    @property
    def _steps(self) -> WindowSteps:
        spec = self._spec
        assert spec.trigger is not None
        return WindowSteps(
            self._builder,
            self._step,
            self._key,
            self._assigner.merges,
            spec.trigger,
            self._watermark,
            spec.mode,
            self._base,
            merge=merge_of(self._assigner),
        )

    def _rows(self) -> str:
        """The step with the rows that may be used: all, those of closed windows, or released ones."""
        spec, builder = self._spec, self._builder
        if spec.trigger is None:
            return self._assigned()
        until = self._until(self._step)
        if isinstance(spec.windows, Counting):
            return self._step
        if spec.closes and until is not None:
            operator = EmitOnClose(self._window_key, until)
            return builder.add(None, operator, (self._assigned(),), f"{self._base}.closed")
        return self._steps.released()

    def _contents(
        self,
        build: Build,
        id: str | None,
        *,
        single: bool = False,
        empty: tuple[tuple[str, Any], ...] | None = None,
    ) -> Stream:
        """The step that `build` makes of the rows of windows, as panes where there is a trigger."""
        spec = self._spec
        if spec.trigger is None:
            return build(self._keyed(self._assigned()), id)
        if isinstance(spec.windows, Counting):  # all rows of a window come when it closes
            builder, key = self._builder, self._window_key
            step = within_epoch(builder, key, lambda: build(self._keyed(self._step), id).step)
            return self._keyed_stream._stream_of(step)
        if spec.closes:
            until = self._until(self._step)
            if single and empty is not None and until is not None and until.grid:
                closes = Close(END, until.marks[0][0], until.width_us, until.marks)
                return build(self._keyed(self._assigned(), closes=closes), id)
            return build(self._keyed(self._rows()), id)
        return self._panes(build, id, single, empty)

    def _panes(
        self,
        build: Build,
        id: str | None,
        single: bool,
        empty: tuple[tuple[str, Any], ...] | None,
    ) -> Stream:
        rows = self._rows()
        more = (PANE,) if self._spec.mode == "discarding" else ()
        step = self._steps.panes(
            lambda: build(self._keyed(rows, *more), None).step,
            id=id,
            shows=self._spec.panes,
            single=single,
            empty=empty,
        )
        return self._keyed_stream._stream_of(step)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            before = dict.fromkeys(
                ("filter", "select", "with_columns", "map", "flat_map", "union", "watermark"),
                f"call {name}() before key_by() and window(), or on the result",
            )
            hints = {
                **before,
                "view": 'compute something of each window first: .aggregate(n="count(*)").view("name")',
            }
            raise no_method(self, name, hints)


def merge_of(windows: WindowAssigner) -> Any:
    return windows.merge if isinstance(windows, CustomWindows) else None


def with_gap(builder: Builder, step: str, expression: str) -> str:
    """The rows with the gap of their session in microseconds, from an expression: an interval, or seconds."""
    schema = builder.shape(step).schema
    pairs = [(name, quoted(name)) for name in schema.names]
    by_seconds = Map((*pairs, (GAP, f"CAST(round(CAST(({expression}) AS DOUBLE) * 1000000) AS BIGINT)")))
    by_interval = Map((*pairs, (GAP, f"CAST(epoch_us({expression}) AS BIGINT)")))
    operator = by_interval if _binds(builder, step, by_interval) else by_seconds
    return builder.add(None, operator, (step,), f"{step}.gap")


def _binds(builder: Builder, step: str, operator: Map) -> bool:
    """Whether the expressions of a step have the types that they need."""
    try:
        operator.bind(step, (builder.shape(step),))
    except InvalidError:
        return False
    return True


def _counts(text: Any) -> bool:
    return isinstance(text, str) and text.strip().lower().startswith(("count(", "count ("))
