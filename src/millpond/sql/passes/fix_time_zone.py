"""Writes the time zone of a session into the expressions that depend on it.

    CAST(at AS DATE)             =   CAST(timezone('Asia/Tokyo', at) AS DATE)
    CAST('…' AS TIMESTAMPTZ)     =   timezone('Asia/Tokyo', CAST('…' AS TIMESTAMP))
    at + INTERVAL '1 day'        =   timezone('Asia/Tokyo', timezone('Asia/Tokyo', at) + INTERVAL '1 day')

Plans are computed in UTC, so a view keeps the zone with which it was created.
Law: what this module does not know is refused by name, never computed in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NoReturn

from millpond.sql.binding.types import UTC
from millpond.sql.bound.clock import reads_clock
from millpond.sql.bound.expressions import (
    BoundCase,
    BoundExpression,
    BoundFunction,
    BoundOperator,
    Cast,
    Comparison,
    Constant,
    MonthsDaysMicros,
    WindowCall,
)
from millpond.sql.bound.relations import BoundRelation, BoundTableFunction, rebuilt
from millpond.sql.refusal import NotSupported

_INSTANT = "TIMESTAMP WITH TIME ZONE"
_CLOCK_TIME = "TIME WITH TIME ZONE"
_NAIVE = "TIMESTAMP"
_NAIVES = (_NAIVE, "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE")
# Functions whose results do not depend on the zone, also where they take or give instants.
_FREE = frozenset(
    [
        *("timezone", "epoch", "epoch_us", "epoch_ms", "epoch_ns", "isfinite", "isinf", "make_timestamptz"),
        *(
            "greatest",
            "least",
            "if",
            "ifnull",
            "nullif",
            "row",
            "struct_pack",
            "struct_extract",
            "list_value",
        ),
        *(
            "list_extract",
            "array_extract",
            "array_slice",
            "list_slice",
            "len",
            "list_contains",
            "list_concat",
        ),
        *(
            "list_append",
            "list_prepend",
            "list_sort",
            "list_distinct",
            "list_position",
            "list_reverse",
            "hash",
        ),
        *(
            "list_filter",
            "list_transform",
            "invoke",
            "error",
            "typeof",
            "unnest",
            "coalesce",
            "constant_or_null",
        ),
        *(
            "time_bucket",
            "normalized_interval",
            "to_json",
            "list_has_any",
            "list_has_all",
            "range",
            "generate_series",
        ),
    ]
)
# Fields of the local time, by functions with one argument.
_FIELDS = frozenset(
    [
        *("year", "month", "day", "hour", "minute", "second", "quarter", "week", "dayofweek", "dayofyear"),
        *("isodow", "isoyear", "weekday", "weekofyear", "yearweek", "monthname", "dayname", "last_day"),
        *("decade", "century", "millennium", "era", "microsecond", "millisecond"),
    ]
)
_WITH_ZONE = re.compile(r"[A-SU-Za-su-z/]|T.*[A-Za-z]|:\d\d(?:\.\d+)?\s*[+-]")  # a text that names its zone


Change = Callable[[BoundExpression], BoundExpression]


def name_time_zone(relation: BoundRelation, zone: str) -> BoundRelation:
    """Replace current_setting('TimeZone') by the zone, so that conditions on it are decided."""

    def named(node: BoundExpression) -> BoundExpression:
        if isinstance(node, BoundFunction) and node.name == "current_setting" and len(node.arguments) == 1:
            given = node.arguments[0]
            if isinstance(given, Constant) and str(given.value).lower() == "timezone":
                return Constant("VARCHAR", zone, type="VARCHAR", alias=node.alias, at=node.at)
        return node

    return rebuilt(relation, lambda node: _walked(node, named, inside=False))


def add_months_first(relation: BoundRelation) -> BoundRelation:
    """In UTC: add the months of an interval to an instant before its days and hours.

    DuckDB does so for times without a zone only.
    """

    def ordered(node: BoundExpression) -> BoundExpression:
        if not isinstance(node, BoundFunction) or node.name not in ("+", "-") or node.type != _INSTANT:
            return node
        at, by = sorted(node.arguments, key=lambda one: one.type == "INTERVAL")
        if by.type != "INTERVAL" or reads_clock(at):
            return node
        span = by.value if isinstance(by, Constant) else None
        if isinstance(span, MonthsDaysMicros) and not (span.months and (span.days or span.micros)):
            return node
        moved = _call(node.name, [_at(at, UTC, _NAIVE), by], _NAIVE)
        return replace(_at(moved, UTC, _INSTANT), alias=node.alias, at=node.at)

    return rebuilt(relation, lambda node: _walked(node, ordered, inside=False))


def fix_time_zone(relation: BoundRelation, zone: str) -> BoundRelation:
    def fixed(node: BoundRelation) -> BoundRelation:
        if isinstance(node, BoundTableFunction):
            given = node.parameters
            if any(_is_zoned(p.type) for p in given) and not _has_parts_of_days(given):
                _refuse(node.name, zone, None)
        found: BoundRelation = _walked(node, lambda one: _explicit(one, zone), inside=False)
        return found

    return rebuilt(relation, fixed)


def _walked(value: Any, change: Change, *, inside: bool = True) -> Any:
    """A value of a plan with all expressions in it changed, from the innermost on."""
    if isinstance(value, tuple):
        made = tuple(_walked(one, change) for one in value)
        return value if all(a is b for a, b in zip(made, value, strict=True)) else made
    if not is_dataclass(value) or isinstance(value, type) or (inside and isinstance(value, BoundRelation)):
        return value
    changed = {}
    for each in fields(value):
        before = getattr(value, each.name)
        after = _walked(before, change)
        if after is not before:
            changed[each.name] = after
    value = replace(value, **changed) if changed else value
    return change(value) if isinstance(value, BoundExpression) else value


def _explicit(node: BoundExpression, zone: str) -> BoundExpression:
    if isinstance(node, Cast):
        return _cast(node, zone)
    if isinstance(node, BoundFunction):
        return _function(node, zone)
    if isinstance(node, WindowCall):
        edges = [e.offset for e in (node.start, node.end) if e.offset is not None]
        timed = any(_is_zoned(o.expression.type) for o in node.orders)
        if timed and edges and not _has_parts_of_days(edges):
            _refuse("RANGE of days or months over times with a zone", zone, node.at)
    return node


def _cast(node: Cast, zone: str) -> BoundExpression:
    given, before, after = node.argument, node.argument.type, node.type
    if before == after or not (_is_zoned(before) or _is_zoned(after)):
        return node
    if isinstance(given, Constant) and given.value is None:
        return node
    if isinstance(given, BoundFunction) and given.name == "error":
        return node
    if before == _INSTANT:
        local = _at(given, zone, _NAIVE)
        if after == _NAIVE:
            return replace(local, alias=node.alias, at=node.at)
        if after in _NAIVES or after == "TIME":
            return replace(node, argument=local)
        if after == "VARCHAR":
            made = _text(given, zone)
            return replace(made, alias=node.alias, at=node.at)
    if after == _INSTANT and before in _NAIVES:
        naive = given if before == _NAIVE else Cast(given, attempt=node.attempt, type=_NAIVE, at=node.at)
        return replace(_at(naive, zone, _INSTANT), alias=node.alias, at=node.at)
    if after == _INSTANT and before in ("VARCHAR", "STRING_LITERAL"):
        local = Cast(given, attempt=node.attempt, type=_NAIVE, at=node.at)
        inside = _at(local, zone, _INSTANT)
        if isinstance(given, Constant):
            made = node if _WITH_ZONE.search(_without_era(str(given.value))) else inside
            return replace(made, alias=node.alias, at=node.at)
        bare = _call("replace", [given, _constant(" (BC)"), _constant("")], "VARCHAR")
        names_zone = _call("regexp_matches", [bare, _constant(_WITH_ZONE.pattern)], "BOOLEAN")
        return BoundCase(((names_zone, node),), inside, type=_INSTANT, alias=node.alias, at=node.at)
    _refuse(f"a cast of {before.lower()} to {after.lower()}", zone, node.at)


def _without_era(text: str) -> str:
    return text.replace(" (BC)", "")


def _text(given: BoundExpression, zone: str) -> BoundExpression:
    """The text of an instant: its local time, and the difference from UTC."""
    local = _at(given, zone, _NAIVE)
    us = _call("-", [_call("epoch_us", [local], "BIGINT"), _call("epoch_us", [given], "BIGINT")], "BIGINT")
    seconds = _call("//", [us, _constant(1_000_000, "BIGINT")], "BIGINT")
    known = BoundOperator("OPERATOR_COALESCE", (seconds, _constant(0, "BIGINT")), type="BIGINT")
    return _call("pg.timestamptz_text.1", [Cast(local, type="VARCHAR"), known], "VARCHAR")


def _function(node: BoundFunction, zone: str) -> BoundExpression:
    name, given = node.name, node.arguments
    if not (_is_zoned(node.type) or any(_is_zoned(one.type) for one in given)):
        return node
    if any(map(reads_clock, given)) and name in ("date_trunc", "datetrunc"):
        _refuse(f"{name}() of now()", zone, node.at)
    if name in ("range", "generate_series") and not _has_parts_of_days(given):
        _refuse("a series of days or months", zone, node.at)
    if name in _FREE or name.startswith(("pg.to_timestamp_seconds.", "pg.timestamptz_")):
        return node
    types = [one.type for one in given]
    if name in ("+", "-") and types == [_INSTANT, "INTERVAL"]:
        return _moved(node, given[0], given[1], zone)
    if name == "+" and types == ["INTERVAL", _INSTANT]:
        return _moved(node, given[1], given[0], zone)
    if name == "-" and types == [_INSTANT, _INSTANT]:
        return node  # in UTC: days of 24 hours
    if name in ("date_part", "datepart") and types[1:] == [_INSTANT]:
        return replace(node, arguments=(given[0], _at(given[1], zone, _NAIVE)))
    if name in _FIELDS and types == [_INSTANT]:
        return replace(node, arguments=(_at(given[0], zone, _NAIVE),))
    _refuse(f"{name}()", zone, node.at)


def _moved(node: BoundFunction, at: BoundExpression, by: BoundExpression, zone: str) -> BoundExpression:
    """An instant moved by an interval: months, then days, of the local time; the rest of the instant."""
    sign = -1 if node.name == "-" else 1
    span = by.value if isinstance(by, Constant) else None
    if isinstance(by, Constant) and isinstance(span, MonthsDaysMicros):
        made = at
        for part in (MonthsDaysMicros(span.months, 0, 0), MonthsDaysMicros(0, span.days, 0)):
            if part.months or part.days:
                moved = _call(node.name, [_at(made, zone, _NAIVE), replace(by, value=part)], _NAIVE)
                made = _at(moved, zone, _INSTANT)
        if span.micros or made is at:
            rest = replace(by, value=MonthsDaysMicros(0, 0, span.micros))
            made = replace(node, arguments=(made, rest))
        return replace(made, alias=node.alias, at=node.at)
    if reads_clock(at):
        _refuse("now() with an interval of the row", zone, node.at)
    months = _sum([_times(_part("year", by), 12 * sign), _times(_part("month", by), sign)])
    days = _times(_part("day", by), sign)
    micros = [_times(_part(field, by), size * sign) for field, size in _MICROS.items()]
    made = _if_any(months, _shifted(at, "to_months", months, zone), at)
    made = _if_any(days, _shifted(made, "to_days", days, zone), made)
    us = _sum([_call("epoch_us", [made], "BIGINT"), *micros])
    finite = _call("isfinite", [at], "BOOLEAN")
    moved_us = _call("make_timestamptz", [us], _INSTANT)
    return BoundCase(((finite, moved_us),), at, type=_INSTANT, alias=node.alias, at=node.at)


_MICROS = {"hour": 3_600_000_000, "minute": 60_000_000, "microsecond": 1}


def _shifted(at: BoundExpression, unit: str, count: BoundExpression, zone: str) -> BoundExpression:
    span = _call(unit, [Cast(count, type="INTEGER")], "INTERVAL")
    return _at(_call("+", [_at(at, zone, _NAIVE), span], _NAIVE), zone, _INSTANT)


def _if_any(count: BoundExpression, then: BoundExpression, otherwise: BoundExpression) -> BoundExpression:
    some = Comparison("<>", count, _constant(0, "BIGINT"), type="BOOLEAN")
    return BoundCase(((some, then),), otherwise, type=_INSTANT)


def _part(field: str, by: BoundExpression) -> BoundExpression:
    return _call("date_part", [_constant(field), by], "BIGINT")


def _times(value: BoundExpression, factor: int) -> BoundExpression:
    return _call("*", [value, _constant(factor, "BIGINT")], "BIGINT")


def _sum(parts: Sequence[BoundExpression]) -> BoundExpression:
    found = parts[0]
    for one in parts[1:]:
        found = _call("+", [found, one], "BIGINT")
    return found


def _at(given: BoundExpression, zone: str, kind: str) -> BoundExpression:
    """An instant as local time, or a local time as instant."""
    return _call("timezone", [_constant(zone), given], kind)


def _call(name: str, arguments: Sequence[BoundExpression], kind: str) -> BoundExpression:
    return BoundFunction(name, tuple(arguments), type=kind)


def _constant(value: str | int, kind: str = "VARCHAR") -> Constant:
    return Constant(kind, value, type=kind)


def _is_zoned(kind: str) -> bool:
    return _INSTANT in kind or _CLOCK_TIME in kind


def _has_parts_of_days(given: Sequence[BoundExpression]) -> bool:
    """Are all intervals constants of less than a day's unit: hours, minutes, seconds?"""
    spans = [one for one in given if one.type == "INTERVAL"]
    values = [one.value for one in spans if isinstance(one, Constant)]
    plain = all(isinstance(v, MonthsDaysMicros) and not v.months and not v.days for v in values)
    return len(values) == len(spans) and plain


def _refuse(what: str, zone: str, at: tuple[int, int] | None) -> NoReturn:
    raise NotSupported(
        f"{what} is not supported in a materialized view with the time zone {zone!r}",
        at=at,
        hint="SET TimeZone = 'UTC' before you create it, and write AT TIME ZONE where another zone is needed",
    )
