"""Whole queries: clauses within clauses, each with one answer: where order matters, all columns break the ties."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.fuzz.expressions import Scope
from tests.sql.fuzz.kinds import KINDS, NUMBERS, WHOLE
from tests.sql.fuzz.relations import Kinds, Relation
from tests.sql.fuzz.windows import NO_EXTREMES, Windows

SUMMED = {"INTEGER": "BIGINT", "BIGINT": "BIGINT", "SMALLINT": "BIGINT", "HUGEINT": "HUGEINT"}


class Queries(Windows):
    def query(self) -> tuple[str, Kinds]:
        return self.select(self.rng.choice([0, 1, 1, 1, 2, 2, 3]))

    def select(self, depth: int) -> tuple[str, Kinds]:
        if depth > 0 and self.chance(0.12):
            return self.set_operation(depth)
        if depth > 0 and self.chance(0.08):
            return self.common(depth)
        return self.shaped(self.relation(depth), depth)

    def closing(self) -> tuple[str, Kinds]:
        """A query over windows of streams, for a view that shows them when they are over."""
        self.only_streams = True
        if self.chance(0.12):
            found = self.set_operation(1, self.in_windows)
            self.only_streams = False
            return found
        source = self.windows_joined() if self.chance(0.3) else self.in_windows()
        text, kinds = self.shaped(source, self.rng.choice([0, 0, 1]))
        self.only_streams = False
        return text, kinds

    def shaped(self, source: Relation, depth: int) -> tuple[str, Kinds]:
        asked = [self.filtered(source.scope, depth)] if self.chance(0.6) else []
        if (lately := self.lately(source.scope)) is not None and self.chance(0.12):
            asked.append(lately)
        where = f" WHERE {' AND '.join(asked)}" if asked else ""
        shape = self.rng.random()
        if shape < 0.35:
            return self.grouped(source, where, depth)
        if shape < 0.53:
            return self.windowed(source, where)
        if shape < 0.58:
            return self.unnested(source, where)
        if shape < 0.65:
            return self.first_of_each(source, where)
        picked, kinds = self.picked(source.scope)
        if self.chance(0.25) and depth > 0:
            name = self.name("s")
            text, kind = self.scalar(source.scope, depth)
            picked.append(f"{text} AS {name}")
            kinds.append((name, kind))
        if self.chance(0.1) and depth > 0:
            name = self.name("s")
            picked.append(f"{self.asked(source.scope, depth)} AS {name}")
            kinds.append((name, "BOOLEAN"))
        word = "DISTINCT " if self.chance(0.2) and self.orderly(kinds) else ""
        return self.limited(f"SELECT {word}{', '.join(picked)} FROM {source.text}{where}", kinds)

    # -- order ---------------------------------------------------------------------------

    def limited(self, text: str, kinds: Kinds) -> tuple[str, Kinds]:
        if not self.chance(0.15) or not self.orderly(kinds):
            return text, kinds
        if self.shared and self.chance(0.25):  # DuckDB cannot read it, PostgreSQL can
            by = ", ".join(
                f"{n} {self.direction()}"
                for n, _ in self.rng.sample(kinds, self.rng.randint(1, min(2, len(kinds))))
            )
            tied = f"ORDER BY {by} FETCH FIRST {self.rng.randint(1, 3)} ROWS WITH TIES"
            return f"SELECT * FROM ({text}) AS {self.name('q')} {tied}", kinds
        offset = f" OFFSET {self.rng.randint(1, 2)}" if self.chance(0.3) else ""
        limit = f" LIMIT {self.rng.randint(0, 4)}" if not offset or self.chance(0.8) else ""
        alias = self.name("q")
        return f"SELECT * FROM ({text}) AS {alias} ORDER BY {self.order(kinds)}{limit}{offset}", kinds

    def first_of_each(self, source: Relation, where: str) -> tuple[str, Kinds]:
        """DISTINCT ON."""
        texts, kinds = self.picked(source.scope, compares=True)
        alias, (first, _) = self.name("q"), kinds[0]
        rest = f", {self.order(kinds[1:])}" if kinds[1:] else ""
        inner = f"SELECT {', '.join(texts)} FROM {source.text}{where}"
        return (
            f"SELECT DISTINCT ON ({first}) * FROM ({inner}) AS {alias} ORDER BY {first} {self.direction()}{rest}",
            kinds,
        )

    # -- aggregates ------------------------------------------------------------------------

    def aggregate(self, scope: Scope) -> tuple[str, str]:
        rng = self.rng
        kind = self.kind_of(scope, compares=True)
        one = self.expression(kind, scope, 1)
        numbers = [k for k in (NUMBERS if not self.shared else (*WHOLE, "DECIMAL(10,2)", "DECIMAL(30,4)"))]
        number = rng.choice([k for _, k in scope if k in numbers] or numbers)
        n = self.expression(number, scope, 1)
        text, whole = self.expression("VARCHAR", scope, 0), self.expression("INTEGER", scope, 0)
        apart = "DISTINCT " if self.chance(0.25) else ""
        found = [
            ("count(*)", "BIGINT"), (f"count({apart}{one})", "BIGINT"), (f"sum({apart}{n})", SUMMED.get(number, number)),
            (f"bool_or({self.condition(scope, 1)})", "BOOLEAN"), (f"bool_and({self.condition(scope, 1)})", "BOOLEAN"),
            (f"string_agg({apart}{text}, ',' ORDER BY {text})", "VARCHAR"), (f"bit_xor({whole})", "INTEGER"),
            (f"array_agg({whole} ORDER BY {whole} DESC NULLS LAST)", "INTEGER[]"),
            (f"array_agg(DISTINCT {whole} ORDER BY {whole} NULLS FIRST)", "INTEGER[]"),
            (f"mode() WITHIN GROUP (ORDER BY {whole})", "INTEGER"), (f"bit_or({whole})", "INTEGER"),
            (f"percentile_disc(0.5) WITHIN GROUP (ORDER BY {whole})", "INTEGER"),
            (f"string_agg({text}, '' ORDER BY {whole} DESC NULLS LAST, {text})", "VARCHAR"),
        ]  # fmt: skip
        if kind not in NO_EXTREMES and not (self.shared and "[" in kind):
            found += [(f"min({one})", kind), (f"max({one})", kind)]
        if not self.shared:
            found += [
                (f"avg({apart}{n})", "DOUBLE"), (f"median({n})", "DOUBLE"), (f"var_pop({n})", "DOUBLE"),
                (f"quantile_disc({whole}, 0.25)", "INTEGER"), (f"first({text} ORDER BY {text} DESC)", "VARCHAR"),
                (f"last({whole} ORDER BY {whole} NULLS FIRST)", "INTEGER"), (f"count_if({self.condition(scope, 1)})", "BIGINT"),
                (f"stddev_samp({whole})", "DOUBLE"), (f"approx_count_distinct({text})", "BIGINT"),
                (f"max({whole}, 2)", "INTEGER[]"), (f"arg_max({text}, {text})", "VARCHAR"), (f"product({whole})", "DOUBLE"),
                (f"mode({text} ORDER BY {text})", "VARCHAR"), (f"count(DISTINCT ({whole}, {text}))", "BIGINT"),
                (f"spread({apart}{whole})", "INTEGER"), (f"total({apart}{whole})", "BIGINT"), (f"total({whole})", "BIGINT"),
                (f"chain({text} ORDER BY {text})", "VARCHAR"), (f"covar_pop({whole}, {whole} % 3)", "DOUBLE"),
                (f"list({one} ORDER BY {one} NULLS FIRST)[1]", kind), (f"min({text}, 2)::VARCHAR", "VARCHAR"),
                (f"round(corr({whole}, {whole} % 2), 6)", "DOUBLE"), (f"histogram({text})::VARCHAR", "VARCHAR"),
            ]  # fmt: skip
        call, out = rng.choice(found)
        if self.chance(0.2) and not call.endswith(("::VARCHAR", "[1]")):
            call += f" FILTER (WHERE {self.condition(scope, 1)})"
        return f"CAST({call} AS {out})", out

    def grouped(self, source: Relation, where: str, depth: int) -> tuple[str, Kinds]:
        rng = self.rng
        keys = [(self.expression(kind := self.kind_of(source.scope, True), source.scope, 1), self.name("g"), kind)
                for _ in range(rng.choice([0, 1, 1, 2, 2]))]  # fmt: skip
        if keys and self.chance(0.3):
            return self.grouping_sets(source, where, keys)
        calls = [(*self.aggregate(source.scope), self.name("a")) for _ in range(rng.randint(1, 3))]
        kinds = [(n, k) for _, n, k in keys] + [(n, k) for _, k, n in calls]
        listed = [f"{t} AS {n}" for t, n, _ in keys] + [f"{t} AS {n}" for t, _, n in calls]
        by = f" GROUP BY {', '.join(str(n) for n in range(1, len(keys) + 1))}" if keys else ""
        having = self.having(source.scope)
        if depth > 0 and self.chance(0.12):
            asked = f"(SELECT count(*) FROM {self.relation(depth - 1).text})"
            having = f" HAVING count(*) {rng.choice(['<', '>=', '<>'])} {asked}"
        shape = rng.random() if keys else 1.0
        if shape < 0.15 and not self.shared:
            by = " GROUP BY ALL"
        elif shape < 0.35:
            name = self.name("v")
            listed.append(f"{self.over_groups([(t, k) for t, _, k in keys], calls)} AS {name}")
            kinds.append((name, "BIGINT"))
        return self.limited(f"SELECT {', '.join(listed)} FROM {source.text}{where}{by}{having}", kinds)

    def over_groups(self, keys: Kinds, calls: list[tuple[str, str, str]]) -> str:
        """A window over the groups of the same query, by what orders each place among them."""
        totals = [t for t, k, _ in calls if KINDS[k].compares and k != "DOUBLE"] or ["count(*)"]
        some = self.rng.choice([*totals, "count(*)"])
        whole = ", ".join(f"{t} {self.direction()}" for t, _ in keys)
        part = f"PARTITION BY {self.rng.choice(keys)[0]} " if len(keys) > 1 and self.chance(0.5) else ""
        return self.rng.choice([
            f"rank() OVER ({part}ORDER BY {some} {self.direction()})", f"row_number() OVER ({part}ORDER BY {whole})",
            f"CAST(sum(count(*)) OVER ({part.strip()}) AS BIGINT)", f"count(*) OVER ({part}ORDER BY count(*) {self.direction()})",
            f"CAST(sum(count(*)) OVER ({part}ORDER BY {whole} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS BIGINT)",
        ])  # fmt: skip

    def having(self, scope: Scope) -> str:
        if not self.chance(0.25):
            return ""
        call, kind = self.aggregate(scope)
        if not KINDS[kind].compares or self.chance(0.5):
            return f" HAVING count(*) > {self.rng.randint(0, 2)}"
        return f" HAVING {call} {self.rng.choice(['=', '<>', '<', '>='])} {self.constant(kind)}"

    def grouping_sets(
        self, source: Relation, where: str, keys: list[tuple[str, str, str]]
    ) -> tuple[str, Kinds]:
        columns = [(t, self.name("z"), k) for t, k in source.scope]
        scope = [(n, k) for _, n, k in columns]
        inner = ", ".join(f"{t} AS {n}" for t, n, _ in [*keys, *columns])
        named = [n for _, n, _ in keys]
        calls = [(*self.aggregate(scope), self.name("a")) for _ in range(self.rng.randint(1, 2))]
        kinds = [(n, k) for _, n, k in keys] + [(n, k) for _, k, n in calls]
        listed = [*named, *(f"{t} AS {n}" for t, _, n in calls)]
        if self.chance(0.4):
            listed.append(f"CAST(grouping({', '.join(named)}) AS INTEGER) AS {(mark := self.name('m'))}")
            kinds.append((mark, "INTEGER"))
        all_ = ", ".join(named)
        how = self.rng.choice(
            [f"ROLLUP ({all_})", f"CUBE ({all_})", f"GROUPING SETS (({all_}), ({named[0]}), ())"]
        )
        if len(named) > 1 and self.chance(0.3):
            how = f"{named[0]}, ROLLUP ({', '.join(named[1:])})"
        alias = self.name("q")
        text = f"SELECT {', '.join(listed)} FROM (SELECT {inner} FROM {source.text}{where}) AS {alias} GROUP BY {how}"
        return self.limited(text + self.having(scope), kinds)

    # -- the rest --------------------------------------------------------------------------

    def unnested(self, source: Relation, where: str) -> tuple[str, Kinds]:
        texts, kinds = self.picked(source.scope)
        name = self.name("e")
        items = self.expression("INTEGER[]", source.scope, 1)
        return f"SELECT {', '.join(texts)}, unnest({items}) AS {name} FROM {source.text}{where}", [
            *kinds,
            (name, "INTEGER"),
        ]

    def set_operation(self, depth: int, sources: Callable[[], Relation] | None = None) -> tuple[str, Kinds]:
        rng = self.rng
        kinds = [(self.name("u"), self.kind(compares=True)) for _ in range(rng.randint(1, 3))]
        sides = []
        for _ in range(rng.choice([2, 2, 3])):
            source = sources() if sources is not None else self.relation(depth - 1)
            listed = ", ".join(f"{self.expression(k, source.scope, 1)} AS {n}" for n, k in kinds)
            where = f" WHERE {self.condition(source.scope, 1)}" if self.chance(0.4) else ""
            sides.append(f"SELECT {listed} FROM {source.text}{where}")
        text = sides[0]
        for side in sides[1:]:
            word = rng.choice(["UNION", "INTERSECT", "EXCEPT"]) + rng.choice(["", " ALL"])
            text = f"({text}) {word} ({side})"
        return self.limited(text, kinds)

    def common(self, depth: int) -> tuple[str, Kinds]:
        """A common table expression that is read twice."""
        text, kinds = self.select(max(depth - 1, 0))
        name, a, b = self.name("cte"), self.name("x"), self.name("x")
        one = [(f"{a}.{n}", k) for n, k in kinds]
        two = [(f"{b}.{n}", k) for n, k in kinds]
        picked, out = self.picked([*one, *two])
        word = self.rng.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
        on = self.pairing(one, two)
        return (
            f"WITH {name} AS ({text}) SELECT {', '.join(picked)} FROM {name} AS {a} {word} {name} AS {b} ON {on}",
            out,
        )
