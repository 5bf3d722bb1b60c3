"""WITH RECURSIVE over the edges id → k of a table: what is reached, in how many steps, along how many ways."""

from __future__ import annotations

from tests.sql.fuzz.relations import Relation
from tests.sql.fuzz.time_windows import TimeWindows


class Recursions(TimeWindows):
    def relation(self, depth: int) -> Relation:
        share = 0.07 if depth > 0 and self._edges() and not self.only_streams else 0.0
        return self.recursive() if self.chance(share) else super().relation(depth)

    def _edges(self) -> list[str]:
        return [n for n, columns in self.tables.items() if columns.get("id") == columns.get("k") == "INTEGER"]

    def recursive(self) -> Relation:
        """With UNION it ends by itself; with UNION ALL, or where it counts, by a bound."""
        first, then = (self.table(self.rng.choice(self._edges())) for _ in range(2))
        name, alias = self.name("r"), self.name("q")
        counts = self.chance(0.5)
        union = self.rng.choice(["UNION", "UNION ALL"]) if counts else "UNION"
        begun = f"SELECT {first.alias}.id, {first.alias}.k{', 1' if counts else ''} FROM {first.text}"
        if self.chance(0.5):
            begun += f" WHERE {self.condition(first.scope, 1)}"
        ahead = self.chance(0.7)  # else backwards: those from whom it is reached
        step = f"{then.alias}.id = {name}.b" if ahead else f"{then.alias}.k = {name}.a"
        ends = f"{name}.a, {then.alias}.k" if ahead else f"{then.alias}.id, {name}.b"
        goes = f"SELECT {ends}{f', {name}.n + 1' if counts else ''} FROM {name} JOIN {then.text} ON {step}"
        asked = [f"{name}.n < {self.rng.randint(2, 4)}"] if counts else []
        asked += [
            self.condition([(f"{name}.a", "INTEGER"), (f"{name}.b", "INTEGER"), *then.scope], 1)
        ] * self.chance(0.3)
        if asked:
            goes += f" WHERE {' AND '.join(asked)}"
        columns = ["a", "b", *["n"] * counts]
        text = f"WITH RECURSIVE {name}({', '.join(columns)}) AS ({begun} {union} {goes}) SELECT * FROM {name}"
        return Relation(f"({text}) AS {alias}", [(f"{alias}.{c}", "INTEGER") for c in columns])
