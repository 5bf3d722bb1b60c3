"""What stands in FROM, and subqueries in conditions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tests.sql.fuzz.expressions import Expressions, Scope
from tests.sql.fuzz.kinds import KINDS

Kinds = list[tuple[str, str]]  # the columns of a query: name and kind


@dataclass(frozen=True)
class Relation:
    text: str
    scope: Scope
    alias: str | None = None  # of a table or view alone
    columns: Mapping[str, str] | None = None


class Relations(Expressions):
    """Tables, views, joins, derived tables; `select` comes from whoever inherits."""

    def __init__(self, tables: Mapping[str, Mapping[str, str]], rng: random.Random, shared: bool) -> None:
        super().__init__(rng, shared)
        self.tables = dict(tables)  # views join them as they are made
        self.keyed: set[str] = set()  # tables whose `id` is unique
        self.streams: frozenset[str] = frozenset()  # tables with a watermark for `ts`

    def select(self, depth: int) -> tuple[str, Kinds]:
        raise NotImplementedError

    def picked(self, scope: Scope, compares: bool = False) -> tuple[list[str], Kinds]:
        texts, kinds = [], []
        for _ in range(self.rng.randint(1, 4)):
            kind, name = self.kind_of(scope, compares), self.name("o")
            texts.append(f"{self.expression(kind, scope)} AS {name}")
            kinds.append((name, kind))
        return texts, kinds

    def table(self, name: str | None = None) -> Relation:
        table = name or self.rng.choice(list(self.tables))
        alias = self.name("x")
        columns = self.tables[table]
        scope = [(f"{alias}.{c}", k) for c, k in columns.items()]
        return Relation(f"{table} AS {alias}", scope, alias, columns)

    def relation(self, depth: int) -> Relation:
        if depth <= 0 or self.chance(0.45):
            return self.table()
        shape = self.rng.random()
        if shape < 0.5:
            return self.joined(depth)
        if shape < 0.56:
            return self.listed_values()
        if shape < 0.64:
            return self.lateral(depth)
        if shape < 0.7:
            return self.unnested_beside()
        return self.derived(depth)

    def derived(self, depth: int) -> Relation:
        text, kinds = self.select(depth - 1)
        alias = self.name("q")
        return Relation(f"({text}) AS {alias}", [(f"{alias}.{c}", k) for c, k in kinds])

    def listed_values(self) -> Relation:
        kinds = [self.kind() for _ in range(self.rng.randint(1, 2))]
        alias, columns = self.name("v"), [self.name("c") for _ in kinds]
        rows = ", ".join(
            f"({', '.join(self.constant(k) for k in kinds)})" for _ in range(self.rng.randint(1, 3))
        )
        scope = [(f"{alias}.{c}", k) for c, k in zip(columns, kinds, strict=True)]
        return Relation(f"(VALUES {rows}) AS {alias}({', '.join(columns)})", scope)

    # -- joins ---------------------------------------------------------------------------

    def joined(self, depth: int) -> Relation:
        a, b = self.relation(depth - 1), self.relation(depth - 1)
        kinds = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", ","]
        if not self.shared:
            kinds += ["SEMI JOIN", "ANTI JOIN"]
        kind = self.rng.choice(kinds)
        both = [*a.scope, *b.scope]
        if " JOIN " in b.text and not b.text.startswith("("):
            b = Relation(f"({b.text})", b.scope)
        by_names = a.alias and b.alias and kind not in ("CROSS JOIN", ",")
        if by_names and self.chance(0.15):
            return self._using(a, b, kind)
        if kind == "CROSS JOIN":
            return Relation(f"{a.text} CROSS JOIN {b.text}", both)
        asked = [self.pairing(a.scope, b.scope)] if self.chance(0.8) else []
        if self.chance(0.4) or not asked:
            asked.append(self.condition(both, 1))
        if kind == ",":
            alias = self.name("j")
            texts = [f"{t} AS {self.name('f')}" for t, _ in both]
            scope = [(f"{alias}.{t.rsplit(' ', 1)[1]}", k) for t, (_, k) in zip(texts, both, strict=True)]
            inner = f"SELECT {', '.join(texts)} FROM {a.text}, {b.text} WHERE {' AND '.join(asked)}"
            return Relation(f"({inner}) AS {alias}", scope)
        shown = a.scope if kind in ("SEMI JOIN", "ANTI JOIN") else both
        return Relation(f"{a.text} {kind} {b.text} ON {' AND '.join(asked)}", shown)

    def _using(self, a: Relation, b: Relation, kind: str) -> Relation:
        """USING and NATURAL: the columns that are merged are read no more, which of them they are is its matter."""
        assert a.columns is not None and b.columns is not None
        common = [c for c, k in a.columns.items() if b.columns.get(c) == k and KINDS[k].compares]
        if not common:
            return Relation(f"{a.text} CROSS JOIN {b.text}", [*a.scope, *b.scope])
        on = self.rng.sample(common, self.rng.randint(1, min(2, len(common))))
        same = [c for c in a.columns if c in b.columns]
        natural = same == common and self.chance(0.4)
        on = common if natural else on
        left = [(f"{a.alias}.{c}", k) for c, k in a.columns.items() if c not in on]
        right = [(f"{b.alias}.{c}", k) for c, k in b.columns.items() if c not in on]
        scope = left if kind in ("SEMI JOIN", "ANTI JOIN") else [*left, *right]
        scope = scope or [(self.constant("INTEGER"), "INTEGER")]
        if natural:
            return Relation(f"{a.text} NATURAL {kind} {b.text}", scope)
        return Relation(f"{a.text} {kind} {b.text} USING ({', '.join(on)})", scope)

    def as_of(self) -> Relation:
        """The right side has one row for each time: its key."""
        a, b = self.table(), self.table(self.rng.choice(sorted(self.keyed)))
        kind = self.rng.choice(["ASOF JOIN", "ASOF LEFT JOIN", "ASOF RIGHT JOIN", "ASOF FULL JOIN"])
        time = self.expression("INTEGER", a.scope, 0)
        how = self.rng.choice([">=", ">", "<", "<="])
        pair = f"{self.pairing(a.scope, b.scope, nulls=False)} AND " if self.chance(0.4) else ""
        return Relation(f"{a.text} {kind} {b.text} ON {pair}{time} {how} {b.alias}.id", [*a.scope, *b.scope])

    def lateral(self, depth: int) -> Relation:
        a, b = self.table(), self.table()
        alias, columns = self.name("l"), [(t, self.name("y"), k) for t, k in b.scope]
        where = (
            self.pairing(a.scope, b.scope) if self.chance(0.7) else self.condition([*a.scope, *b.scope], 1)
        )
        if self.chance(0.3):
            listed = f"count(*) AS {columns[0][1]}"
            scope = [(f"{alias}.{columns[0][1]}", "BIGINT")]
            tail = ""
        else:
            listed = ", ".join(f"{t} AS {n}" for t, n, _ in columns)
            scope = [(f"{alias}.{n}", k) for _, n, k in columns]
            order = [
                f"{n} NULLS {self.rng.choice(['FIRST', 'LAST'])}" for _, n, k in columns if KINDS[k].compares
            ]
            whole = len(order) == len(columns)
            tail = (
                f" ORDER BY {', '.join(order)} LIMIT {self.rng.randint(1, 2)}"
                if whole and self.chance(0.7)
                else ""
            )
        inner = f"(SELECT {listed} FROM {b.text} WHERE {where}{tail}) AS {alias}"
        how = self.rng.choice([f"CROSS JOIN LATERAL {inner}", f"LEFT JOIN LATERAL {inner} ON TRUE"])
        return Relation(f"{a.text} {how}", [*a.scope, *scope])

    def unnested_beside(self) -> Relation:
        a = self.table()
        alias, item = self.name("z"), self.name("i")
        items = self.expression("INTEGER[]", a.scope, 1)
        made = f"unnest({items})"
        if self.chance(0.4):
            made = f"generate_series(1, {self.expression('INTEGER', a.scope, 0)})"
        kind = "INTEGER" if made.startswith("unnest") else "BIGINT"
        return Relation(
            f"{a.text} CROSS JOIN LATERAL {made} AS {alias}({item})",
            [*a.scope, (f"CAST({alias}.{item} AS {kind})", kind)],
        )

    def pairing(self, one: Scope, two: Scope, nulls: bool = True) -> str:
        kinds = sorted(k for k in {k for _, k in one} & {k for _, k in two} if KINDS[k].compares)
        kind = self.rng.choice(kinds) if kinds else "INTEGER"
        a, b = self.expression(kind, one, 0), self.expression(kind, two, 0)
        return f"{a} {self.rng.choice(['=', '=', '=', 'IS NOT DISTINCT FROM'] if nulls else ['='])} {b}"

    # -- subqueries ------------------------------------------------------------------------

    def filtered(self, scope: Scope, depth: int) -> str:
        """A condition that may hold subqueries."""
        if depth <= 0 or self.chance(0.55):
            return self.condition(scope)
        one = self.asked(scope, depth)
        if self.chance(0.25):
            other = self.asked(scope, depth) if self.chance(0.4) else self.condition(scope, 1)
            return f"({one} {self.rng.choice(['AND', 'OR'])} {other})"
        return f"(NOT {one})" if self.chance(0.1) else one

    def asked(self, scope: Scope, depth: int) -> str:
        """EXISTS, IN, ANY, ALL, or a comparison with a scalar subquery."""
        rng = self.rng
        inner = self.relation(depth - 1)
        both = [*scope, *inner.scope]
        where = self.condition(both, 1) if self.chance(0.5) else self.condition(inner.scope, 1)
        if self.chance(0.5):  # paired, as most are
            where = f"{self.pairing(scope, inner.scope)} AND {where}"
        if depth > 1 and self.chance(0.2):
            where = f"{where} AND {self.asked(both, depth - 2)}"
        sub = f"FROM {inner.text}" + ("" if self.chance(0.1) else f" WHERE {where}")
        found = [f"EXISTS (SELECT 1 {sub})", f"NOT EXISTS (SELECT 1 {sub})"]
        found += [f"({self.expression('BIGINT', scope, 1)} < (SELECT count(*) {sub}))"]
        held = [(t, k) for t, k in inner.scope if KINDS[k].compares]
        if held:
            theirs, kind = rng.choice(held)
            ours = self.expression(kind, scope, 1)
            found += [f"({ours} IN (SELECT {theirs} {sub}))", f"({ours} NOT IN (SELECT {theirs} {sub}))"] * 2
            if "[" not in kind and "(p" not in kind:
                how = rng.choice(["=", "<>", "<", ">=", ">", "<="])
                found += [f"({ours} {how} {rng.choice(['ANY', 'ALL'])} (SELECT {theirs} {sub}))"]
            if "[" not in kind and kind not in ("BOOLEAN", "UUID", "JSON", "BLOB"):
                how = rng.choice(["=", "<>", "<", ">=", ">", "<="])
                found += [f"({ours} {how} (SELECT {rng.choice(['min', 'max'])}({theirs}) {sub}))"]
            more = [(t, k) for t, k in held if t != theirs]
            if more and not self.shared:
                second, other = rng.choice(more)
                pair = f"({ours}, {self.expression(other, scope, 0)})"
                found += [f"({pair} {rng.choice(['IN', 'NOT IN'])} (SELECT {theirs}, {second} {sub}))"]
        return rng.choice(found)

    def scalar(self, scope: Scope, depth: int) -> tuple[str, str]:
        """A subquery that gives one value, and its kind."""
        inner = self.relation(depth - 1)
        where = (
            self.pairing(scope, inner.scope)
            if self.chance(0.7)
            else self.condition([*scope, *inner.scope], 1)
        )
        number = self.expression("INTEGER", inner.scope, 0)
        text = self.expression("VARCHAR", inner.scope, 0)
        found, kind = self.rng.choice([
            ("count(*)", "BIGINT"), (f"CAST(sum({number}) AS BIGINT)", "BIGINT"), (f"max({text})", "VARCHAR"),
            (f"string_agg({text}, '+' ORDER BY {text})", "VARCHAR"), (f"min({number})", "INTEGER"),
            (f"array_agg({number} ORDER BY {number} NULLS FIRST)", "INTEGER[]"), (f"count(DISTINCT {text})", "BIGINT"),
        ])  # fmt: skip
        return f"(SELECT {found} FROM {inner.text} WHERE {where})", kind
