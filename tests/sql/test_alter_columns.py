"""Tables that gain, lose and rename columns: views go on, all of them are the batch query (laws 1, 2 and 6)."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.state.inbox import LOGIC
from tests.sampling import first
from tests.sql.asked import opened, refused, rows

WIDER = {"int": "bigint", "bigint": "decimal(30,4)"}
KINDS = {
    "key": "CREATE TABLE t (id int PRIMARY KEY, a int)",
    "bag": "CREATE TABLE t (id int, a int)",
    "append only": "CREATE TABLE t (id int, a int) APPEND ONLY",
}


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path) as made:
        yield made


class World:
    """A table in a pond, and in DuckDB one that keeps every column there ever was, by a number."""

    def __init__(self, tmp_path: Path, kind: str, seed: int) -> None:
        self.path, self.kind, self.random = tmp_path, kind, random.Random(seed)
        self.con = duckdb.connect()
        self.con.execute("create table m (id int, c0 int)")
        self.names = {"a": "c0"}  # how SQL calls each column that is left
        self.kinds: dict[str, str] = {}  # the types that columns got later
        self.made = 1
        self.views: dict[str, tuple[str, set[str]]] = {}  # the batch query, and the columns that it reads
        self.pond = opened(tmp_path)
        self.pond.sql(f"{KINDS[kind]}; CREATE INDEX by_a ON t (a)")
        self.id = 0

    def step(self) -> str:
        does = ["insert", "insert", "add", "drop", "rename", "widen", "view", "restart", "compact", "rescale"]
        if self.kind != "append only":
            does += ["update", "update", "delete"]
        what = self.random.choice(does)
        return f"{what} {getattr(self, what)() or ''}"

    def insert(self) -> None:
        listed = ", ".join(["id", *self.names])
        for _ in range(self.random.randint(1, 4)):
            self.id += 1
            values = [self.id, *(self.random.randint(0, 3) for _ in self.names)]
            given = f"({', '.join(map(str, values))})"
            self.pond.sql(f"INSERT INTO t ({listed}) VALUES {given}")
            self.con.execute(f"insert into m (id, {', '.join(self.names.values())}) values {given}")

    def update(self) -> None:
        if self.names:
            name, held = self.random.choice(list(self.names.items()))
            where = self.random.choice(["id % 2 = 0", f"id = {self.random.randint(1, max(1, self.id))}"])
            self.pond.sql(f"UPDATE t SET {name} = {name} + 1 WHERE {where}")
            self.con.execute(f"update m set {held} = {held} + 1 where {where}")

    def delete(self) -> None:
        where = f"id = {self.random.randint(1, max(1, self.id))}"
        self.pond.sql(f"DELETE FROM t WHERE {where}")
        self.con.execute(f"delete from m where {where}")

    def add(self) -> str:
        free = [n for n in "abcdef" if n not in self.names]
        name, held = self.random.choice(free), f"c{self.made}"
        self.made += 1
        default = self.random.choice(["", " DEFAULT 5", " NOT NULL DEFAULT 1 + 1"])
        self.pond.sql(f"ALTER TABLE t ADD COLUMN {name} int{default}")
        self.con.execute(f"alter table m add column {held} int {default.replace('NOT NULL', '')}")
        self.names[name] = held
        return name + default

    def drop(self) -> str:
        if not self.names:
            return "nothing"
        name = self.random.choice(list(self.names))
        users = [v for v, (_, reads) in self.views.items() if self.names[name] in reads]
        if users:
            told = refused(self.pond, f"ALTER TABLE t DROP COLUMN {name}")
            assert all(v in told for v in users), told
            if self.random.random() < 0.5:
                return f"{name} refused"
        self.pond.sql(f"ALTER TABLE t DROP COLUMN {name}{' CASCADE' if users else ''}")
        self.views = {v: found for v, found in self.views.items() if v not in users}
        del self.names[name]
        return name

    def rename(self) -> str:
        if not self.names:
            return "nothing"
        old = self.random.choice(list(self.names))
        new = self.random.choice([n for n in "abcdef" if n not in self.names])
        self.pond.sql(f"ALTER TABLE t RENAME COLUMN {old} TO {new}")
        self.names = {new if n == old else n: held for n, held in self.names.items()}
        return f"{old} {new}"

    def widen(self) -> str:
        kinds = {n: self.kinds.get(held, "int") for n, held in self.names.items()}
        narrow = [n for n, kind in kinds.items() if kind in WIDER]
        if not narrow:
            return "nothing"
        name = self.random.choice(narrow)
        kind = WIDER[kinds[name]]
        said = f"ALTER TABLE t ALTER COLUMN {name} TYPE {kind}"
        users = [v for v, (_, reads) in self.views.items() if self.names[name] in reads]
        if users or self.names[name] == "c0":
            told = refused(self.pond, said)
            assert all(v in told for v in users), told
            return f"{name} refused"
        self.pond.sql(said)
        self.con.execute(f"alter table m alter column {self.names[name]} type {kind}")
        self.kinds[self.names[name]] = kind
        return f"{name} {kind}"

    def view(self) -> str:
        shown = [f"{held} AS {n}" for n, held in self.names.items()]
        every = f"SELECT {', '.join(['id', *shown])} FROM m"
        name, held = self.random.choice([("id", "id"), *self.names.items()])
        sql, batch, reads = self.random.choice(
            [
                ("SELECT * FROM t", every, set(self.names.values())),
                ("SELECT * FROM t WHERE id > 1", f"{every} WHERE id > 1", set(self.names.values())),
                (
                    f"SELECT {name}, count(*) AS n FROM t GROUP BY {name}",
                    f"SELECT {held}, count(*) FROM m GROUP BY ALL",
                    {held},
                ),
                (f"SELECT t.id, u.{name} AS other FROM t JOIN t u ON t.id = u.id + 1", "", {held}),
            ]
        )
        batch = batch or f"SELECT t.id, u.{held} FROM m t JOIN m u ON t.id = u.id + 1"
        made = f"v{len(self.views)}_{self.made}_{self.id}_{self.random.randint(0, 10**6)}"
        kind = self.random.choice(["MATERIALIZED VIEW", "VIEW"])
        self.pond.sql(f"CREATE {kind} {made} AS {sql}")
        self.views[made] = (batch, reads)
        return f"{kind} {sql}"

    def restart(self) -> None:
        self.pond.sql("FLUSH")
        self.pond.close()
        self.pond = opened(self.path, parallelism=self.random.choice([1, 2, 3]))

    def compact(self) -> None:
        self.pond.compact()

    def rescale(self) -> None:
        self.pond.rescale(self.random.randint(1, 4))

    def check(self) -> None:
        self.pond.sql("FLUSH")
        listed = ", ".join(["id", *self.names.values()])
        assert self.of("SELECT * FROM t") == self.batch(f"SELECT {listed} FROM m")
        assert self.pond.read("t").column_names == ["id", *self.names]
        for name, held in self.names.items():
            assert self.of(f"SELECT id FROM t WHERE {name} = 2") == self.batch(
                f"SELECT id FROM m WHERE {held} = 2"
            )
        for name, (batch, _) in self.views.items():
            assert self.of(f"SELECT * FROM {name}") == self.batch(batch), name
        assert self.pond.errors().to_pylist() == []

    def of(self, sql: str) -> collections.Counter[Any]:
        return collections.Counter(self.pond.sql(sql).fetchall())

    def batch(self, sql: str) -> collections.Counter[Any]:
        return collections.Counter(self.con.execute(sql).fetchall())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", first(1, range(2)))
def test_views_are_the_batch_query_whatever_becomes_of_the_columns(
    tmp_path: Path, kind: str, seed: int
) -> None:
    world = World(tmp_path, kind, seed)
    said = []
    try:
        for _ in range(18):
            said.append(world.step())
            if world.random.random() < 0.4:
                continue  # the next epoch executes several changes
            try:
                world.check()
            except Exception as error:
                raise AssertionError("\n".join(said)) from error
    finally:
        world.pond.close()


def test_rows_are_changed_and_inserted_in_one_epoch_behind_a_dropped_column(pond: Pond) -> None:
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int NOT NULL DEFAULT 3); INSERT INTO t VALUES (1, 1)"
    )
    pond.sql(
        "ALTER TABLE t DROP COLUMN b; UPDATE t SET a = a + 1; INSERT INTO t SELECT id + 10, a FROM t; FLUSH"
    )
    assert rows(pond, "SELECT * FROM t") == [(1, 2), (11, 2)]


def test_a_wider_type_is_that_of_all_rows_from_then_on(pond: Pond) -> None:
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a smallint DEFAULT 3, d date); INSERT INTO t (id) VALUES (1); FLUSH"
    )
    before = pond.epoch
    old = pa.schema([("id", pa.int32()), ("a", pa.int16()), ("_w", pa.int64())])
    pond.sql(
        "ALTER TABLE t ADD COLUMN b int DEFAULT 7; ALTER TABLE t ALTER a TYPE bigint, ALTER d TYPE timestamp"
    )
    pond.sql("ALTER TABLE t ALTER COLUMN b SET DATA TYPE double precision USING b")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, old) as writer:  # by a client that knows neither
        writer.write_table(pa.table({"id": [2], "a": [2], "_w": [1]}, schema=old))
    pond._inbox.append("rows", {"table": "t", "rows": 1}, sink.getvalue().to_pybytes())
    pond.sql("INSERT INTO t VALUES (3, 5000000000, '2024-01-01 12:00', 0.5); FLUSH")
    shown = [(n, a, b) for n, a, _, b in rows(pond, "SELECT * FROM t")]
    assert shown == [(1, 3, 7.0), (2, 2, 7.0), (3, 5000000000, 0.5)]
    assert pond.sql("SELECT a, d, b FROM t").types == ["BIGINT", "TIMESTAMP", "DOUBLE"]
    assert pond.sql(f"SELECT a FROM t AS OF EPOCH {before}").types == ["SMALLINT"]
    changes = [
        sorted((r["id"], r["a"], r["_w"]) for r in d.table.to_pylist()) for d in pond.changes("t", before)
    ]
    assert changes == [[(2, 2, 1), (3, 5000000000, 1)]], "the rows that were there did not change"
    assert pond.lookup("t", 1).to_pylist()[0]["a"] == 3
    pond.compact()
    assert [(n, a, b) for n, a, _, b in rows(pond, "SELECT * FROM t")] == shown
    pond.rollback(before)
    assert pond.sql("SELECT a FROM t").types == ["SMALLINT"]


@pytest.mark.parametrize(
    "said, reason",
    [
        ("ALTER COLUMN id TYPE bigint", "primary key"),
        ("ALTER COLUMN a TYPE smallint", "every value of the old one"),
        ("ALTER COLUMN a TYPE real", "every value of the old one"),
        ("ALTER COLUMN a TYPE text", "every value of the old one"),
        ("ALTER COLUMN a TYPE numeric(9,2)", "every value of the old one"),
        ("ALTER COLUMN u TYPE bigint", "UNIQUE"),
        ("ALTER COLUMN g TYPE bigint", "it is computed"),
        ("ALTER COLUMN h TYPE bigint", "a generated column reads it"),
        ("ALTER COLUMN v TYPE bigint", "others use it"),
        ("ALTER COLUMN nope TYPE bigint", 'column "nope" of relation "t" does not exist'),
        ("ALTER COLUMN a TYPE bigint USING a * 2", "USING can only cast"),
        ("ALTER COLUMN a TYPE bigint USING a::smallint", "USING can only cast"),
        ("ALTER COLUMN a TYPE", "a type should stand here"),
    ],
)
def test_types_that_cannot_be_changed_are_refused(pond: Pond, said: str, reason: str) -> None:
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a int CHECK (a > 0), u int UNIQUE, h int, v int, "
        "g int GENERATED ALWAYS AS (h + 1)); CREATE MATERIALIZED VIEW w AS SELECT v FROM t"
    )
    assert reason in refused(pond, f"ALTER TABLE t {said}")
    pond.sql("ALTER TABLE t ALTER COLUMN a TYPE bigint; INSERT INTO t (id, a) VALUES (1, 5000000000); FLUSH")
    assert rows(pond, "SELECT id, a FROM t") == [(1, 5000000000)]


def test_a_reader_of_changes_gets_all_rows_when_a_name_has_another_type(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 2); FLUSH")
    before = pond.epoch
    pond.sql("ALTER TABLE t DROP COLUMN a, ADD COLUMN a text DEFAULT 'x'; FLUSH")
    changed = [row for d in pond.changes("t", before) for row in d.table.to_pylist()]
    assert {"id": 1, "a": "x", "_w": 1} in changed


def test_older_epochs_are_read_as_they_were(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 2); FLUSH")
    before = pond.epoch
    pond.sql("ALTER TABLE t ADD COLUMN b int DEFAULT 3, RENAME COLUMN a TO z; UPDATE t SET b = 4; FLUSH")
    after = pond.epoch
    pond.sql("ALTER TABLE t DROP COLUMN z")
    assert rows(pond, "SELECT * FROM t") == [(1, 4)]
    found = pond.sql(f"SELECT * FROM t AS OF EPOCH {before}")
    assert (found.columns, found.fetchall()) == (["id", "a"], [(1, 2)])
    found = pond.sql(f"SELECT * FROM t AS OF EPOCH {after}")
    assert (found.columns, found.fetchall()) == (["id", "z", "b"], [(1, 2, 4)])
    changes = [(d.epoch, d.table.to_pylist()) for d in pond.changes("t", before)]
    assert changes[0] == (
        after,
        [{"id": 1, "z": 2, "b": 3, "_w": -1}, {"id": 1, "z": 2, "b": 4, "_w": 1}],
    ), "rows from before the column have its default"
    pond.rollback(before)
    assert pond.sql("SELECT * FROM t").columns == ["id", "a"]
    pond.sql("INSERT INTO t VALUES (2, 5); ALTER TABLE t ADD COLUMN b text DEFAULT 'x'; FLUSH")
    assert rows(pond, "SELECT * FROM t") == [(1, 2, "x"), (2, 5, "x")]
    pond.rollback(after)
    assert rows(pond, "SELECT * FROM t") == [(1, 2, 4)]


def test_whoever_did_not_know_of_the_change_is_understood(pond: Pond) -> None:
    """Entries of the inbox that were made before: as if they had come before (nothing is lost)."""
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t VALUES (1, 1, 1); FLUSH")
    pond.sql("ALTER TABLE t ADD COLUMN c int DEFAULT 7, DROP COLUMN b, RENAME COLUMN a TO z")
    old = pa.schema([("id", pa.int32()), ("a", pa.int32()), ("b", pa.int32()), ("_w", pa.int64())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, old) as writer:
        writer.write_table(pa.table({"id": [2], "a": [2], "b": [2], "_w": [1]}, schema=old))
    pond._inbox.append("rows", {"table": "t", "rows": 1}, sink.getvalue().to_pybytes())
    logic = {"table": "t", "name": "t", "reads": [], "columns": [["id", "id"], ["a", "a"], ["b", "b"]]}
    pond._inbox.append(LOGIC, {**logic, "verb": "update", "sql": "UPDATE t SET a = a * 10 WHERE id = 2"}, b"")
    pond._inbox.append(LOGIC, {**logic, "verb": "update", "sql": "UPDATE t SET b = 0"}, b"")
    pond.sql("FLUSH")
    assert rows(pond, "SELECT id, z, c FROM t") == [(1, 1, 7), (2, 20, 7)]
    (error,) = pond.errors().to_pylist()
    assert "UPDATE t SET b = 0" in error["reason"], "what names a column that is gone is refused, and told"
    pond.insert("t", [{"id": 3, "z": 3, "c": 3}])
    pond.insert("t", pa.table({"id": pa.array([4], pa.int32()), "z": pa.array([4], pa.int32())}))
    pond.sql("FLUSH")
    assert rows(pond, "SELECT id, z, c FROM t WHERE id > 2") == [(3, 3, 3), (4, 4, 7)]


def test_every_type_has_its_default(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
    given = {
        "hugeint": "12345678901234567890",
        "decimal(10,2)": "1.5",
        "timestamptz": "'2024-01-02 03:04:05+02'",
        "date": "'2024-01-02'",
        "interval": "INTERVAL '1 day'",
        "uuid": "'b2f0a4ca-5f5f-4b0e-8d1c-4f8f8f0b6a11'",
        "json": """'{"a": 1}'""",
        "int[]": "[1, NULL]",
        "struct(x int, y text)": "{'x': 1, 'y': 'z'}",
        "bytea": "'\\xAB'",
        "double": "'nan'",
    }
    for n, (kind, default) in enumerate(given.items()):
        pond.sql(f"ALTER TABLE t ADD c{n} {kind} DEFAULT {default}")
    pond.sql("INSERT INTO t (id) VALUES (2); FLUSH")
    first, second = (pond.sql(f"SELECT * EXCLUDE (id) FROM t WHERE id = {n}").fetchall() for n in (1, 2))
    assert repr(first) == repr(second) and None not in first[0]
    pond.compact()
    assert repr(pond.sql("SELECT * EXCLUDE (id) FROM t WHERE id = 1").fetchall()) == repr(first)


def test_an_index_and_a_view_that_come_with_a_column_in_one_text(pond: Pond) -> None:
    """They are filled with rows from before the column, which have its default."""
    pond.sql("CREATE TABLE t (id int, a int); INSERT INTO t VALUES (1, 2), (2, 2); FLUSH")
    pond.sql("CREATE INDEX by_a ON t (a); ALTER TABLE t ADD COLUMN b text DEFAULT 'x'; FLUSH")
    assert rows(pond, "SELECT * FROM t WHERE a = 2") == [(1, 2, "x"), (2, 2, "x")]
    pond.sql("""
        CREATE MATERIALIZED VIEW v AS SELECT * FROM t; ALTER TABLE t ADD COLUMN c int DEFAULT 3;
        CREATE MATERIALIZED VIEW w AS SELECT * FROM t; INSERT INTO t VALUES (3, 2, 'y', 4); FLUSH
    """)
    assert rows(pond, "SELECT * FROM v") == [(1, 2, "x"), (2, 2, "x"), (3, 2, "y")]
    assert rows(pond, "SELECT * FROM w WHERE a = 2") == rows(pond, "SELECT * FROM t WHERE a = 2")


def test_a_late_row_and_a_watermark(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE e (k int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') APPEND ONLY;
        CREATE MATERIALIZED VIEW closed AS
            SELECT window_start, count(*) AS n FROM TUMBLE(e, ts, INTERVAL '10 seconds')
            GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
        INSERT INTO e VALUES (1, '2024-01-01 00:00:01'); FLUSH;
        ALTER TABLE e ADD COLUMN c int DEFAULT 4;
        INSERT INTO e VALUES (3, '2024-01-01 00:00:40', 5); FLUSH;
        INSERT INTO e VALUES (4, '2024-01-01 00:00:02', 6); FLUSH
    """)
    assert rows(pond, "SELECT k, c FROM e") == [(1, 4), (3, 5), (4, 6)]
    assert rows(pond, "SELECT k, c FROM e_late") == [(4, 6)]
    assert [n for _, n in rows(pond, "SELECT * FROM closed")] == [1]
    assert "watermark" in refused(pond, "ALTER TABLE e DROP COLUMN ts")


