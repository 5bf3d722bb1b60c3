"""TUMBLE, HOP, CUMULATE, CALENDAR, SESSION: turns projections that `text/time_windows.py` marks into steps.

When rows of a key change, its sessions are recomputed from its rows in time order, with
a new session after every gap.  Where a watermark bounds the time, closed sessions leave
the state (`SessionWindow`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, cast, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millpond.flow.window_steps import before_watermark, watermark_of
from millpond.kernels.calendar_windows import Calendar, CalendarUnit
from millpond.kernels.window_assigners import (
    Cumulating,
    Gap,
    Sliding,
    Tumbling,
    WindowAssigner,
)
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.operators.per_key import PerKey
from millpond.operators.session import SessionWindow
from millpond.operators.stamp import Stamp
from millpond.operators.valid_interval import ValidInterval
from millpond.operators.window import END as WINDOW_END
from millpond.operators.window import START as WINDOW_START
from millpond.operators.window import Hop, Tumble
from millpond.operators.within_calendar import WithinCalendar
from millpond.plan.nodes import Plan
from millpond.sql.binding.types import quoted, text_literal
from millpond.sql.bound.clock import reads_stamp
from millpond.sql.bound.expressions import BoundExpression, Constant, Reference, references
from millpond.sql.bound.relations import BoundTimeWindow
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps import stamp
from millpond.sql.lowering.steps.windows_per_row import check_windows_per_row
from millpond.sql.lowering.time_bounds import NEEDS_WATERMARK
from millpond.sql.refusal import NotSupported
from millpond.sql.text.time_windows import (
    END,
    KEY,
    KIND,
    OFFSET,
    SIZE,
    SLIDE,
    START,
    UNIT,
    ZONE,
)


def lower(low: Lowering, node: BoundTimeWindow) -> Relation:
    """Return the relation with the columns of the projection; marks other than the window are never read.

    Sessions store their rows, so they store only the columns that are read, if these are known.
    """
    source, expressions, needed = low.lower(node.input), list(node.outputs), node.read
    if any(reads_stamp(e) for e in expressions):
        source, expressions = stamp.selected(low, source, expressions)
    marks = replace(node, outputs=tuple(expressions)).marks
    time = marks[START]
    if not time.type.startswith("TIMESTAMP"):
        raise NotSupported(
            f"the time of a window must be a timestamp, this one is {time.type}", hint="cast it"
        )
    kind = _kind(marks)
    _refuse_two_windows(low, kind, [e.alias for e in expressions])
    own = [
        (n, e.index) for n, e in enumerate(expressions) if e.alias not in marks and isinstance(e, Reference)
    ]
    if kind == "session" and needed is not None:
        given = {n for name, e in marks.items() if name.startswith((START, KEY)) for n in references(e)}
        own = [(n, place) for n, place in own if n in needed or place in given]
    places = [place for _, place in own]
    names = fresh_names([source.columns[p].name for p in places], [WINDOW_START, WINDOW_END])
    wanted = [
        (n, quoted(source.columns[p].name), source.columns[p].type)
        for n, p in zip(names, places, strict=True)
    ]
    used = []
    for one in [time, *_keys(low, marks)]:
        if isinstance(one, Reference) and one.index in places:
            # use the column itself: the watermark may bound it
            used.append(names[places.index(one.index)])
            continue
        (name,) = fresh_names(["by"], [*(n for n, _, _ in wanted), WINDOW_START, WINDOW_END])
        wanted.append((name, render(one, source.columns), one.type))
        used.append(name)
    held = low.compute(source, wanted, "rows")
    ends = low.emit_on_close or low.emission.trigger is not None
    by_clock = low.emit_on_close and is_arrival(low.builder.plan, held.step, used[0])
    if ends and not by_clock and all(b.column != used[0] for b in low.shape(held).bounds):
        _refuse_endless(low, kind, used[0], plain=isinstance(time, Reference))
    if kind in ("hop", "cumulate"):
        check_windows_per_row(low, kind, _assigner(low, kind, marks), sliced=True)
    if low.emission.trigger is not None:
        step = _triggered(low, held, used, kind, _assigner(low, kind, marks))
    elif kind == "session":
        step = _session(low, held, used, _positive(low, marks[SIZE]))
    else:
        step = low.add(_operator(low, held, used[0], kind, marks), (held.step,), kind)
    if by_clock:
        step = _closed_by_clock(low, step, kind)
    held_as = {n: name for (n, _), name in zip(own, names, strict=True)}
    out = []
    for n, one in enumerate(expressions):
        if isinstance(one, Reference) and one.alias not in marks:
            # another column takes the position of an unread one
            out.append(StepColumn(held_as.get(n, used[0]), source.columns[one.index].type))
        else:
            out.append(StepColumn(WINDOW_END if one.alias == END else WINDOW_START, time.type))
    return Relation(step, tuple(out))


def _refuse_two_windows(low: Lowering, kind: str, names: Sequence[str]) -> None:
    """Refuse rows that have columns of another window: the query could not tell which of them it means."""
    taken = next((name for name in names if name.lower() in (WINDOW_START, WINDOW_END)), None)
    if taken is not None:
        raise NotSupported(
            f"the rows of {kind.upper()} have a column {taken!r} already",
            at=low.position_of(kind),
            hint=f"name it otherwise first: {kind.upper()}((SELECT {taken} AS at, … FROM …) AS w, at, …)",
        )


def _kind(marks: Mapping[str, BoundExpression]) -> str:
    mark = marks[KIND]
    assert isinstance(mark, Constant)
    return str(mark.value)


def _keys(low: Lowering, marks: Mapping[str, BoundExpression]) -> list[BoundExpression]:
    """Return the keys of SESSION.

    A constant interval among them is an offset, as of other windows.  A session begins with its first row
    wherever windows are aligned, so it changes nothing.
    """
    found = []
    for name in sorted(marks):
        if name.startswith(KEY) and marks[name].type == "INTERVAL" and not list(references(marks[name])):
            _micros(low, marks[name], "the offset of a window")
        elif name.startswith(KEY):
            found.append(marks[name])
    return found


def _assigner(low: Lowering, kind: str, marks: Mapping[str, BoundExpression]) -> WindowAssigner:
    """Return the windows that a call describes."""
    if kind == "calendar":
        return Calendar(_unit(low, marks[UNIT]), _zone(low, marks[ZONE]) if ZONE in marks else "UTC")
    size = _positive(low, marks[SIZE])
    if kind == "session":
        # Rows that are exactly the gap apart are in one session, and windows merge where they overlap.
        return Gap(size + 1)
    offset = _micros(low, marks[OFFSET], "the offset of a window") if OFFSET in marks else 0
    if kind == "tumble":
        return Tumbling(size, offset)
    slide = _positive(low, marks[SLIDE])
    if kind == "hop":
        return Sliding(size, slide, offset)
    if size % slide:
        raise NotSupported(
            "the size of CUMULATE must be a multiple of its step",
            at=low.position_of(kind),
            hint="write the step, then the size: INTERVAL '1 hour', INTERVAL '1 day'",
        )
    return Cumulating(slide, size, offset)


def _operator(
    low: Lowering, held: Relation, time: str, kind: str, marks: Mapping[str, BoundExpression]
) -> Tumble | Hop | AssignWindows:
    windows = _assigner(low, kind, marks)
    if isinstance(windows, Tumbling):
        return Tumble(time, windows.size_us, windows.offset_us)
    if isinstance(windows, Sliding):
        return Hop(time, windows.size_us, windows.slide_us, windows.offset_us)
    bound = next((b for b in low.shape(held).bounds if b.column == time), None)
    watermark = None if bound is None else watermark_of(low.builder, held.step, time)
    return AssignWindows(time, windows, watermark)


def _triggered(low: Lowering, held: Relation, used: Sequence[str], kind: str, windows: WindowAssigner) -> str:
    """Add the windows that a trigger emits; they judge themselves which rows are late."""
    builder = low.builder
    watermark = watermark_of(builder, held.step, used[0])
    source, again = before_watermark(builder, held.step)
    after_us = low.emission.lateness_us + 1
    operator = AssignWindows(used[0], windows, watermark, after_us, reports=not again)
    step = builder.add(None, operator, (source,), f"{low.name}.{kind}")
    if windows.merges:
        low.sessions[step] = tuple(used[1:])
    return step


def is_arrival(plan: Plan, step: str, column: str) -> bool:
    """Is a column the processing time at which rows arrived?"""
    node = plan.nodes[step]
    while True:
        operator = node.operator
        if isinstance(operator, Stamp) and operator.column == column:
            return True
        if isinstance(operator, Map):
            text = dict(operator.columns)[column]
            given = next((n for n in plan.shape(node.inputs[0]).schema.names if quoted(n) == text), None)
            if given is None:
                return False
            column = given
        elif len(node.inputs) != 1 or node.binding.tables:
            return False
        node = plan.nodes[node.inputs[0]]


def _closed_by_clock(low: Lowering, step: str, kind: str) -> str:
    """Show the rows of windows by processing time when the clock has reached the end of the window.

    A row that arrives when the gap after a session is just over still belongs to it.
    """
    low.closed = True
    since = f"{quoted(WINDOW_END)} AT TIME ZONE 'UTC'"
    if kind == "session":
        since += " + to_microseconds(1)"
    return low.add(ValidInterval(since, None), (step,), "closed")


def _unit(low: Lowering, node: BoundExpression) -> CalendarUnit:
    found = _text(low, node, "the unit of CALENDAR", "write 'month'")
    unit = next((u for u in get_args(CalendarUnit) if u == found.lower()), None)
    if unit is None:
        raise NotSupported(
            f"CALENDAR has no unit {found!r}",
            at=low.position_of("calendar"),
            hint=f"units are {', '.join(get_args(CalendarUnit))}",
        )
    return cast(CalendarUnit, unit)


def _zone(low: Lowering, node: BoundExpression) -> str:
    found = _text(low, node, "the time zone of CALENDAR", "write 'Europe/Berlin'")
    try:
        ZoneInfo(found)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise NotSupported(
            f"no time zone {found!r}",
            at=low.position_of("calendar"),
            hint="write a name of the IANA database, such as 'Europe/Berlin'",
        ) from error
    return found


def _text(low: Lowering, node: BoundExpression, what: str, hint: str) -> str:
    if list(references(node)) or node.type != "VARCHAR":
        raise NotSupported(f"{what} must be a constant text", at=low.position_of("calendar"), hint=hint)
    (found,) = low.binder.constant(f"select {render(node, ())}").columns[0].to_pylist()
    return str(found)


def _positive(low: Lowering, node: BoundExpression) -> int:
    found = _micros(low, node)
    if found < 1:
        raise NotSupported("the length of a window must be positive", hint="write INTERVAL '10 minutes'")
    return found


def _refuse_endless(low: Lowering, kind: str, time: str, plain: bool) -> NoReturn:
    """Refuse EMIT ON WINDOW CLOSE for a window that never closes, also one in a plain view that is read."""
    shown = f"those by {time!r}" if plain else "those by an expression"
    hint = f"write WATERMARK FOR {time} AS … where the rows come in"
    if not plain:
        hint = "take the column that WATERMARK FOR names as it is, for the time of the window"
    raise NotSupported(
        f"{low.emission.clause} {NEEDS_WATERMARK}, and {shown} never end",
        at=low.position_of(kind),
        hint=f"{hint}; or read them from a MATERIALIZED VIEW, which shows windows before their end",
    )


def _micros(low: Lowering, node: BoundExpression, what: str = "the length of a window") -> int:
    """Return the microseconds of a constant interval; months have no fixed length."""
    if list(references(node)):
        raise NotSupported(f"{what} must be a constant", hint="write INTERVAL '10 minutes'")
    if node.type != "INTERVAL":
        kind = node.type
        raise NotSupported(
            f"{what} must be an INTERVAL, this one is {kind}",
            hint="write INTERVAL '10 minutes'",
        )
    text = render(node, ())
    answer = low.binder.constant(
        f"select epoch_us(i), datepart('year', i) * 12 + datepart('month', i) from (select {text} as i)"
    )
    length, months = (c[0].as_py() for c in answer.columns)
    if length is None or months:
        raise NotSupported(f"{what} must be of days or less", hint="write INTERVAL '30 days'")
    return int(length)


def _session(low: Lowering, held: Relation, used: Sequence[str], gap: int) -> str:
    time, *keys = used
    at = quoted(time)
    told = text_literal(f"time column '{time}' is NULL")
    if any(b.column == time for b in low.shape(held).bounds):
        given = low.add(WithinCalendar(time, gap), (held.step,), "near")
        return low.add(SessionWindow(tuple(dict.fromkeys(keys)), time, gap), (given,), "session")
    given = low.add(Filter(f"CASE WHEN {at} IS NULL THEN error({told}) ELSE true END"), (held.step,), "timed")
    given = low.add(WithinCalendar(time, gap), (given,), "near")
    by = ", ".join(quoted(k) for k in dict.fromkeys(keys))
    part = f"PARTITION BY {by} " if by else ""
    listed = ", ".join(quoted(n) for n in held.names)
    (number,) = fresh_names(["session"], held.names)
    n = quoted(number)
    width = f"to_microseconds({gap})"
    starts = f"CASE WHEN {at} - lag({at}) OVER ({part}ORDER BY {at}) <= {width} THEN 0 ELSE 1 END"
    within = f"PARTITION BY {by + ', ' if by else ''}{n}"
    sql = (
        f"select {listed}, min({at}) OVER ({within}) AS {WINDOW_START},"
        f" max({at}) OVER ({within}) + {width} AS {WINDOW_END} from (select {listed}, sum(started) OVER"
        f" ({part}ORDER BY {at} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS {n}"
        f" from (select {listed}, {starts} AS started from input))"
    )
    return low.add(PerKey(tuple(dict.fromkeys(keys)), sql=sql), (given,), "session")
