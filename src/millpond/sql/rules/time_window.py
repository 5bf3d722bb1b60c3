"""TUMBLE, HOP and SESSION: the projection that `time_windows.py` marked becomes the operator.

Sessions are computed again for a key whose rows change: its rows in the order
of time, a new session after every gap.  Where a watermark bounds the time, those
that are over leave the state (`Session`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from millpond.operators.filter import Filter
from millpond.operators.operator import Operator
from millpond.operators.per_key import PerKey
from millpond.operators.session import Session
from millpond.operators.window import END as WINDOW_END
from millpond.operators.window import START as WINDOW_START
from millpond.operators.window import Hop, Spread, Tumble
from millpond.sql.expressions import Column, reads_stamp, references, render, type_of
from millpond.sql.lowering import Lowering
from millpond.sql.refusal import NotSupported
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.rules import stamp
from millpond.sql.time_bounds import NO_WATERMARK
from millpond.sql.time_windows import END, KEY, KIND, MARK, SIZE, SLIDE, START
from millpond.sql.types import Json, quoted, text_literal


def is_marked(expressions: Sequence[Json]) -> bool:
    return any(e.get("alias") == KIND for e in expressions)


def lower(
    low: Lowering, source: Relation, expressions: Sequence[Json], needed: Collection[int] | None = None
) -> Relation:
    """The relation with the columns of the projection; marks other than the window itself are never read.

    Sessions keep their rows, and so no columns but those that are `needed`, where that is known.
    """
    if any(reads_stamp(e) for e in expressions):
        source, expressions = stamp.selected(low, source, expressions)
    marks = {e["alias"]: e for e in expressions if str(e.get("alias")).startswith(MARK)}
    time = marks[START]
    if not type_of(time).startswith("TIMESTAMP"):
        raise NotSupported(
            f"the time of a window must be a timestamp, this one is {type_of(time)}", hint="cast it"
        )
    kind = str(marks[KIND]["value"]["value"])
    own = [(n, e) for n, e in enumerate(expressions) if e.get("alias") not in marks]
    if kind == "session" and needed is not None:
        given = {n for name, e in marks.items() if name.startswith((START, KEY)) for n in references(e)}
        own = [(n, e) for n, e in own if n in needed or int(e["index"]) in given]
    places = [int(e["index"]) for _, e in own]
    names = fresh_names([source.columns[p].name for p in places], [WINDOW_START, WINDOW_END])
    wanted = [
        (n, quoted(source.columns[p].name), source.columns[p].type)
        for n, p in zip(names, places, strict=True)
    ]
    used = []
    for node in [time, *(marks[name] for name in sorted(marks) if name.startswith(KEY))]:
        if node["expression_class"] == "BOUND_REF" and int(node["index"]) in places:
            # as it is: it may be what the watermark bounds
            used.append(names[places.index(int(node["index"]))])
            continue
        (name,) = fresh_names(["by"], [*(n for n, _, _ in wanted), WINDOW_START, WINDOW_END])
        wanted.append((name, render(node, source.columns), type_of(node)))
        used.append(name)
    held = low.compute(source, wanted, "rows")
    if low.emit_on_close and all(b.column != used[0] for b in low.shape(held).bounds):
        _refuse_endless(low, kind, used[0], plain=time["expression_class"] == "BOUND_REF")
    size = _micros(low, marks[SIZE])
    if kind == "session":
        step = _session(low, held, used, size)
    else:
        operator: Operator = Tumble(used[0], size)
        if kind == "hop":
            operator = Hop(used[0], size, _micros(low, marks[SLIDE]))
        step = low.add(operator, (held.step,), kind)
    held_as = {n: name for (n, _), name in zip(own, names, strict=True)}
    out = []
    for n, node in enumerate(expressions):
        alias = node.get("alias")
        if alias not in marks:  # in place of a column that nobody reads stands another
            out.append(Column(held_as.get(n, used[0]), source.columns[int(node["index"])].type))
        else:
            out.append(Column(WINDOW_END if alias == END else WINDOW_START, type_of(time)))
    return Relation(step, tuple(out))


def _refuse_endless(low: Lowering, kind: str, time: str, plain: bool) -> NoReturn:
    """All windows of the query wait for their end, those of plain views that it reads too."""
    shown = f"those by {time!r}" if plain else "those by an expression"
    hint = f"write WATERMARK FOR {time} AS … where the rows come in"
    if not plain:
        hint = "take the column that WATERMARK FOR names as it is, for the time of the window"
    raise NotSupported(
        f"{NO_WATERMARK}, and {shown} never end",
        at=low.place_of(kind),
        hint=f"{hint}; or read them from a MATERIALIZED VIEW, which shows windows before their end",
    )


def in_latest(
    low: Lowering, source: Relation, groups: Mapping[str, Json], read: Collection[int]
) -> tuple[Relation, Spread | None]:
    """Rows of overlapping windows in the latest one alone, if only groups by these columns tell it.

    `groups` are the keys of the groups, by name, and `read` the columns that their aggregates read.
    """
    node = low.builder.plan.nodes[source.step]
    spread = node.operator.spread if isinstance(node.operator, Hop) else None
    if not isinstance(node.operator, Hop) or spread is None:
        return source, None
    window = {n for n, column in enumerate(source.columns) if column.name in (WINDOW_START, WINDOW_END)}
    plain = {
        name: int(group["index"])
        for name, group in groups.items()
        if group["expression_class"] == "BOUND_REF"
    }
    computed = {n for name, group in groups.items() if name not in plain for n in references(group)}
    if window & {*read, *computed}:
        return source, None
    columns = tuple(name for name, n in plain.items() if n in window)
    if low.emit_on_close and not columns:  # rows wait for each of their windows
        return source, None
    step = low.add(replace(node.operator, latest=True), node.inputs, "hop")
    return Relation(step, source.columns), replace(spread, columns=columns)


def _micros(low: Lowering, node: Json) -> int:
    """The length of a constant interval; months have none."""
    if list(references(node)):
        raise NotSupported("the length of a window must be a constant", hint="write INTERVAL '10 minutes'")
    if type_of(node) != "INTERVAL":
        kind = type_of(node)
        raise NotSupported(
            f"the length of a window must be an INTERVAL, this one is {kind}",
            hint="write INTERVAL '10 minutes'",
        )
    text = render(node, ())
    answer = low.binder.constant(
        f"select epoch_us(i), datepart('year', i) * 12 + datepart('month', i) from (select {text} as i)"
    )
    length, months = (c[0].as_py() for c in answer.columns)
    if length is None or months:
        raise NotSupported("the length of a window must be of days or less", hint="write INTERVAL '30 days'")
    return int(length)


def _session(low: Lowering, held: Relation, used: Sequence[str], gap: int) -> str:
    time, *keys = used
    at = quoted(time)
    told = text_literal(f"time column '{time}' is NULL")
    if any(b.column == time for b in low.shape(held).bounds):
        return low.add(Session(tuple(dict.fromkeys(keys)), time, gap), (held.step,), "session")
    given = low.add(Filter(f"CASE WHEN {at} IS NULL THEN error({told}) ELSE true END"), (held.step,), "timed")
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
