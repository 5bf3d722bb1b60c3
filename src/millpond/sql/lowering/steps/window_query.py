"""Window calls as one query over the rows of a partition.

Law: only the user's ORDER BY decides which rows are peers, and the result depends only on
the rows (law 3).

DuckDB's sort is not stable, so a call whose result depends on the position of a row among
its peers needs a tie-breaker: the *place*, a column with the number of each row in the
order of all columns, which the operator adds.  Where the place goes depends on the frame:

* ROWS counts rows, and rows have places: ORDER BY the user's order, then the place.
* RANGE and GROUPS consist of complete groups of peers: the window keeps the user's order,
  and the function orders the rows inside its frame, as in first_value(x ORDER BY k, place).
* ROWS with EXCLUDE GROUP or TIES needs both: the frame is collected as a list, and the peers
  are removed from the list.

Some results also depend on the position of a partition among the rows of a query: DuckDB adds
floats in the order of a tree over all of them.  Such a query runs for one partition at a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import BoundExpression, SortItem, WindowCall, references
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.relation import fresh_names
from millpond.sql.lowering.steps.frame import WindowFrame, frame_of
from millpond.sql.refusal import refuse

_PLAIN = {
    "WINDOW_ROW_NUMBER": "row_number", "WINDOW_RANK": "rank", "WINDOW_RANK_DENSE": "dense_rank",
    "WINDOW_PERCENT_RANK": "percent_rank", "WINDOW_CUME_DIST": "cume_dist", "WINDOW_NTILE": "ntile",
    "WINDOW_FIRST_VALUE": "first_value", "WINDOW_LAST_VALUE": "last_value", "WINDOW_NTH_VALUE": "nth_value",
    "WINDOW_LEAD": "lead", "WINDOW_LAG": "lag", "WINDOW_FILL": "fill",
}  # fmt: skip
_RANKS = ("rank", "dense_rank", "percent_rank", "cume_dist")  # equal for all peers
_PLACES = ("row_number", "ntile", "lead", "lag")  # by position in the partition; no frame without ORDER BY
_VALUES = ("first_value", "last_value", "nth_value")
_TEXTS = ("string_agg", "group_concat", "listagg")
_SEQUENCES = ("list", "array_agg", *_TEXTS)
# Bit-identical results whatever the order of the rows, and however DuckDB combines partial results.
_EXACT = frozenset(
    [
        *("count", "count_star", "count_if", "min", "max", "sum", "avg", "bool_and", "bool_or"),
        *("bit_and", "bit_or", "bit_xor", "median", "quantile_disc", "quantile_cont"),
    ]
)
_EXACT_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$|DECIMAL|BOOLEAN")


@dataclass
class Over:
    """A query under construction: calls with the same PARTITION BY over rows with these columns."""

    columns: Sequence[StepColumn]  # the columns that expressions refer to
    keys: Sequence[str]
    names: Sequence[str]  # columns of the rows, all part of the result
    place: str
    outs: Sequence[str] = ()  # names of the calls
    alone: bool = False  # must it run for one partition at a time?
    _numbers: dict[str, str] = field(default_factory=dict)  # calls that other calls refer to -> their names
    _frames: dict[str, str] = field(default_factory=dict)

    def sql(self, calls: Sequence[tuple[str, str]]) -> str:
        """Return the query, from (name, text) of each call."""
        source = "input"
        for level in (self._numbers, self._frames):
            if level:
                listed = ", ".join(f"{text} AS {quoted(name)}" for text, name in level.items())
                source = f"(select *, {listed} from {source})"
        listed = ", ".join(
            [*(quoted(n) for n in self.names), *(f"{text} AS {quoted(n)}" for n, text in calls)]
        )
        return f"select {listed} from {source}"

    def call(self, call: WindowCall) -> str:
        """Render one call; add what it needs to the query."""
        name = _name(call)
        by, own = call.orders, call.own_orders
        frame = frame_of(call, self.columns)
        is_aggregate = call.kind == "WINDOW_AGGREGATE"
        self.alone |= not _is_steady(call, name)
        if name in _RANKS and not own:
            return self._text(call, name, "", self._window(by))
        if name in _PLACES and not own:
            return self._text(call, name, "", self._window(by, placed=True))
        if frame.rows and frame.excludes_peers:
            if own or not (is_aggregate or name in _VALUES):
                self.alone = True  # DuckDB chooses the order of peers, the same for the same rows
                return self._text(call, name, self._orders(own), self._window(by, frame))
            return self._from_list(call, name, frame)
        window = self._window(by, frame, placed=frame.rows)
        inside = self._orders([*own, *by], placed=True)
        if own and (name in (*_VALUES, *_PLACES) or (name in _SEQUENCES and not call.distinct)):
            return self._text(call, name, inside, window)
        if frame.rows:
            return self._text(call, name, self._orders(own), window)
        if name in _VALUES:
            return self._text(call, name, inside, window)
        if name in _SEQUENCES and not own and not call.distinct:
            return self._sequence(call, name, window)
        self.alone |= is_aggregate and name not in _EXACT  # DuckDB chooses the order of peers here too
        return self._text(call, name, self._orders(own), window)

    # -- parts of a call -------------------------------------------------------------------

    def _text(self, call: WindowCall, name: str, orders: str, window: str) -> str:
        arguments = [self._render(c) for c in call.arguments]
        if name == "count_star":
            name, arguments = "count", ["*"]
        inner = ", ".join(arguments)
        if call.distinct:
            inner = "DISTINCT " + inner
        inner += orders
        if call.ignores_nulls:
            inner += " IGNORE NULLS"
        called = quoted(name) if call.kind == "WINDOW_AGGREGATE" else name
        where = "" if call.filter is None else f" FILTER (WHERE {self._render(call.filter)})"
        return f"{called}({inner}){where} OVER {window}"

    def _window(self, by: Sequence[SortItem], frame: WindowFrame | None = None, placed: bool = False) -> str:
        parts = []
        if self.keys:
            parts.append("PARTITION BY " + ", ".join(quoted(k) for k in self.keys))
        parts.append(self._orders(by, placed).strip())
        if frame is not None:
            parts.append(frame.text)
        return f"({' '.join(filter(None, parts))})"

    def _orders(self, orders: Sequence[SortItem], placed: bool = False) -> str:
        listed = [f"{self._render(o.expression)} {o.direction}" for o in orders]
        listed += [quoted(self.place)] if placed else []
        return f" ORDER BY {', '.join(listed)}" if listed else ""

    def _render(self, node: BoundExpression) -> str:
        return render(node, self.columns)

    # -- frames as lists ---------------------------------------------------------------------

    def _sequence(self, call: WindowCall, name: str, window: str) -> str:
        """Collect the values of complete groups of peers in order: a sorted list of numbered values."""
        value, *rest = call.arguments
        number = self._number("row_number()", self._window(call.orders, placed=True))
        conditions = [] if call.filter is None else [self._render(call.filter)]
        if name in _TEXTS:
            conditions.append(f"{self._render(value)} IS NOT NULL")
        where = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
        listed = f"list({{'n': {number}, 'v': {self._render(value)}}}){where} OVER {window}"
        values = f"list_transform(list_sort({listed}), lambda r: r.v)"
        if name not in _TEXTS:
            return values
        return f"array_to_string({values}, {self._render(rest[0]) if rest else repr(',')})"

    def _from_list(self, call: WindowCall, name: str, frame: WindowFrame) -> str:
        """Render a function over a ROWS frame that excludes peers of the current row."""
        by = call.orders
        peers = self._number("dense_rank()", self._window(by))
        held = {f"v{n}": c for n, c in enumerate(call.arguments) if list(references(c))}
        if call.filter is not None:
            held["f"] = call.filter
        row = "".join(f", '{key}': {self._render(node)}" for key, node in held.items())
        number = self._number("row_number()", self._window(by, placed=True))
        whole = (
            f"list({{'n': {number}, 'p': {peers}{row}}}) OVER {self._window(by, frame.all(), placed=True)}"
        )
        kept = f"r.p <> {peers}"
        if frame.exclude == "TIES":
            kept += f" OR r.n = {number}"
        left = f"list_filter({self._frame(whole)}, lambda r: {kept})"
        parts = [f"r.v{n}" if f"v{n}" in held else self._render(c) for n, c in enumerate(call.arguments)]
        if name in _VALUES:
            if call.ignores_nulls:
                left = f"list_filter({left}, lambda r: {parts[0]} IS NOT NULL)"
            ends = {"first_value": "1", "last_value": "-1"}
            at = ends.get(name) or f"nullif(greatest({self._render(call.arguments[1])}, 0), 0)"
            return f"list_extract(list_transform({left}, lambda r: {parts[0]}), {at})"
        inner = "*" if name == "count_star" else ", ".join(parts)
        called = "count" if name == "count_star" else name
        word = "DISTINCT " if call.distinct else ""
        order = "" if word or name in _EXACT else " ORDER BY r.n"
        where = "" if call.filter is None else " FILTER (WHERE r.f)"
        return f"(select {quoted(called)}({word}{inner}{order}){where} from unnest({left}) AS u(r))"

    def _number(self, function: str, window: str) -> str:
        return self._named(self._numbers, f"{function} OVER {window}", "number")

    def _frame(self, text: str) -> str:
        return self._named(self._frames, text, "frame")

    def _named(self, level: dict[str, str], text: str, base: str) -> str:
        if text not in level:
            taken = [*self.names, self.place, *self.outs, *self._numbers.values(), *self._frames.values()]
            (level[text],) = fresh_names([base], taken)
        return quoted(level[text])


def _name(call: WindowCall) -> str:
    if call.kind == "WINDOW_AGGREGATE":
        return call.name
    if call.kind not in _PLAIN:
        refuse(call.called, "is not supported in a materialized view", call.at)
    return _PLAIN[call.kind]


def _is_steady(call: WindowCall, name: str) -> bool:
    """Is the result independent of the other partitions in the same query?"""
    if call.kind != "WINDOW_AGGREGATE":
        return name != "fill"
    if name in ("sum", "avg"):
        return all(_EXACT_NUMBER.match(c.type) for c in call.arguments)
    return name in _EXACT or name in _SEQUENCES
