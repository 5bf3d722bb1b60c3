"""TUMBLE, HOP and SESSION in FROM, over tables that change and over streams with a watermark; now() in conditions."""

from __future__ import annotations

from collections.abc import Mapping

from tests.sql.fuzz.expressions import Scope
from tests.sql.fuzz.relations import Relation, Relations

TIMES = ("TIMESTAMP", "TIMESTAMPTZ")  # what now() is compared with


class TimeWindows(Relations):
    only_streams = False  # while a query is written that shows windows when they are over

    def relation(self, depth: int) -> Relation:
        if self.streams and not self.only_streams and self.chance(0.08):
            return self.near_in_time()
        share = 0.5 if self.only_streams else 0.12
        return self.in_windows() if self._timed() and self.chance(share) else super().relation(depth)

    def _timed(self) -> list[tuple[str, str]]:
        """(table, column) that windows can be made of."""
        return [
            (name, column)
            for name, columns in self.tables.items()
            for column, kind in columns.items()
            if kind == "TIMESTAMP"
            and ((name in self.streams and column == "ts") if self.only_streams else column.isidentifier())
        ]

    def in_windows(self) -> Relation:
        table, time = self.rng.choice(self._timed())
        alias, columns = self.name("x"), self.tables[table]
        if self.chance(0.35):
            table, time, columns = self._queried(table, time)
        size = f"INTERVAL '{self.rng.choice([1, 2, 6])} hours'"
        kind = self.rng.choice(["TUMBLE", "TUMBLE", "HOP", "SESSION"])
        if kind == "HOP":
            slide, length = self.rng.choice([(1, 2), (2, 4), (3, 3), (2, 6), (1, 12)])
            call = f"HOP({table}, {time}, INTERVAL '{slide} hours', INTERVAL '{length} hours')"
        elif kind == "SESSION":
            keys = [c for c, k in columns.items() if k in ("INTEGER", "VARCHAR") and c != "id"]
            key = f", {self.rng.choice(keys)}" if keys and self.chance(0.8) else ""
            call = f"SESSION({table}, {time}, {size}{key})"
        else:
            call = f"TUMBLE({table}, {time}, {size})"
        own = {**columns, "window_start": "TIMESTAMP", "window_end": "TIMESTAMP"}
        return Relation(f"{call} AS {alias}", [(f"{alias}.{c}", k) for c, k in own.items()])

    def _queried(self, table: str, time: str) -> tuple[str, str, Mapping[str, str]]:
        """A query in parentheses, its column with a time, and all of them."""
        if not self.only_streams and self.chance(0.6):
            text, kinds = self.select(self.rng.choice([0, 0, 1]))
            times = [n for n, k in kinds if k == "TIMESTAMP"]
            if times:
                return f"({text})", self.rng.choice(times), dict(kinds)
        rows, moment = self.table(table), self.name("o")
        texts, kinds = self.picked(rows.scope)
        where = f" WHERE {self.condition(rows.scope, 1)}" if self.chance(0.5) else ""
        listed = ", ".join([f"{rows.alias}.{time} AS {moment}", *texts])
        return f"(SELECT {listed} FROM {rows.text}{where})", moment, {moment: "TIMESTAMP", **dict(kinds)}

    def windows_joined(self) -> Relation:
        """Windows with others that end with them."""
        a, b = self.in_windows(), self.in_windows()
        ends = [next(t for t, _ in r.scope if t.endswith(".window_end")) for r in (a, b)]
        on = f"{ends[0]} = {ends[1]}"
        if self.chance(0.7):
            on += f" AND {self.pairing(a.scope, b.scope)}"
        kind = self.rng.choice(["JOIN", "JOIN", "LEFT JOIN", "FULL JOIN"])
        return Relation(f"{a.text} {kind} {b.text} ON {on}", [*a.scope, *b.scope])

    def near_in_time(self) -> Relation:
        """Rows of streams with others not far from them: state that a watermark ends."""
        a, b = (self.table(self.rng.choice(sorted(self.streams))) for _ in range(2))
        before, after = (f"INTERVAL '{self.rng.choice([1, 2, 4])} hours'" for _ in range(2))
        one, other = f"{a.alias}.ts", f"{b.alias}.ts"
        on = self.rng.choice([
            f"{one} BETWEEN {other} - {before} AND {other} + {after}",
            f"{other} >= {one} AND {other} < {one} + {after}",
            f"{one} = {other}", f"{one} > {other} - {before}",
        ])  # fmt: skip
        on += f" AND {self.pairing(a.scope, b.scope)}" if self.chance(0.8) else ""
        on += f" AND {self.condition([*a.scope, *b.scope], 1)}" if self.chance(0.3) else ""
        both = [*a.scope, *b.scope]
        if self.chance(0.3):
            word = self.rng.choice(["EXISTS", "NOT EXISTS"])
            alias, columns = self.name("j"), [(t, self.name("f"), k) for t, k in a.scope]
            listed = ", ".join(f"{t} AS {n}" for t, n, _ in columns)
            inner = f"SELECT {listed} FROM {a.text} WHERE {word} (SELECT 1 FROM {b.text} WHERE {on})"
            return Relation(f"({inner}) AS {alias}", [(f"{alias}.{n}", k) for _, n, k in columns])
        return Relation(f"{a.text} {self.rng.choice(['JOIN', 'JOIN', 'LEFT JOIN'])} {b.text} ON {on}", both)

    def lately(self, scope: Scope) -> str | None:
        """A condition on now(), if the scope has times."""
        times = [t for t, k in scope if k in TIMES]
        if not times or self.only_streams:
            return None
        one, hours = self.rng.choice(times), self.rng.choice([1, 2, 5])
        length = f"INTERVAL '{hours} hours'"
        return self.rng.choice([
            f"{one} > now() - {length}", f"{one} <= now()", f"{one} BETWEEN now() - {length} AND now() + {length}",
            f"{one} + {length} >= now()", f"{one} < now() + {length}", f"({one} IS NULL OR {one} > now())",
            f"date_trunc('hour', {one}) = date_trunc('hour', now())" if one and not self.shared else f"{one} >= now()",
        ])  # fmt: skip
