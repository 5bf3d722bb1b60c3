"""DISTINCT aggregates of one value under several conditions share one table.

`count(DISTINCT x)` beside `count(DISTINCT x) FILTER (WHERE …)` would store every value
of x once for each of them.  Where at least two aggregates of a query take the same
value under different conditions, one step stores each value once, together with the
conditions under which it occurred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millpond.kernels.aggregate_feeds import AggregateFeed
from millpond.operators.distinct_values import CONDITIONS_MAX, DistinctValues
from millpond.sql.bound.expressions import AggregateCall
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.relation import fresh_names


@dataclass(frozen=True)
class Value:
    """The column of a value, and the arguments that read it, each with the column of its condition."""

    column: str
    arguments: tuple[tuple[str, str | None], ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.arguments)

    def operator(self, key: Sequence[str]) -> DistinctValues:
        return DistinctValues(tuple(key), self.column, self.arguments)


@dataclass(frozen=True)
class SharedDistinctValues:
    values: tuple[Value, ...] = ()
    argument_of: Mapping[int, str] = field(default_factory=dict)  # by position of the call
    wanted: tuple[tuple[str, str, str], ...] = ()  # columns to compute: name, SQL, type

    def of(self, feed: AggregateFeed) -> Value | None:
        return next((value for value in self.values if feed.column in value.names), None)

    def feeds(self, feeds: Sequence[AggregateFeed]) -> tuple[AggregateFeed, ...]:
        """Merge the feeds whose arguments read the same value."""
        found: list[AggregateFeed] = []
        begun: dict[str, int] = {}
        for feed in feeds:
            value = self.of(feed) if feed.kind == "distinct" else None
            if value is None:
                found.append(feed)
            elif value.column in begun:
                first = found[begun[value.column]]
                found[begun[value.column]] = AggregateFeed(
                    "distinct", (*first.aggs, *feed.aggs), first.column
                )
            else:
                begun[value.column] = len(found)
                found.append(feed)
        return tuple(found)


def is_distinct(call: AggregateCall, function: str) -> bool:
    """Does DISTINCT change the result of the call?  It does not for min and max."""
    return call.distinct and function not in ("min", "max")


def gather(
    calls: Sequence[AggregateCall],
    functions: Sequence[str],
    columns: Sequence[StepColumn],
    taken: Sequence[str],
) -> SharedDistinctValues:
    """Find the calls that can share a table; `taken` are column names already in use."""
    asked: dict[str, dict[str | None, list[int]]] = {}
    for number, (call, function) in enumerate(zip(calls, functions, strict=True)):
        if is_distinct(call, function):
            condition = None if call.filter is None else render(call.filter, columns)
            by_condition = asked.setdefault(render(call.arguments[0], columns), {})
            by_condition.setdefault(condition, []).append(number)
    used = list(taken)
    wanted: list[tuple[str, str, str]] = []
    conditions: dict[str, str] = {}
    values: list[Value] = []
    argument_of: dict[int, str] = {}

    def column(base: str, sql: str, kind: str) -> str:
        (name,) = fresh_names([base], used)
        used.append(name)
        wanted.append((name, sql, kind))
        return name

    for text, by_condition in asked.items():
        if not 1 < len(by_condition) <= CONDITIONS_MAX:
            continue
        first = calls[next(iter(by_condition.values()))[0]]
        held = column("value", text, first.arguments[0].type)
        arguments: list[tuple[str, str | None]] = []
        for condition, numbers in by_condition.items():
            if condition is not None and condition not in conditions:
                conditions[condition] = column("given", condition, "BOOLEAN")
            (name,) = fresh_names([f"{held}_of"], used)
            used.append(name)
            arguments.append((name, None if condition is None else conditions[condition]))
            argument_of.update(dict.fromkeys(numbers, name))
        values.append(Value(held, tuple(arguments)))
    return SharedDistinctValues(tuple(values), argument_of, tuple(wanted))
