"""The same tables twice: in a pond, with queries over them as views, and in DuckDB, which asks them again."""

from __future__ import annotations

import collections
import datetime
import decimal
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import millpond
from millpond.flow.stream import Stream
from millpond.sql.binding.bind import Binder
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.query import lower_query
from millpond.sql.lowering.relation import Relation

Rows = collections.Counter[tuple[Any, ...]]


class World:
    """Tables by name: columns with their SQL types, and which of them are the key."""

    def __init__(
        self, path: Path, tables: Mapping[str, tuple[Mapping[str, str], str | Sequence[str]]], **pond: Any
    ) -> None:
        self.con = duckdb.connect()
        self.con.execute("set timezone = 'UTC'")
        self.binder = Binder()
        self.path, self.settings = path, {"engine": "inline", "checks": True, **pond}
        self.pond = millpond.open(path, **self.settings)
        self.twin_pond: millpond.Pond | None = None
        self.relations: dict[str, Relation] = {}
        self.keys: dict[str, list[str]] = {}
        self.queries: dict[str, str] = {}
        self.columns: dict[str, tuple[StepColumn, ...]] = {}
        for name, (columns, key) in tables.items():
            self.con.execute(f"create table {name} ({', '.join(f'{c} {k}' for c, k in columns.items())})")
            schema = self.con.sql(f"select * from {name}").to_arrow_table().schema
            step = self.pond.table(name, schema, key=key).step
            self.relations[name] = Relation(step, tuple(StepColumn(c, k) for c, k in columns.items()))
            self.binder.table(name, self.relations[name].columns)
            self.keys[name] = [key] if isinstance(key, str) else list(key)

    def view(self, name: str, query: str, batch: str | None = None, **options: Any) -> Relation:
        """A query as a view; `batch` is what it is compared with, when DuckDB cannot run it as it is."""
        found = lower_query(self.pond._builder, self.binder, self.relations, name, query, **options)
        Stream(self.pond._builder, found.step).view(name)
        self.queries[name] = batch or query
        self.columns[name] = found.columns
        return found

    def twin(self, path: Path) -> None:
        """A fork of the pond as it is: it gets the same changes, is shaken in the pond's place, and checked as well."""
        self.pond.fork(path)
        self.twin_path, self.twin_pond = path, millpond.open(path, **self.settings)

    @property
    def ponds(self) -> list[millpond.Pond]:
        return [self.pond, *([self.twin_pond] if self.twin_pond is not None else [])]

    def put(self, table: str, rows: pa.Table) -> None:
        """Insert rows; those of an old key take its place."""
        if rows.num_rows:
            for pond in self.ponds:
                pond.insert(table, rows)
            self._without(table, rows)
            self.con.execute(f"insert into {table} select * from fresh")

    def take(self, table: str, rows: pa.Table) -> None:
        if rows.num_rows:
            for pond in self.ponds:
                pond.delete(table, rows)
            self._without(table, rows)

    def _without(self, table: str, rows: pa.Table) -> None:
        self.con.register("fresh", rows)
        same = " and ".join(f"fresh.{k} = {table}.{k}" for k in self.keys[table])
        self.con.execute(f"delete from {table} where exists (select 1 from fresh where {same})")

    def shake(self, rng: random.Random) -> None:
        """What may happen between two epochs and must not be seen: restarts, compactions, another parallelism."""
        pond = self.pond if self.twin_pond is None else self.twin_pond
        if rng.random() < 0.5:
            pond.compact()
        parallelism = rng.randint(1, 7)
        if rng.random() < 0.5:
            pond.rescale(parallelism)
            return
        pond.close()
        settings = {**self.settings, "parallelism": parallelism}
        if self.twin_pond is None:
            self.pond = millpond.open(self.path, **settings)
        else:
            self.twin_pond = millpond.open(self.twin_path, **settings)

    def check(self, context: str = "") -> None:
        """Every view is the batch query over the tables as they are (law 1)."""
        for pond in self.ponds:
            pond.drain()
        for name, query in self.queries.items():
            wanted = self.batch(query)
            for pond in self.ponds:
                given = self.rows(name, pond)
                if given != wanted:
                    which = "the shaken one's " if pond is self.twin_pond else ""
                    raise AssertionError(
                        f"{context} {which}{name}: {query}\nmissing: {list((wanted - given).items())[:5]}\n"
                        f"too many: {list((given - wanted).items())[:5]}\n"
                        f"errors: {pond.errors().to_pylist()[:3]}"
                    )

    def rows(self, name: str, pond: millpond.Pond | None = None) -> Rows:
        """The rows of a view, in its logical types."""
        self.con.register("given", (pond or self.pond).read(name))
        listed = ", ".join(c.sql for c in self.columns[name])
        return self.batch(f"select {listed} from given")

    def batch(self, query: str) -> Rows:
        """What DuckDB answers; instants with a zone as text, for their Python values need a library more."""
        kinds = [str(k) for k in self.con.sql(query).types]
        listed = (f"#{n}::VARCHAR" if "TIME ZONE" in k else f"#{n}" for n, k in enumerate(kinds, 1))
        return plain(self.con.execute(f"select {', '.join(listed)} from ({query})").fetchall())

    def close(self) -> None:
        for pond in self.ponds:
            pond.close()
        self.con.close()


def in_types_of(con: duckdb.DuckDBPyConnection, query: str, given: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a view in the types of DuckDB's query: an average of integers is a numeric here, a DOUBLE there."""
    kinds = con.sql(query).types
    con.register("given", given)
    return con.execute(
        f"select {', '.join(f'#{n}::{k}' for n, k in enumerate(kinds, 1))} from given"
    ).fetchall()


def plain(rows: Any) -> Rows:
    """Rows as a multiset of values that compare: floats to ten digits, all else exactly."""
    return collections.Counter(tuple(_plain(v) for v in row) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.10g}") + 0.0
    if isinstance(value, int | decimal.Decimal):
        return decimal.Decimal(value).normalize()
    if isinstance(value, Mapping) and set(value) == {f"element{n}" for n in range(1, len(value) + 1)}:
        return tuple(_plain(v) for v in value.values())  # a tuple has no names
    if isinstance(value, Mapping):
        return tuple((_plain(k), _plain(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, bytes | datetime.date | datetime.time | datetime.timedelta):
        return value
    return str(value)
