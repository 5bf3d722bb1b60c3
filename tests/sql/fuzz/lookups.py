"""Joins with what a table holds when a row comes, and functions that give rows, in FROM."""

from __future__ import annotations

from tests.sql.fuzz.dialect import AS_OF_NOW
from tests.sql.fuzz.recursion import Recursions
from tests.sql.fuzz.relations import Relation


class Lookups(Recursions):
    bases: frozenset[str] = frozenset()  # the tables, without the views

    def relation(self, depth: int) -> Relation:
        if not self.only_streams and self.streams and len(self.bases) > 1 and self.chance(0.1):
            return self.lookup()
        if not self.shared and not self.only_streams and self.keyed and self.chance(0.04):
            return self.as_of()
        if self.chance(0.04):
            return self.given_rows()
        return super().relation(depth)

    def lookup(self) -> Relation:
        """Rows of a stream with those of a table as of now."""
        one = self.rng.choice(sorted(self.streams))
        a, b = self.table(one), self.table(self.rng.choice(sorted(self.bases - {one})))
        kind = self.rng.choice(["JOIN", "LEFT JOIN"])
        on = self.pairing(a.scope, b.scope, nulls=False)
        if self.chance(0.4):
            on += f" AND {self.condition([*a.scope, *b.scope], 1)}"
        right = b.text.replace(" AS ", f" {AS_OF_NOW} AS ")
        return Relation(f"{a.text} {kind} {right} ON {on}", [*a.scope, *b.scope])

    def given_rows(self) -> Relation:
        """What a function makes of a row, beside it."""
        a = self.table()
        alias, number = self.name("z"), self.expression("INTEGER", a.scope, 1)
        made, columns = f"beside({number})", [(self.name("i"), "INTEGER")]
        if not self.shared and self.chance(0.6):
            made = f"pieces({self.expression('VARCHAR', a.scope, 1)}, {number})"
            columns = [(self.name("i"), "VARCHAR"), (self.name("i"), "INTEGER")]
        named = f"LATERAL {made} AS {alias}({', '.join(n for n, _ in columns)})"
        join = self.rng.choice([f"CROSS JOIN {named}", f"LEFT JOIN {named} ON TRUE"])
        return Relation(f"{a.text} {join}", [*a.scope, *((f"{alias}.{n}", k) for n, k in columns)])
