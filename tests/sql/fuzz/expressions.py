"""Well typed expressions whose value does not depend on chance.

In shared text only such functions appear as DuckDB and PostgreSQL compute alike; see `divergences`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.sql.fuzz import nested
from tests.sql.fuzz.kinds import KINDS, NUMBERS, STRUCT, TIMES, WHOLE, literal, names

Scope = Sequence[tuple[str, str]]  # (text that names a column, its kind)


class Expressions:
    def __init__(self, rng: random.Random, shared: bool) -> None:
        self.rng = rng
        self.shared = shared
        self._names = 0

    def name(self, base: str) -> str:
        self._names += 1
        return f"{base}{self._names}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def kind(self, compares: bool = False) -> str:
        return self.rng.choice(names(self.shared, compares))

    def kind_of(self, scope: Scope, compares: bool = False) -> str:
        """A kind that the scope has, most of the time."""
        held = [k for _, k in scope if KINDS[k].compares or not compares]
        return self.rng.choice(held) if held and self.chance(0.7) else self.kind(compares)

    def constant(self, kind: str) -> str:
        return literal(kind, self.rng)

    def expression(self, kind: str, scope: Scope, depth: int = 2) -> str:
        own = [text for text, k in scope if k == kind]
        if own and (depth <= 0 or self.chance(0.55)):
            return self.rng.choice(own)
        if depth <= 0:
            return self.constant(kind)
        if kind == "BOOLEAN":
            return self.condition(scope, depth - 1)
        found = [lambda: self._general(kind, scope, depth - 1)]
        if kind in NUMBERS:
            found += [lambda: self._number(kind, scope, depth - 1)] * 3
        elif kind == "VARCHAR":
            found += [lambda: self._text(scope, depth - 1)] * 3
        elif kind in TIMES:
            found += [lambda: self._time(kind, scope, depth - 1)] * 2
        elif not self.shared and kind == "INTEGER[]":
            found += [lambda: self._list(scope, depth - 1)] * 2
        elif not self.shared:
            found += [lambda: self._other(kind, scope, depth - 1)] * 2
        return self.rng.choice(found)()

    def _of(self, scope: Scope) -> nested.Some:
        return lambda kind: self.expression(kind, scope, 0)

    def _general(self, kind: str, scope: Scope, depth: int) -> str:
        a, b = (self.expression(kind, scope, depth) for _ in range(2))
        found = [
            f"CASE WHEN {self.condition(scope, depth)} THEN {a} ELSE {b} END",
            f"CASE {self.expression('INTEGER', scope, 0)} WHEN 1 THEN {a} WHEN 2 THEN {b} END",
            f"coalesce({a}, {b})",
        ]
        if KINDS[kind].compares:
            found.append(f"nullif({a}, {b})")
        if KINDS[kind].compares and "[" not in kind and kind not in (STRUCT, "JSON", "BLOB"):
            found += [f"greatest({a}, {b})", f"least({a}, {b})"]
        return self.rng.choice(found)

    def _number(self, kind: str, scope: Scope, depth: int) -> str:
        a, b = (self.expression(kind, scope, depth) for _ in range(2))
        text = self.expression("VARCHAR", scope, depth)
        found = [f"({a} + {b})", f"({a} - {b})", f"(-{a})", f"abs({a})", f"length({text})", f"({a} * 2)"]
        found += [f"extract(day from {self.expression('DATE', scope, depth)})"]
        found += [f"extract(hour from {self.expression('TIMESTAMP', scope, depth)})"]
        if kind == "INTEGER":
            found += [f"nearer({a}, {b})"]
        if kind in WHOLE:
            day = self.expression("DATE", scope, 0)
            found += [f"({a} % 3)", f"position('b' in {text})", f"({day} - {self.constant('DATE')})"]
        if not self.shared:
            items = self.expression("INTEGER[]", scope, depth)
            found += [f"len({items})", f"list_sum({items})", f"sign({a})", f"({a} / 2)", f"({a} // 2)"]
            found += [f"TRY_CAST({text} AS INTEGER)", f"round({a}, 1)", f"({items})[1]", f"hash({text}) % 5"]
            found += [f"(({self.expression('JSON', scope, 0)}) ->> '$.a')::INTEGER"]
            found += [f"odd_one(CAST({self.expression('SMALLINT', scope, 0)} AS INTEGER))"]
            found += [
                f"({self.expression(STRUCT, scope, 0)}).p",
                f"(epoch({self.expression('DATE', scope, 0)}) / 100000)",
                f"raised(CAST({self.expression('SMALLINT', scope, 0)} AS INTEGER))",
            ]
            found += [self.rng.choice(nested.numbers(self._of(scope))) for _ in range(5)]
        return f"CAST({self.rng.choice(found)} AS {kind})"

    def _text(self, scope: Scope, depth: int) -> str:
        a, b = (self.expression("VARCHAR", scope, depth) for _ in range(2))
        number = self.expression("INTEGER", scope, depth)
        found = [
            f"({a} || {b})",
            f"upper({a})",
            f"lower({a})",
            f"replace({a}, 'a', 'x')",
            f"substr({a}, 1, 1)",
        ]
        found += [f"CAST({number} AS VARCHAR)", f"CAST({self.expression('BOOLEAN', scope, 0)} AS VARCHAR)"]
        found += [f"concat({a}, {b})", f"regexp_replace({a}, '[a-z]', '-')", f"left({a}, 2)", f"md5({a})"]
        found += [
            f"CAST({self.expression('DECIMAL(10,2)', scope, 0)} AS VARCHAR)",
            f"trim({a})",
            f"reverse({a})",
        ]
        found += [f"CAST({self.expression('DATE', scope, 0)} AS VARCHAR)", f"split_part({a}, 'a', 1)"]
        found += [f"tagged({number}, {a})", f"repeat({a}, 2)", f"lpad({a}, 3, '*')", f"rpad({a}, 2, 'xy')"]
        if not self.shared:
            found += [f"mixed({number}, {a})"]
            found += [
                f"({self.expression(STRUCT, scope, 0)}).q",
                f"({self.expression('VARCHAR[]', scope, 0)})[1]",
            ]
            found += [f"array_to_string({self.expression('VARCHAR[]', scope, 0)}, '-')"]
            found += [f"strftime({self.expression('TIMESTAMP', scope, 0)}, '%H')", f"{a}[1:2]"]
            found += [f"(({self.expression('JSON', scope, 0)}) ->> 0)", f"format('<{{}}>', {a})"]
            found += [self.rng.choice(nested.texts(self._of(scope))) for _ in range(5)]
        return self.rng.choice(found)

    def _time(self, kind: str, scope: Scope, depth: int) -> str:
        a = self.expression(kind, scope, depth)
        if kind == "TIME":
            return f"({a} + INTERVAL '1 hour')"
        found = [f"date_trunc('month', {a})", f"({a} + INTERVAL '1 day')", f"({a} - INTERVAL '2 hours')"]
        if kind != "TIMESTAMPTZ":
            found += [self.expression("DATE" if kind == "TIMESTAMP" else "TIMESTAMP", scope, 0)]
        if kind == "DATE":
            found += [f"({a} + {self.expression('INTEGER', scope, 0)})"]
        if not self.shared:
            found += [
                f"({a} + {self.expression('INTERVAL', scope, 0)})",
                f"time_bucket(INTERVAL '2 days', {a})",
            ]
        return f"CAST({self.rng.choice(found)} AS {kind})"

    def _list(self, scope: Scope, depth: int) -> str:
        a, b = (self.expression("INTEGER[]", scope, depth) for _ in range(2))
        number = self.expression("INTEGER", scope, depth)
        found = [
            f"list_concat({a}, {b})",
            f"[{number}, 1]",
            f"list_sort({a})",
            f"{a}[2:3]",
            f"list_reverse({a})",
        ]
        found += [f"list_transform({a}, lambda x: x + {number})", f"list_filter({a}, lambda x: x > 0)"]
        found += [self.rng.choice(nested.lists(self._of(scope))) for _ in range(5)]
        return f"CAST({self.rng.choice(found)} AS INTEGER[])"

    def _other(self, kind: str, scope: Scope, depth: int) -> str:
        """Kinds that only DuckDB has this way."""
        number, text = self.expression("INTEGER", scope, depth), self.expression("VARCHAR", scope, depth)
        made = {
            STRUCT: f"CAST({{'p': {number}, 'q': {text}}} AS {STRUCT})",
            "JSON": f"CAST(to_json({{'a': {number}, 'b': {text}}}) AS JSON)",
            "VARCHAR[]": f"CAST([{text}, 'z'] AS VARCHAR[])",
            "BLOB": f"CAST(encode({text}) AS BLOB)",
            "UUID": f"CAST(md5({text}) AS UUID)",
            "INTERVAL": f"CAST(({self.expression('TIMESTAMP', scope, 0)} - {self.constant('TIMESTAMP')}) AS INTERVAL)",
            "INTEGER[]": f"CAST([{number}] AS INTEGER[])",
        }
        return made.get(kind) or self.constant(kind)

    def condition(self, scope: Scope, depth: int = 2) -> str:
        rng = self.rng
        if depth <= 0 or self.chance(0.5):
            kind = self.kind_of(scope, compares=True)
            a, b = self.expression(kind, scope, depth - 1), self.expression(kind, scope, depth - 1)
            how = rng.choice(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
            return f"({a} {how} {b})"
        kind = self.kind_of(scope)
        one = self.expression(kind, scope, depth - 1)
        text = self.expression("VARCHAR", scope, depth - 1)
        found = [f"({one} IS NULL)", f"({one} IS NOT NULL)", f"({text} LIKE '%a%')", f"({text} ILIKE 'A%')"]
        found += [
            f"({self.condition(scope, depth - 1)} {rng.choice(['AND', 'OR'])} {self.condition(scope, depth - 1)})"
        ]
        found += [f"(NOT {self.condition(scope, depth - 1)})", f"({text} NOT LIKE 'b_')"]
        item, items = self.expression("INTEGER", scope, 0), self.expression("INTEGER[]", scope, 0)
        items = (
            f"coalesce({items}, CAST(ARRAY[1, NULL] AS INTEGER[]))"  # a NULL array is an empty one in DuckDB
        )
        found += [f"({item} {rng.choice(['= ANY', '<> ALL', '> ANY', '<= ALL'])} ({items}))"]
        if KINDS[kind].compares:
            low, high = self.constant(kind), self.constant(kind)
            found += [f"({one} IN ({low}, {high}))", f"({one} NOT IN ({low}, {high}))"]
            if "[" not in kind and kind != STRUCT:
                found += [f"({one} BETWEEN {low} AND {high})"]
        if not self.shared:
            found += [
                f"regexp_matches({text}, '^.b')",
                f"list_contains({self.expression('INTEGER[]', scope, 0)}, 1)",
                *(self.rng.choice(nested.conditions(self._of(scope))) for _ in range(2)),
            ]
        return rng.choice(found)
