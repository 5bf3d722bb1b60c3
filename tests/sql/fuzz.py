"""Random tables, random queries over them, random changes of their rows.

Queries are well typed and their answers do not depend on chance: ties are
broken by all columns, numbers are small or exact.  A query is made of the
clauses of `queries.sql`, one within the other.
"""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

KINDS = (
    "INTEGER",
    "BIGINT",
    "VARCHAR",
    "DOUBLE",
    "DECIMAL(10,2)",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
    "INTEGER[]",
)
NUMBERS = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL(10,2)")
ARROW = {
    "INTEGER": pa.int32(), "BIGINT": pa.int64(), "VARCHAR": pa.string(), "DOUBLE": pa.float64(),
    "DECIMAL(10,2)": pa.decimal128(10, 2), "BOOLEAN": pa.bool_(), "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"), "INTEGER[]": pa.list_(pa.int32()),
}  # fmt: skip

Tables = dict[str, tuple[dict[str, str], str]]
Scope = Sequence[tuple[str, str]]  # (text that names a column, its type)


@dataclass(frozen=True)
class Relation:
    text: str  # what stands in FROM
    scope: Scope


@dataclass(frozen=True)
class Change:
    table: str
    rows: tuple[dict[str, Any], ...]
    taken: bool  # else put


def tables(rng: random.Random) -> Tables:
    found: Tables = {}
    for number in range(rng.randint(1, 3)):
        columns = {"id": "INTEGER", "k": "INTEGER"}
        for n in range(rng.randint(1, 5)):
            columns[f"c{n}"] = rng.choice(KINDS)
        found[f"t{number}"] = (columns, "id")
    return found


