"""OVER, over rows that tie.

Which of two peers comes first is chance, so a call has one answer only if that does not matter.  There are three
ways: the call sees nothing but whole groups of peers (*by value*); the query shows and reads nothing of the rows
but what they are partitioned and ordered by, so that peers are equal rows (*narrow*); or the order is by all
columns.  Of calls that tell equal rows apart a query has one: which value of one meets which of another is chance.
"""

from __future__ import annotations

from tests.sql.fuzz.expressions import Scope
from tests.sql.fuzz.kinds import KINDS, WHOLE
from tests.sql.fuzz.lookups import Lookups
from tests.sql.fuzz.relations import Kinds, Relation

NO_EXTREMES = (
    "BOOLEAN",
    "UUID",
    "BLOB",
    "JSON",
)  # PostgreSQL has no min() of these, DuckDB knows no order of others
EDGES = (
    "UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING",
)  # fmt: skip
EXCLUDES = ("", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS")
STEPS = {  # by what a RANGE of a column may reach
    **dict.fromkeys((*WHOLE, "DECIMAL(10,2)"), ("1", "2", "0")),
    "DECIMAL(30,4)": ("0.5", "1.25", "0"),
    **dict.fromkeys(("DATE", "TIMESTAMP"), ("INTERVAL '1 day'", "INTERVAL '3 hours'")),
}
Call = tuple[str, str]  # with its window, and its kind


class Windows(Lookups):
    def orderly(self, kinds: Kinds) -> bool:
        return all(KINDS[k].compares for _, k in kinds)

    def order(self, kinds: Kinds) -> str:
        """By all columns, so that nothing is left to chance."""
        shuffled = self.rng.sample(kinds, len(kinds))
        return ", ".join(f"{name} {self.direction()}" for name, _ in shuffled)

    def direction(self) -> str:
        return f"{self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}"

    # -- queries ---------------------------------------------------------------------------

    def windowed(self, source: Relation, where: str) -> tuple[str, Kinds]:
        rng = self.rng
        columns = [(t, self.name("w"), k) for t, k in source.scope if KINDS[k].compares]
        if not columns:
            columns = [(self.constant("INTEGER"), self.name("w"), "INTEGER")]
        inner = ", ".join(f"{t} AS {n}" for t, n, _ in columns)
        scope = [(n, k) for _, n, k in columns]
        alias, named = self.name("q"), list[str]()  # windows apart from their calls
        kinds, calls = self.narrow(scope) if self.chance(0.4) else self.wide(scope)
        listed = [n for n, _ in kinds]
        for call, out in calls:
            if self.chance(0.15) and "spread(" not in call:
                call, _, window = call.rpartition(" OVER ")
                named.append(f"{(called := self.name('win'))} AS {window}")
                call = f"{call} OVER {called}"
            listed.append(f"CAST({call} AS {out}) AS {(name := self.name('v'))}")
            kinds = [*kinds, (name, out)]
        body = f"SELECT {', '.join(listed)} FROM (SELECT {inner} FROM {source.text}{where}) AS {alias}"
        body += f" WINDOW {', '.join(named)}" if named else ""
        numbers = [n for n, k in kinds[-len(calls) :] if k == "BIGINT"]
        if numbers and self.chance(0.5):
            asked = f"{numbers[0]} {rng.choice(['<=', '=', '<', '>'])} {rng.randint(1, 3)}"
            if self.shared or self.chance(0.5):
                return f"SELECT * FROM ({body}) AS {self.name('q')} WHERE {asked}", kinds
            return f"{body} QUALIFY {asked}", kinds
        return body, kinds

    def wide(self, scope: Scope) -> tuple[Kinds, list[Call]]:
        """Whole rows, with calls by value; one of them may be by place, in the order of all columns."""
        calls = []
        for number in range(self.rng.choice([1, 1, 2])):
            part, by = (
                self.partition(scope),
                self.rng.sample(list(scope), self.rng.randint(1, min(2, len(scope)))),
            )
            if number == 0 and self.chance(0.3):
                calls.append(self.by_place(scope, part, self.rng.sample(list(scope), len(scope))))
            else:
                calls.append(self.by_value(scope, part, by))
        return list(scope), calls

    def narrow(self, scope: Scope) -> tuple[Kinds, list[Call]]:
        """Of the rows only what they are ordered and partitioned by: one call of any kind."""
        shown = self.rng.sample(list(scope), self.rng.randint(1, min(3, len(scope))))
        by = self.rng.sample(shown, self.rng.randint(1, len(shown)))
        rest = [c for c in shown if c not in by]
        part = f"PARTITION BY {', '.join(n for n, _ in rest)} " if rest else ""
        return shown, [self.by_place(shown, part, by)]

    def partition(self, scope: Scope) -> str:
        some = self.rng.sample(list(scope), self.rng.randint(1, min(2, len(scope))))
        return f"PARTITION BY {', '.join(n for n, _ in some)} " if self.chance(0.6) else ""

    # -- calls -----------------------------------------------------------------------------

    def by_value(self, scope: Scope, part: str, by: Kinds) -> Call:
        """A call that gives the same whichever of two peers comes first."""
        rng = self.rng
        (some, kind), number = rng.choice(by), self.expression("INTEGER", scope, 0)
        order = f"ORDER BY {', '.join(f'{n} {self.direction()}' for n, _ in by)}"
        over = f"OVER ({part}{order} {self.frame(rng.choice(['', 'RANGE', 'GROUPS', 'GROUPS']), by)})"
        if self.chance(0.1):
            over = f"OVER ({part.strip()})"
            some, kind = number, "INTEGER"
            return rng.choice([(f"sum({number}) {over}", "BIGINT"), (f"count(*) {over}", "BIGINT")])
        found = [*self.values(some, kind, over), *self.values(some, kind, over), *self.totals(scope, over)]
        ranked = f"OVER ({part}{order})"
        found += [(f"rank() {ranked}", "BIGINT"), (f"dense_rank() {ranked}", "BIGINT")]
        if not self.shared:
            found += [(f"cume_dist() {ranked}", "DOUBLE"), (f"percent_rank() {ranked}", "DOUBLE")]
            found += [(f"list_sort(list({number}) {over})", "INTEGER[]")] if " OVER" not in over[5:] else []
        return rng.choice(found)

    def by_place(self, scope: Scope, part: str, by: Kinds) -> Call:
        """Any call; rows that tie are equal."""
        rng = self.rng
        (some, kind), number = rng.choice(list(scope)), self.expression("INTEGER", scope, 0)
        order = f"ORDER BY {', '.join(f'{n} {self.direction()}' for n, _ in by)}"
        placed = f"OVER ({part}{order})"
        over = f"OVER ({part}{order} {self.frame(rng.choice(['', 'ROWS', 'ROWS', 'RANGE', 'GROUPS']), by)})"
        found = [
            (f"row_number() {placed}", "BIGINT"), (f"ntile(2) {placed}", "BIGINT"),
            (f"lag({some}) {placed}", kind), (f"lead({some}, 2) {placed}", kind),
            (f"lag({some}, 1, {self.constant(kind)}) {placed}", kind),
            *self.values(some, kind, over), *self.values(some, kind, over), *self.totals(scope, over),
        ]  # fmt: skip
        if not self.shared:
            found += [
                (f"list({number}) {over}", "INTEGER[]"),
                (f"spread({number}) {over}", "INTEGER"),
                (f"lag({some} IGNORE NULLS) {placed}", kind),
            ]
        return rng.choice(found)

    def values(self, some: str, kind: str, over: str) -> list[Call]:
        found = [f"first_value({some}) {over}", f"last_value({some}) {over}", f"nth_value({some}, 2) {over}"]
        if not self.shared:
            found += [
                f"last_value({some} IGNORE NULLS) {over}",
                f"first_value({some} IGNORE NULLS) {over}",
                f"nth_value({some}, 2 IGNORE NULLS) {over}",
            ]
        return [(call, kind) for call in found]

    def totals(self, scope: Scope, over: str) -> list[Call]:
        """Aggregates for which the order of rows does not matter."""
        some, kind = self.rng.choice(list(scope))
        number = self.expression("INTEGER", scope, 0)
        found = [
            (f"sum({number}) {over}", "BIGINT"), (f"count({some}) {over}", "BIGINT"), (f"count(*) {over}", "BIGINT"),
            (f"count(*) FILTER (WHERE {self.condition(scope, 1)}) {over}", "BIGINT"),
        ]  # fmt: skip
        if kind not in NO_EXTREMES and "[" not in kind:
            found += [(f"min({some}) {over}", kind), (f"max({some}) {over}", kind)]
        if not self.shared:
            found += [
                (f"avg({number}) {over}", "DOUBLE"),
                (f"count(DISTINCT {number}) {over}", "BIGINT"),
                (f"median({number}) {over}", "DOUBLE"),
            ]
        return found

    def frame(self, unit: str, by: Kinds) -> str:
        """A frame of a unit, or none; a RANGE reaches by a distance where the one column it is ordered by has any."""
        if not unit:
            return ""
        while (edges := sorted(self.rng.choices(range(len(EDGES)), k=2)))[0] == 6 or edges[1] == 0:
            pass
        start, end = (EDGES[n] for n in edges)
        if unit == "RANGE":
            steps = STEPS.get(by[0][1], ()) if len(by) == 1 else ()
            start, end = (self.reaching(edge, steps, n == 0) for n, edge in enumerate((start, end)))
            if start.endswith("FOLLOWING") and end == "CURRENT ROW":
                end = "UNBOUNDED FOLLOWING"
        exclude = self.rng.choice(EXCLUDES)
        if end == "CURRENT ROW" and self.chance(0.2):
            return f"{unit} {start}{exclude}"
        return f"{unit} BETWEEN {start} AND {end}{exclude}"

    def reaching(self, edge: str, steps: tuple[str, ...], is_start: bool) -> str:
        if not edge[0].isdigit():
            return edge
        if not steps:
            ahead = edge.endswith("PRECEDING") == is_start
            return ("UNBOUNDED PRECEDING" if is_start else "UNBOUNDED FOLLOWING") if ahead else "CURRENT ROW"
        return f"{self.rng.choice(steps)} {edge.split()[1]}"
