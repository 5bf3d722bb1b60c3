"""Writes a bound relation as SQL, so that DuckDB can execute what a pass made of a query.

Columns are named c0, c1, … at every level.  Relations that DuckDB has no SQL for (windows of time, tables as
of now) raise `Unwritten`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.sql.bound.expressions import AggregateCall, BoundExpression, SortItem, WindowCall
from millpond.sql.bound.relations import (
    BoundAggregate,
    BoundAsofJoin,
    BoundCrossProduct,
    BoundCte,
    BoundCteReference,
    BoundDistinct,
    BoundEmpty,
    BoundFilter,
    BoundFirstRanks,
    BoundGet,
    BoundInnerJoins,
    BoundJoin,
    BoundLimit,
    BoundListFunction,
    BoundLookupJoin,
    BoundMarkJoin,
    BoundOneRow,
    BoundOrder,
    BoundPick,
    BoundProduct,
    BoundProject,
    BoundRecursiveCte,
    BoundRelation,
    BoundSetOperation,
    BoundTableFunction,
    BoundTopN,
    BoundUnnest,
    BoundValues,
    BoundWindow,
)
from millpond.sql.bound.words import SAME
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.steps.frame import frame_of

_JOINS = {
    "INNER": "JOIN",
    "LEFT": "LEFT JOIN",
    "RIGHT": "RIGHT JOIN",
    "FULL": "FULL JOIN",
    "SINGLE": "LEFT JOIN",
}
_JOINS |= {"SEMI": "SEMI JOIN", "ANTI": "ANTI JOIN"}
_OVER = {"rank_dense": "dense_rank"}


class Unwritten(Exception):
    pass


class Writer:
    """Writes relations over tables with these columns."""

    def __init__(self, tables: Mapping[str, Sequence[str]]) -> None:
        self.tables = tables

    def sql(self, node: BoundRelation) -> str:
        match node:
            case BoundGet():
                held = self.tables[node.table]
                named = [f'"{held[n]}"' if n < len(held) else "NULL" for n in node.columns]
                return f'SELECT {_as(named)} FROM "{node.table}"'
            case BoundTableFunction():
                given = ", ".join(render(p, ()) for p in node.parameters)
                names = ", ".join(f"f{n}" for n in range(len(node.names)))
                shown = [f"f{n if n < len(node.names) else 0}" for n in node.columns]
                return f"SELECT {_as(shown)} FROM {node.name}({given}) AS f({names})"
            case BoundOneRow():
                return "SELECT true AS c0"
            case BoundEmpty():
                return f"SELECT {_as([f'CAST(NULL AS {t})' for t in node.types])} WHERE false"
            case BoundValues():
                rows = [
                    f"SELECT {_as([f'CAST({self._of(e, node.input)} AS {t})' for e, t in zip(row, node.types, strict=True)])}"
                    f" FROM {self._from(node.input)}"
                    for row in node.rows
                ]
                return " UNION ALL ".join(f"({row})" for row in rows)
            case BoundProject():
                texts = [self._of(e, node.input) for e in node.outputs]
                return f"SELECT {_as(texts)} FROM {self._from(node.input)}"
            case BoundPick():
                return f"SELECT {_as([f'c{n}' for n in node.places])} FROM {self._from(node.input)}"
            case BoundFilter():
                shown = [f"c{n}" for n in node.shown or range(node.width)]
                where = " AND ".join(self._of(c, node.input) for c in node.conditions)
                return f"SELECT {_as(shown)} FROM {self._from(node.input)} WHERE {where}"
            case BoundAggregate():
                return self._aggregate(node)
            case BoundWindow() | BoundFirstRanks():
                return self._window(node)
            case BoundUnnest():
                own = [f"c{n}" for n in range(node.input.width)]
                lists = [f"unnest({self._of(e.list, node.input)})" for e in node.lists]
                return f"SELECT {_as([*own, *lists])} FROM {self._from(node.input)}"
            case BoundListFunction():
                return self._list_function(node)
            case BoundOrder():
                return self.sql(node.input)
            case BoundLimit():
                below = node.input
                by = below.orders if isinstance(below, BoundOrder) else ()
                return self._first(below, by, node.rows, node.offset)
            case BoundTopN():
                return self._first(node.input, node.orders, node.rows, node.offset)
            case BoundDistinct():
                on = ""
                if node.targets is not None:
                    on = f" ON ({', '.join(self._of(t, node.input) for t in node.targets)})"
                every = _as([f"c{n}" for n in range(node.width)])
                sorted_by = self._by(node.orders, node.input)
                return f"SELECT DISTINCT{on} {every} FROM {self._from(node.input)}{sorted_by}"
            case BoundLookupJoin():
                raise Unwritten("as of now")
            case BoundMarkJoin():
                return self._mark_join(node)
            case BoundJoin():
                return self._join(node)
            case BoundCrossProduct():
                return self._product([node.left, node.right], ())
            case BoundInnerJoins():
                pairs = [
                    f"({render(a, _columns(node.width))} {how} {render(b, _columns(node.width))})"
                    for join in node.joins
                    for a, b, how in join.pairs
                ]
                others = [*(c for join in node.joins for c in join.others), *node.conditions]
                return self._product(node.parts, [*pairs, *(render(c, _columns(node.width)) for c in others)])
            case BoundProduct():
                return self._product(node.parts, [render(c, _columns(node.width)) for c in node.conditions])
            case BoundSetOperation():
                word = f" {node.word}{' ALL' if node.all else ''} "
                return word.join(f"(SELECT * FROM {self._from(part)})" for part in node.parts)
            case BoundCte():
                made = f"cte{node.index} AS MATERIALIZED ({self.sql(node.definition)})"
                return f"WITH {made} SELECT * FROM {self._from(node.query)}"
            case BoundCteReference():
                return f"SELECT {_as([f'c{n}' for n in range(node.width)])} FROM cte{node.index}"
            case BoundRecursiveCte():
                columns = ", ".join(f"c{n}" for n in range(node.width))
                union = "UNION ALL" if node.all else "UNION"
                made = f"cte{node.index}({columns}) AS (({self.sql(node.first)}) {union} ({self.sql(node.more)}))"
                return f"WITH RECURSIVE {made} SELECT * FROM cte{node.index}"
        raise Unwritten(type(node).__name__)

    def _from(self, node: BoundRelation, alias: str = "i") -> str:
        return f"({self.sql(node)}) AS {alias}"

    def _of(self, expression: BoundExpression, below: BoundRelation) -> str:
        return render(expression, _columns(below.width))

    def _by(self, orders: Sequence[SortItem], below: BoundRelation) -> str:
        listed = ", ".join(f"{self._of(o.expression, below)} {o.direction}" for o in orders)
        return f" ORDER BY {listed}" if listed else ""

    def _first(self, below: BoundRelation, by: Sequence[SortItem], rows: int | None, offset: int) -> str:
        every = ", ".join(f"c{n}" for n in range(below.width))
        order = self._by(by, below)
        order = f"{order}, {every}" if order else f" ORDER BY {every}"  # ties are broken in one way
        limit = "" if rows is None else f" LIMIT {rows}"
        return f"SELECT * FROM {self._from(below)}{order}{limit} OFFSET {offset}"

    def _aggregate(self, node: BoundAggregate) -> str:
        groups = [f"{self._of(g, node.input)} AS g{n}" for n, g in enumerate(node.groups)]
        below = f"(SELECT {', '.join(['*', *groups])} FROM {self._from(node.input)})"
        shown = [f"g{n}" for n in range(len(node.groups))]
        shown += [self._call(call, node.input) for call in node.calls]
        shown += [f"grouping({', '.join(f'g{n}' for n in some)})" for some in node.groupings]
        sets = node.sets or ((tuple(range(len(node.groups))),) if node.groups else ())
        listed = ", ".join(f"({', '.join(f'g{n}' for n in some)})" for some in sets)
        by = f" GROUP BY GROUPING SETS ({listed})" if sets else ""
        if not shown:
            return "SELECT true AS c0"
        return f"SELECT {_as(shown)} FROM {below}{by}"

    def _call(self, call: AggregateCall, below: BoundRelation) -> str:
        inner = ", ".join(self._of(a, below) for a in call.arguments)
        inner = f"{'DISTINCT ' if call.distinct else ''}{inner}{self._by(call.orders, below)}"
        where = "" if call.filter is None else f" FILTER (WHERE {self._of(call.filter, below)})"
        return f"count(*){where}" if call.name == "count_star" else f'"{call.name}"({inner}){where}'

    def _window(self, node: BoundWindow | BoundFirstRanks) -> str:
        calls = node.calls if isinstance(node, BoundWindow) else (node.call,)
        own = [f"c{n}" for n in range(node.input.width)]
        made = f"SELECT {_as([*own, *(self._over(call, node.input) for call in calls)])} FROM {self._from(node.input)}"
        if isinstance(node, BoundWindow):
            return made
        return f"SELECT * FROM ({made}) WHERE c{node.input.width} <= {node.last}"

    def _over(self, call: WindowCall, below: BoundRelation) -> str:
        name = call.name or call.kind.removeprefix("WINDOW_").lower()
        name = _OVER.get(name, name)
        inner = ", ".join(self._of(a, below) for a in call.arguments)
        inner = f"{'DISTINCT ' if call.distinct else ''}{inner}{self._by(call.own_orders, below)}"
        inner += " IGNORE NULLS" if call.ignores_nulls else ""
        where = "" if call.filter is None else f" FILTER (WHERE {self._of(call.filter, below)})"
        parts = ", ".join(self._of(p, below) for p in call.partitions)
        by = f"PARTITION BY {parts}" if parts else ""
        every = ", ".join(f"c{n}" for n in range(below.width))
        order = self._by(call.orders, below)
        frame = frame_of(call, _columns(below.width)).text
        if call.kind == "WINDOW_ROW_NUMBER":  # ties are broken in one way
            order, frame = (f"{order}, {every}" if order else f"ORDER BY {every}"), ""
        called = "count(*)" if name == "count_star" else f"{name}({inner})"
        return f"{called}{where} OVER ({by} {order} {frame})"

    def _list_function(self, node: BoundListFunction) -> str:
        given = ", ".join(f"CAST(i.c{n} AS {kind})" for n, kind in enumerate(node.argument_types))
        names = ", ".join(f"f{n}" for n in range(len(node.names)))
        counted = " WITH ORDINALITY" if node.ordinality is not None else ""
        shown = [*(f"f.f{n}" for n in node.columns), *(f"i.c{n}" for n in node.passed)]
        return (
            f"SELECT {_as(shown)} FROM {self._from(node.input)}, {node.name}({given}){counted} AS f({names})"
        )

    def _sides(self, node: BoundJoin) -> tuple[str, str, list[StepColumn]]:
        left, right = node.left.width, node.right.width
        one = ", ".join(f"c{n} AS l{n}" for n in range(left))
        two = ", ".join(f"c{n} AS r{n}" for n in range(right))
        columns = [StepColumn(f"l{n}", "") for n in range(left)] + [
            StepColumn(f"r{n}", "") for n in range(right)
        ]
        return (
            f"(SELECT {one} FROM {self._from(node.left)})",
            f"(SELECT {two} FROM {self._from(node.right)})",
            columns,
        )

    def _join(self, node: BoundJoin) -> str:
        one, two, columns = self._sides(node)
        left, right = columns[: node.left.width], columns[node.left.width :]
        on = [f"({render(a, left)} {how} {render(b, right)})" for a, b, how in node.pairs]
        on += [render(c, columns) for c in node.rest]
        shown = _as([columns[n].name for n in node.places])
        word = f"ASOF {_JOINS[node.kind]}" if isinstance(node, BoundAsofJoin) else _JOINS[node.kind]
        return f"SELECT {shown} FROM {one} AS l {word} {two} AS r ON {' AND '.join(on) or 'true'}"

    def _mark_join(self, node: BoundMarkJoin) -> str:
        one, two, columns = self._sides(node)
        left, right = columns[: node.left.width], columns[node.left.width :]
        met = [f"({render(a, left)} {how} {render(b, right)})" for a, b, how in node.pairs]
        perhaps = [
            text if how == SAME else f"({text} IS NOT FALSE)"
            for text, (_, _, how) in zip(met, node.pairs, strict=True)
        ]
        mark = (
            f"CASE WHEN EXISTS (SELECT 1 FROM {two} AS r WHERE {' AND '.join(met)}) THEN true"
            f" WHEN EXISTS (SELECT 1 FROM {two} AS r WHERE {' AND '.join(perhaps)}) THEN NULL ELSE false END"
        )
        made = f"SELECT {_as([*(columns[n].name for n in node.places), mark])} FROM {one} AS l"
        if node.decided is None:
            return made
        kept = f"c{len(node.places)}"
        return f"SELECT * FROM ({made}) WHERE {kept if node.decided else f'NOT {kept}'}"

    def _product(self, parts: Sequence[BoundRelation], conditions: Sequence[str]) -> str:
        first, made = 0, []
        for number, part in enumerate(parts):
            named = ", ".join(f"c{n} AS p{first + n}" for n in range(part.width))
            made.append(f"(SELECT {named} FROM {self._from(part)}) AS q{number}")
            first += part.width
        shown = _as([f"p{n}" for n in range(first)])
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT * FROM (SELECT {shown} FROM {', '.join(made)}){where}"


def _columns(width: int) -> list[StepColumn]:
    return [StepColumn(f"c{n}", "") for n in range(width)]


def _as(texts: Sequence[str]) -> str:
    return ", ".join(f"{text} AS c{n}" for n, text in enumerate(texts))