def value(kind: str, rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return None
    if kind in ("INTEGER", "BIGINT"):
        return rng.randrange(-2, 5)
    if kind == "VARCHAR":
        return rng.choice(["", "a", "b", "ab", "A", "é%_"])
    if kind == "DOUBLE":
        return rng.choice([0.0, -0.0, 0.5, -1.25, 3.0, 0.5, 3.0, float("nan"), float("inf")])
    if kind == "DECIMAL(10,2)":
        return decimal.Decimal(rng.randrange(-300, 300)) / 100
    if kind == "BOOLEAN":
        return rng.random() < 0.5
    if kind == "DATE":
        return datetime.date(2024, 2, 27) + datetime.timedelta(days=rng.randrange(5))
    if kind == "TIMESTAMP":
        return datetime.datetime(2024, 2, 28) + datetime.timedelta(hours=rng.randrange(40))
    return [rng.choice([0, 1, 2, None]) for _ in range(rng.randrange(3))]


def changes(made: Tables, rng: random.Random, live: dict[str, dict[int, dict[str, Any]]]) -> list[Change]:
    """One epoch's worth; `live` holds the rows of each table by id, and is brought up to date."""
    found = []
    for name, (columns, _) in made.items():
        held = live.setdefault(name, {})
        fresh: dict[int, dict[str, Any]] = {}
        for _ in range(rng.choice([0, 1, 2, 6])):
            row = {c: value(k, rng) for c, k in columns.items()} | {"id": rng.randrange(14)}
            fresh[row["id"]] = row
        if fresh:
            held.update(fresh)
            found.append(Change(name, tuple(fresh.values()), False))
        gone = [i for i in held if rng.random() < 0.15]
        if gone:
            found.append(Change(name, tuple(held.pop(i) for i in gone), True))
    return found


class Queries:
    """Makes queries over tables."""

    def __init__(self, made: Tables, rng: random.Random) -> None:
        self.tables = made
        self.rng = rng
        self._names = 0

    def name(self, base: str) -> str:
        self._names += 1
        return f"{base}{self._names}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    # -- expressions -----------------------------------------------------------------

    def expression(self, kind: str, scope: Scope, depth: int = 2) -> str:
        rng = self.rng
        own = [text for text, k in scope if k == kind]
        if own and (depth <= 0 or self.chance(0.55)):
            return rng.choice(own)
        if depth <= 0:
            return self.constant(kind)
        deeper = [self._general]
        if kind in NUMBERS:
            deeper += [self._number] * 3
        elif kind == "VARCHAR":
            deeper += [self._text] * 3
        elif kind == "BOOLEAN":
            return self.condition(scope, depth)
        elif kind in ("DATE", "TIMESTAMP"):
            deeper += [self._time] * 2
        else:
            deeper += [self._list] * 2
        return rng.choice(deeper)(kind, scope, depth - 1)

    def constant(self, kind: str) -> str:
        found = value(kind, self.rng)
        if found is None:
            return f"CAST(NULL AS {kind})"
        if isinstance(found, list):
            return f"CAST([{', '.join('NULL' if v is None else str(v) for v in found)}] AS INTEGER[])"
        return f"CAST('{found}' AS {kind})"

    def _general(self, kind: str, scope: Scope, depth: int) -> str:
        a, b = (self.expression(kind, scope, depth) for _ in range(2))
        return self.rng.choice(
            [
                f"CASE WHEN {self.condition(scope, depth)} THEN {a} ELSE {b} END",
                f"coalesce({a}, {b})",
                f"nullif({a}, {b})",
                f"greatest({a}, {b})" if kind != "INTEGER[]" else a,
            ]
        )

    def _number(self, kind: str, scope: Scope, depth: int) -> str:
        a, b = (self.expression(kind, scope, depth) for _ in range(2))
        text = self.expression("VARCHAR", scope, depth)
        items = self.expression("INTEGER[]", scope, depth)
        day = self.expression("DATE", scope, depth)
        found = [f"({a} + {b})", f"({a} - {b})", f"(-{a})", f"abs({a})", f"({a} % 3)", f"length({text})"]
        found += [f"len({items})", f"list_sum({items})", f"extract(day from {day})", f"sign({a})"]
        return f"CAST({self.rng.choice(found)} AS {kind})"

    def _text(self, kind: str, scope: Scope, depth: int) -> str:
        a, b = (self.expression("VARCHAR", scope, depth) for _ in range(2))
        number = self.expression("INTEGER", scope, depth)
        found = [
            f"({a} || {b})",
            f"upper({a})",
            f"replace({a}, 'a', 'x')",
            f"substr({a}, 1, 1)",
            f"{number}::VARCHAR",
        ]
        found += [f"concat({a}, {b})", f"regexp_replace({a}, '[a-z]', '-')", f"left({a}, 2)", f"md5({a})"]
        return self.rng.choice(found)

    def _time(self, kind: str, scope: Scope, depth: int) -> str:
        a = self.expression(kind, scope, depth)
        found = [f"date_trunc('month', {a})", f"({a} + INTERVAL 1 DAY)", f"({a} - INTERVAL 2 HOUR)"]
        return f"CAST({self.rng.choice(found)} AS {kind})"

    def _list(self, kind: str, scope: Scope, depth: int) -> str:
        a, b = (self.expression("INTEGER[]", scope, depth) for _ in range(2))
        number = self.expression("INTEGER", scope, depth)
        found = [f"list_concat({a}, {b})", f"[{number}, 1]", f"list_sort({a})", f"list_distinct({a})[1:0]"]
        found += [f"list_transform({a}, lambda x: x + {number})", f"list_filter({a}, lambda x: x > 0)"]
        return f"CAST({self.rng.choice(found)} AS INTEGER[])"

    def condition(self, scope: Scope, depth: int = 2, outer: bool = False) -> str:
        rng = self.rng
        if depth <= 0 or self.chance(0.5):
            kind = rng.choice([k for _, k in scope] or ["INTEGER"])
            a, b = self.expression(kind, scope, depth - 1), self.expression(kind, scope, depth - 1)
            how = rng.choice(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
            return f"({a} {how} {b})"
        a, b = self.condition(scope, depth - 1), self.condition(scope, depth - 1)
        kind = rng.choice(KINDS)
        one = self.expression(kind, scope, depth - 1)
        text = self.expression("VARCHAR", scope, depth - 1)
        found = [f"({a} AND {b})", f"({a} OR {b})", f"(NOT {a})", f"({one} IS NULL)", f"({one} IS NOT NULL)"]
        found += [f"({one} IN ({self.constant(kind)}, {self.constant(kind)}))", f"({text} LIKE '%a%')"]
        found += [f"({text} ILIKE 'A%')", f"regexp_matches({text}, '^.b')"]
        if kind != "INTEGER[]":
            found.append(f"({one} BETWEEN {self.constant(kind)} AND {self.constant(kind)})")
        return rng.choice(found)

    # -- subqueries in conditions ----------------------------------------------------------

    def filtered(self, scope: Scope, depth: int) -> str:
        """A condition that may hold a subquery."""
        rng = self.rng
        if depth <= 0 or self.chance(0.6):
            return self.condition(scope)
        inner = self.relation(depth - 1)
        both = [*scope, *inner.scope]
        where = self.condition(both, 1) if self.chance(0.6) else self.condition(inner.scope, 1)
        if self.chance(0.4):  # paired, as most are
            where = f"{self.pairing(scope, inner.scope)} AND {where}"
        kind = rng.choice([k for _, k in inner.scope])
        theirs = rng.choice([t for t, k in inner.scope if k == kind])
        ours = self.expression(kind, scope, 1)
        number = self.expression("BIGINT", scope, 1)
        sub = f"FROM {inner.text} WHERE {where}"
        found = [f"EXISTS (SELECT 1 {sub})", f"NOT EXISTS (SELECT 1 {sub})"]
        found += [f"({ours} IN (SELECT {theirs} {sub}))", f"({ours} NOT IN (SELECT {theirs} {sub}))"]
        found += [f"({number} < (SELECT count(*) {sub}))"]
        if kind != "INTEGER[]":
            how = rng.choice(["=", "<>", "<", ">=", ">", "<="])
            found += [f"({ours} {how} {rng.choice(['ANY', 'ALL'])} (SELECT {theirs} {sub}))"]
            found += [f"({ours} {how} (SELECT {rng.choice(['min', 'max'])}({theirs}) {sub}))"]
        return rng.choice(found)

    # -- relations -------------------------------------------------------------------------

    def relation(self, depth: int) -> Relation:
        rng = self.rng
        if depth <= 0 or self.chance(0.5):
            table = rng.choice(list(self.tables))
            alias = self.name("x")
            columns = self.tables[table][0]
            return Relation(f"{table} AS {alias}", [(f"{alias}.{c}", k) for c, k in columns.items()])
        if self.chance(0.45):
            return self.joined(depth)
        text, kinds = self.select(depth - 1)
        alias = self.name("q")
        return Relation(f"({text}) AS {alias}", [(f"{alias}.{c}", k) for c, k in kinds])

    def joined(self, depth: int) -> Relation:
        rng = self.rng
        a, b = self.relation(depth - 1), self.relation(depth - 1)
        both = [*a.scope, *b.scope]
        kind = rng.choice(
            ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "SEMI JOIN", "ANTI JOIN"]
        )
        if kind == "CROSS JOIN":
            return Relation(f"{a.text} CROSS JOIN {b.text}", both)
        asked = [self.pairing(a.scope, b.scope)] if self.chance(0.85) else []
        if self.chance(0.4) or not asked:
            asked.append(self.condition(both, 1))
        scope = a.scope if kind in ("SEMI JOIN", "ANTI JOIN") else both
        return Relation(f"{a.text} {kind} {b.text} ON {' AND '.join(asked)}", scope)

    def pairing(self, one: Scope, two: Scope) -> str:
        kinds = sorted({k for _, k in one} & {k for _, k in two})
        kind = self.rng.choice(kinds) if kinds else "INTEGER"
        a, b = self.expression(kind, one, 0), self.expression(kind, two, 0)
        return f"{a} {self.rng.choice(['=', '=', '=', 'IS NOT DISTINCT FROM'])} {b}"

    # -- queries ---------------------------------------------------------------------------

    def query(self) -> str:
        return self.select(self.rng.randint(1, 3))[0]

    def select(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """A query, and the names and types of its columns."""
        if depth > 0 and self.chance(0.12):
            return self.set_operation(depth)
        if self.chance(0.1):
            return self.common(depth)
        source = self.relation(depth)
        where = f" WHERE {self.filtered(source.scope, depth)}" if self.chance(0.6) else ""
        shape = self.rng.random()
        if shape < 0.35:
            return self.grouped(source, where, depth)
        if shape < 0.5:
            return self.windowed(source, where)
        if shape < 0.58:
            return self.unnested(source, where)
        picked, kinds = self.picked(source.scope)
        if self.chance(0.2) and depth > 0:
            name = self.name("s")
            picked.append(f"{self.scalar(source.scope, depth)} AS {name}")
            kinds.append((name, "BIGINT"))
        word = "DISTINCT " if self.chance(0.2) else ""
        text = f"SELECT {word}{', '.join(picked)} FROM {source.text}{where}"
        return self.limited(text, kinds), kinds

    def picked(self, scope: Scope) -> tuple[list[str], list[tuple[str, str]]]:
        texts, kinds = [], []
        for _ in range(self.rng.randint(1, 4)):
            kind, name = self.rng.choice(KINDS), self.name("o")
            texts.append(f"{self.expression(kind, scope)} AS {name}")
            kinds.append((name, kind))
        return texts, kinds

    def scalar(self, scope: Scope, depth: int) -> str:
        inner = self.relation(depth - 1)
        where = (
            self.pairing(scope, inner.scope)
            if self.chance(0.7)
            else self.condition([*scope, *inner.scope], 1)
        )
        found = self.rng.choice(["count(*)", f"sum({self.expression('INTEGER', inner.scope, 0)})::BIGINT"])
        return f"(SELECT {found} FROM {inner.text} WHERE {where})"

    def limited(self, text: str, kinds: Sequence[tuple[str, str]]) -> str:
        if not self.chance(0.15):
            return text
        order = ", ".join(
            f"{name} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}"
            for name, _ in kinds
        )
        offset = f" OFFSET {self.rng.randint(1, 2)}" if self.chance(0.3) else ""
        return f"SELECT * FROM ({text}) ORDER BY {order} LIMIT {self.rng.randint(1, 4)}{offset}"

    def aggregate(self, scope: Scope) -> tuple[str, str]:
        rng = self.rng
        kind = rng.choice(KINDS)
        one = self.expression(kind, scope, 1)
        number = rng.choice(NUMBERS)
        n = self.expression(number, scope, 1)
        summed = {
            "INTEGER": "BIGINT",
            "BIGINT": "BIGINT",
            "DOUBLE": "DOUBLE",
            "DECIMAL(10,2)": "DECIMAL(10,2)",
        }
        apart = "DISTINCT " if self.chance(0.2) else ""
        found = [
            ("count(*)", "BIGINT"), (f"count({apart}{one})", "BIGINT"), (f"sum({apart}{n})", summed[number]),
            (f"avg({apart}{n})", "DOUBLE"), (f"min({one})", kind), (f"max({one})", kind),
            (f"bool_or({self.condition(scope, 1)})", "BOOLEAN"), (f"median({n})", "DOUBLE"),
            (f"string_agg({apart}{(t := self.expression('VARCHAR', scope, 0))}, ',' ORDER BY {t})", "VARCHAR"),
            (f"list({(i := self.expression('INTEGER', scope, 0))} ORDER BY {i} DESC NULLS LAST)", "INTEGER[]"),
            (f"quantile_disc({self.expression('INTEGER', scope, 0)}, 0.5)", "INTEGER"),
            (f"bit_xor({self.expression('INTEGER', scope, 0)})", "INTEGER"), (f"var_pop({n})", "DOUBLE"),
        ]  # fmt: skip
        text, out = rng.choice(found)
        if self.chance(0.2):
            text += f" FILTER (WHERE {self.condition(scope, 1)})"
        return f"CAST({text} AS {out})", out

    def grouped(self, source: Relation, where: str, depth: int) -> tuple[str, list[tuple[str, str]]]:
        rng = self.rng
        keys: list[tuple[str, str, str]] = []
        for _ in range(rng.choice([0, 1, 1, 2])):
            kind = rng.choice(KINDS)
            keys.append((self.expression(kind, source.scope, 1), self.name("g"), kind))
        calls = [(*self.aggregate(source.scope), self.name("a")) for _ in range(rng.randint(1, 3))]
        kinds = [(n, k) for _, n, k in keys] + [(n, k) for _, k, n in calls]
        listed = [f"{t} AS {n}" for t, n, _ in keys] + [f"{t} AS {n}" for t, _, n in calls]
        numbers = [str(n) for n in range(1, len(keys) + 1)]
        by = ""
        if keys:
            sort = rng.random()
            names = ", ".join(n for _, n, _ in keys)
            by = f" GROUP BY {', '.join(numbers)}"
            if sort < 0.25:
                inner = ", ".join(f"{t} AS {n}" for t, n, _ in keys)
                rest = ", ".join(t for t, _ in source.scope)
                renamed = ", ".join(f"{t} AS z{i}" for i, (t, _) in enumerate(source.scope))
                scope = [(f"z{i}", k) for i, (_, k) in enumerate(source.scope)]
                calls = [(*self.aggregate(scope), n) for _, _, n in calls]
                kinds = [(n, k) for _, n, k in keys] + [(n, k) for _, k, n in calls]
                word = rng.choice(["ROLLUP", "CUBE"])
                listed = [n for _, n, _ in keys] + [f"{t} AS {n}" for t, _, n in calls]
                assert rest
                text = (
                    f"SELECT {', '.join(listed)} FROM (SELECT {inner}, {renamed} FROM {source.text}{where})"
                    f" GROUP BY {word} ({names})"
                )
                return self.limited(text, kinds), kinds
        having = f" HAVING count(*) > {rng.randint(0, 2)}" if self.chance(0.25) else ""
        text = f"SELECT {', '.join(listed)} FROM {source.text}{where}{by}{having}"
        return self.limited(text, kinds), kinds

    def windowed(self, source: Relation, where: str) -> tuple[str, list[tuple[str, str]]]:
        rng = self.rng
        columns = [(t, self.name("w"), k) for t, k in source.scope]
        inner = ", ".join(f"{t} AS {n}" for t, n, _ in columns)
        scope = [(n, k) for _, n, k in columns]
        part = f"PARTITION BY {rng.choice(scope)[0]} " if self.chance(0.7) else ""
        order = "ORDER BY " + ", ".join(
            f"{n}{rng.choice(['', ' DESC'])} NULLS {rng.choice(['FIRST', 'LAST'])}" for n, _ in scope
        )
        some = rng.choice(scope)
        kind = some[1]
        frame = rng.choice(
            [
                "", "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "ROWS UNBOUNDED PRECEDING",
                "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW", "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW",
            ]
        )  # fmt: skip
        number = self.expression("INTEGER", scope, 0)
        over, framed = f"OVER ({part}{order})", f"OVER ({part}{order} {frame})"
        found = [
            (f"row_number() {over}", "BIGINT"), (f"rank() OVER ({part}ORDER BY {some[0]})", "BIGINT"),
            (f"dense_rank() OVER ({part}ORDER BY {some[0]} DESC)", "BIGINT"), (f"ntile(2) {over}", "BIGINT"),
            (f"lag({some[0]}) {over}", kind), (f"lead({some[0]}, 2) {over}", kind),
            (f"first_value({some[0]}) {framed}", kind), (f"last_value({some[0]}) {framed}", kind),
            (f"sum({number}) {framed}", "BIGINT"), (f"count(*) {framed}", "BIGINT"), (f"max({some[0]}) {framed}", kind),
            (f"count({some[0]}) OVER ({part})", "BIGINT"), (f"cume_dist() OVER ({part}ORDER BY {some[0]})", "DOUBLE"),
        ]  # fmt: skip
        text, out = rng.choice(found)
        name = self.name("v")
        body = f"SELECT *, CAST({text} AS {out}) AS {name} FROM (SELECT {inner} FROM {source.text}{where})"
        kinds = [*scope, (name, out)]
        if out == "BIGINT" and self.chance(0.5):
            how = rng.choice(["<=", "=", "<", ">"])
            body = f"SELECT * FROM ({body}) WHERE {name} {how} {rng.randint(1, 3)}"
        return body, kinds

    def unnested(self, source: Relation, where: str) -> tuple[str, list[tuple[str, str]]]:
        texts, kinds = self.picked(source.scope)
        name = self.name("e")
        items = self.expression("INTEGER[]", source.scope, 1)
        return f"SELECT {', '.join(texts)}, unnest({items}) AS {name} FROM {source.text}{where}", [
            *kinds,
            (name, "INTEGER"),
        ]

    def set_operation(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        rng = self.rng
        kinds = [(self.name("u"), rng.choice(KINDS)) for _ in range(rng.randint(1, 3))]
        sides = []
        for _ in range(2):
            source = self.relation(depth - 1)
            listed = ", ".join(f"{self.expression(k, source.scope, 1)} AS {n}" for n, k in kinds)
            sides.append(f"SELECT {listed} FROM {source.text}")
        word = rng.choice(["UNION", "INTERSECT", "EXCEPT"]) + rng.choice(["", " ALL"])
        return f"{sides[0]} {word} {sides[1]}", kinds

    def common(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """A common table expression that is read twice."""
        text, kinds = self.select(max(depth - 1, 0))
        name, a, b = self.name("cte"), self.name("x"), self.name("x")
        one = [(f"{a}.{n}", k) for n, k in kinds]
        two = [(f"{b}.{n}", k) for n, k in kinds]
        picked, out = self.picked([*one, *two])
        word = self.rng.choice(["JOIN", "LEFT JOIN"])
        return (
            f"WITH {name} AS ({text}) SELECT {', '.join(picked)} FROM {name} {a} {word} {name} {b}"
            f" ON {self.pairing(one, two)}",
            out,
        )