def test_views_on_a_view_that_is_the_table_itself(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE t (id int PRIMARY KEY, a int); CREATE MATERIALIZED VIEW all_of AS SELECT * FROM t;
        INSERT INTO t VALUES (1, 2); FLUSH; ALTER TABLE t ADD COLUMN b int DEFAULT 3;
        CREATE MATERIALIZED VIEW again AS SELECT * FROM all_of; CREATE MATERIALIZED VIEW wide AS SELECT * FROM t;
        INSERT INTO t VALUES (2, 3, 4); FLUSH
    """)
    assert rows(pond, "SELECT * FROM again") == rows(pond, "SELECT * FROM all_of") == [(1, 2), (2, 3)]
    assert rows(pond, "SELECT * FROM wide") == [(1, 2, 3), (2, 3, 4)]
    assert "wide" in refused(pond, "ALTER TABLE t DROP COLUMN b")
    assert "all_of, again" in refused(pond, "ALTER TABLE t DROP COLUMN a")


def test_generated_columns_follow_a_name(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2 + length('a')))")
    pond.sql('ALTER TABLE t RENAME COLUMN a TO "b c"; INSERT INTO t VALUES (1, 5); FLUSH')
    assert rows(pond, "SELECT * FROM t") == [(1, 5, 11)]
    assert "generated column reads it" in refused(pond, 'ALTER TABLE t DROP COLUMN "b c"')
    pond.sql('ALTER TABLE t RENAME COLUMN id TO key; UPDATE t SET "b c" = 6 WHERE key = 1; FLUSH')
    assert rows(pond, "SELECT key, g FROM t WHERE key = 1") == [(1, 13)]
    assert pond.lookup("t", {"key": 1}).to_pylist() == [{"key": 1, "b c": 6, "g": 13}]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("ALTER TABLE t ADD COLUMN a int", "has a column 'a' already"),
        ("ALTER TABLE t ADD COLUMN x intt", 'type "intt" does not exist'),
        ("ALTER TABLE t ADD COLUMN x int NOT NULL", "NOT NULL needs a DEFAULT"),
        ("ALTER TABLE t ADD COLUMN x int PRIMARY KEY", "neither key nor generated"),
        ("ALTER TABLE t ADD COLUMN x int GENERATED ALWAYS AS (a)", "neither key nor generated"),
        ("ALTER TABLE t ADD COLUMN x double DEFAULT random()", "another value each time"),
        ("ALTER TABLE t ADD COLUMN x int DEFAULT 'q'", 'invalid input syntax for type integer: "q"'),
        ("ALTER TABLE t DROP COLUMN aa", "did you mean 'a'"),
        ("ALTER TABLE t DROP COLUMN id", "part of the primary key"),
        ("ALTER TABLE t DROP COLUMN a", "v, m"),
        ("ALTER TABLE t RENAME COLUMN a TO ID", "has a column 'ID' already"),
        ("ALTER TABLE t RENAME COLUMN nope TO x", 'column "nope" of relation "t" does not exist'),
        ("ALTER TABLE t ADD COLUMN x int, DROP COLUMN nope", 'column "nope" of relation "t" does not exist'),
        ("ALTER TABLE t ALTER COLUMN a TYPE text", "cannot be changed"),
        ("ALTER MATERIALIZED VIEW m ADD COLUMN x int", "not supported"),
        ("ALTER TABLE s ADD COLUMN x int", "not a table"),
    ],
)
def test_what_is_wrong_changes_nothing(pond: Pond, sql: str, told: str) -> None:
    pond.sql("""
        CREATE TABLE t (id int PRIMARY KEY, a int); CREATE VIEW v AS SELECT a FROM t;
        CREATE MATERIALIZED VIEW m AS SELECT id FROM v, t WHERE v.a = 1;
        CREATE SOURCE s WITH (connector = 'nexmark', events = 1)
    """)
    before = pond.sql("DESCRIBE t").fetchall()
    assert told in refused(pond, sql)
    assert pond.sql("DESCRIBE t").fetchall() == before


def test_if_exists_and_if_not_exists(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY)")
    pond.sql(
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS id int, ADD IF NOT EXISTS b int, DROP COLUMN IF EXISTS c"
    )
    pond.sql("ALTER TABLE IF EXISTS nope ADD COLUMN x int")
    assert [r[0] for r in pond.sql("DESCRIBE t").fetchall()] == ["id", "b"]
    assert pond.sql("SHOW CREATE TABLE t").fetchall()[0][0].count("ALTER TABLE") == 1


def test_a_flow_that_only_looks_like_it_is_refused(tmp_path: Path) -> None:
    """A view that wants more of rows that were there is not filled with NULLs (law 1)."""
    for columns in (["a"], ["a", "b"]):
        with opened(tmp_path) as pond:
            table = pond.table("t", {"a": int, "b": int})
            table.select(**{c: f'"{c}"' for c in columns}).view("v")
            if len(columns) == 1:
                pond.insert("t", [{"a": 1, "b": 2}])
                pond.drain()
            else:
                with pytest.raises(InvalidError):
                    pond.drain()
