"""Prepared reads of one key: they give what the query gives, and are not used where they would not."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import random
import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import millpond
from millpond.pond import Pond
from millpond.serve.newest_keys import NewestKeys
from millpond.server.pgwire.data_rows import RowEncoder
from millpond.server.pgwire.single_row import SingleRowEncoder
from millpond.server.point_reads import PointReads
from millpond.server.server import Server
from millpond.sql.reads.point_plan import point_plan
from millpond.state.runs.cells import cell_of, cell_reader
from millpond.state.tables.table import KeySet

KINDS = "s text, d date, ts timestamp, tz timestamptz, n decimal(12,3), f double, r real, b boolean, by blob, u uuid"
ROW = (
    "héllo",
    datetime.date(2024, 1, 2),
    datetime.datetime(2024, 1, 2, 3, 4, 5, 678),
    datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    decimal.Decimal("-1.500"),
    2.5,
    0.5,
    True,
    b"\x00\x01\xff",
    uuid.UUID(int=5),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("points") / "pond"
    with millpond.open(folder, engine="inline") as pond:
        pond.sql(f"CREATE TABLE t (id bigint PRIMARY KEY, {KINDS}, sm smallint)")
        pond.sql("CREATE TABLE pair (a text, b date, n int, PRIMARY KEY (a, b)); CREATE TABLE plain (id int)")
        pond.sql(
            "CREATE MATERIALIZED VIEW sums AS SELECT sm, sum(id) AS total, count(*) c FROM t GROUP BY sm"
        )
        pond.sql("INSERT INTO plain VALUES (1), (1); FLUSH")
        with pond.serve(pg_port=0) as found:
            with connected(found) as con:
                con.execute(f"INSERT INTO t VALUES (7, {','.join(['%s'] * len(ROW))}, 3)", ROW)
                con.execute("INSERT INTO t (id, sm) VALUES (8, 3), (-9223372036854775808, 4)")
                con.execute("INSERT INTO pair VALUES ('x', '2024-01-01', 1), ('x', '2024-01-02', 2)")
            yield found


@contextlib.contextmanager
def connected(server: Server) -> Iterator[Any]:
    address = server.urls["pg"].replace("//", "//ann@")
    with psycopg.connect(address, autocommit=True, prepare_threshold=0) as con:
        yield con


class Counted:
    """Counts the rows that were read by key alone."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[Any] = []
        real = PointReads.read

        def read(reads: PointReads, *args: Any, **more: Any) -> Any:
            self.found.append(real(reads, *args, **more))
            return self.found[-1]

        monkeypatch.setattr(PointReads, "read", read)

    def take(self) -> int:
        count = len([one for one in self.found if one is not None])
        self.found.clear()
        return count


@pytest.fixture
def counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(server, monkeypatch)


def test_values_of_every_type(server: Server, counted: Counted) -> None:
    with connected(server) as con:
        for binary in (False, True):
            cursor = con.cursor(binary=binary)
            for _ in range(3):
                assert cursor.execute("SELECT * FROM t WHERE id = %s", [7]).fetchall() == [(7, *ROW, 3)]
            assert counted.take() == 2 if not binary else 3
            nulls = [(8, *[None] * len(ROW), 3)]
            assert cursor.execute("SELECT * FROM t WHERE id = %s", [8]).fetchall() == nulls
            assert cursor.execute("SELECT * FROM t WHERE id = %s", [9]).fetchall() == []
            assert cursor.execute("SELECT * FROM t WHERE id = %s", [-(2**63)]).fetchone()[0] == -(2**63)
            assert cursor.execute("SELECT * FROM t WHERE id = %s", [None]).fetchall() == []
            counted.take()


@pytest.mark.parametrize(
    ("sql", "params", "rows"),
    [
        ("SELECT id AS x, s, id FROM t AS q WHERE q.id = %s", [7], [(7, "héllo", 7)]),
        ("SELECT q.* FROM t q WHERE %s = q.id LIMIT 5", [8], [(8, *[None] * len(ROW), 3)]),
        ('SELECT "ID" FROM T WHERE ID = %s', [7], [(7,)]),
        ("SELECT n FROM pair WHERE b = %s AND a = %s", [datetime.date(2024, 1, 2), "x"], [(2,)]),
        ("SELECT n FROM pair WHERE a = 'x' AND b = %s", [datetime.date(2024, 1, 1)], [(1,)]),
        ("SELECT * FROM sums WHERE sm = %s", [3], [(3, 15, 2)]),
        ("SELECT * FROM sums WHERE sm = %s", [2**40], []),
    ],
)
def test_queries_by_key(
    server: Server, counted: Counted, sql: str, params: list[Any], rows: list[Any]
) -> None:
    with connected(server) as con:
        names = None
        for n in range(3):
            cursor = con.execute(sql, params)
            assert cursor.fetchall() == rows
            names = names or [(c.name, c.type_code) for c in cursor.description]
            assert [(c.name, c.type_code) for c in cursor.description] == names, f"run {n}"
    assert counted.take() == 2


@pytest.mark.parametrize(
    ("sql", "params", "rows"),
    [
        ("SELECT id + 0 FROM t WHERE id = %s", [7], [(7,)]),
        ("SELECT id FROM t WHERE id = %s AND s = 'no'", [7], []),
        ("SELECT id FROM t WHERE id = %s AND id = 8", [7], []),
        ("SELECT id FROM t WHERE id = %s OR id = 8 ORDER BY 1", [7], [(7,), (8,)]),
        ("SELECT id FROM t WHERE id = %s LIMIT 0", [7], []),
        ("SELECT id FROM t WHERE id = %s OFFSET 1", [7], []),
        ("SELECT count(*) FROM t WHERE id = %s", [9], [(0,)]),
        ("SELECT DISTINCT id FROM t WHERE id = %s", [7], [(7,)]),
        ("SELECT t.id FROM t, pair WHERE t.id = %s ORDER BY pair.n", [7], [(7,), (7,)]),
        ("SELECT id FROM t WHERE id = %s", [decimal.Decimal("7.0")], [(7,)]),
        ("SELECT n FROM pair WHERE a = %s ORDER BY n", ["x"], [(1,), (2,)]),
        ("SELECT id FROM plain WHERE id = %s", [1], [(1,), (1,)]),
        ("WITH t AS (SELECT 5 AS id) SELECT id FROM t WHERE id = %s", [5], [(5,)]),
    ],
)
def test_other_queries_run_as_they_are(
    server: Server, counted: Counted, sql: str, params: list[Any], rows: list[Any]
) -> None:
    with connected(server) as con:
        for _ in range(3):
            assert con.execute(sql, params).fetchall() == rows
    assert counted.take() == 0


def test_every_change_is_seen(server: Server, counted: Counted) -> None:
    with connected(server) as con, connected(server) as other:
        con.execute("CREATE TABLE c (id int PRIMARY KEY, v int)")
        con.execute("INSERT INTO c VALUES (1, 0)")
        ask = "SELECT v FROM c WHERE id = %s"
        for con_of in (con, other):
            con_of.execute(ask, [1])
        counted.take()
        for n in range(1, 5):
            con.execute("UPDATE c SET v = %s WHERE id = 1", [n])
            assert con.execute(ask, [1]).fetchall() == [(n,)], "its own write"
            assert other.execute(ask, [1]).fetchall() == [(n,)], "committed before"
        assert counted.take() >= 4
        con.execute("DELETE FROM c WHERE id = 1")
        assert con.execute(ask, [1]).fetchall() == [] == other.execute(ask, [1]).fetchall()
        con.execute("INSERT INTO c VALUES (1, 9)")
        con.execute("FLUSH")
        with other.transaction():
            assert other.execute(ask, [1]).fetchall() == [(9,)]
            con.execute("UPDATE c SET v = 10 WHERE id = 1")
            assert other.execute(ask, [1]).fetchall() == [(9,)], "a transaction reads one epoch"
            counted.take()
        assert other.execute(ask, [1]).fetchall() == [(10,)]
        con.execute("ALTER TABLE c ADD COLUMN w int")
        every = "SELECT * FROM c WHERE id = %s"
        for _ in range(3):
            assert other.execute(ask, [1]).fetchall() == [(10,)]
            assert other.execute(every, [1]).fetchall() == [(1, 10, None)]
        con.execute("DROP TABLE c")
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute(ask, [1])
        con.execute("CREATE TABLE c (id text PRIMARY KEY, v int)")
        con.execute("INSERT INTO c VALUES ('1', 11)")
        fresh = "SELECT v FROM c WHERE id = %s"
        for _ in range(3):
            assert con.execute(fresh, ["1"]).fetchall() == [(11,)]


def test_pipelines_and_portals(server: Server, counted: Counted) -> None:
    with connected(server) as con:
        con.execute("SELECT id FROM t WHERE id = %s", [7])
        with con.pipeline():
            cursors = [con.execute("SELECT id FROM t WHERE id = %s", [7 + n % 3]) for n in range(200)]
            assert [len(c.fetchall()) for c in cursors] == [int(n % 3 < 2) for n in range(200)]
        assert counted.take() == 200


def test_revoked_rights_end_at_once(tmp_path: Path, counted: Counted) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
        pond.sql(
            "CREATE USER root PASSWORD 'r' ADMIN; CREATE USER ann PASSWORD 'a'; GRANT SELECT ON t TO ann"
        )
        with pond.serve(pg_port=0) as server:
            address = server.urls["pg"].replace("//", "//ann:a@")
            with psycopg.connect(address, autocommit=True, prepare_threshold=0) as con:
                for _ in range(3):
                    assert con.execute("SELECT id FROM t WHERE id = %s", [1]).fetchall() == [(1,)]
                assert counted.take() == 2
                pond.sql("REVOKE SELECT ON t FROM ann")
                time.sleep(1.1)
                for _ in range(2):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        con.execute("SELECT id FROM t WHERE id = %s", [1])
                assert counted.take() == 0


def test_a_key_is_found_as_a_lookup_of_many_finds_it(tmp_path: Path) -> None:
    rng = random.Random(5)
    with millpond.open(tmp_path / "pond", engine="inline", retain_epochs=3) as pond:
        pond.sql("CREATE TABLE t (a text, b int, v int, PRIMARY KEY (a, b))")
        for _ in range(12):
            keys = [(rng.choice("xyz") * rng.randint(0, 3), rng.randint(0, 9)) for _ in range(8)]
            rows = ", ".join(f"('{a}', {b}, {rng.randint(0, 99)})" for a, b in dict.fromkeys(keys))
            pond.sql(f"DELETE FROM t WHERE b = {rng.randint(0, 9)}; INSERT INTO t VALUES {rows} "
                     "ON CONFLICT (a, b) DO UPDATE SET v = excluded.v; FLUSH")  # fmt: skip
        check_all(pond)


def check_all(pond: Pond) -> None:
    session = pond.session
    plan = point_plan(session.catalog, "SELECT v, a FROM t WHERE a = $p1 AND b = $p2")
    assert plan is not None
    with session.host.pinned() as snapshot:
        rows, table = snapshot.key_rows(plan.spec), snapshot.table(plan.spec)
        assert len(table.runs) > 1, "the test needs several runs"
        found = 0
        for a in [c * n for c in "xyzw" for n in range(4)]:
            for b in range(-1, 11):
                keys = pa.table({"a": [a], "b": pa.array([b], plan.spec.schema.field("b").type)})
                wanted = table.lookup(KeySet.of(keys, plan.spec.key), plan.columns).table.select(plan.columns)
                got = rows.find([a, b], plan.columns)
                assert ([] if got is None else [got]) == [
                    [cell_of(value, wanted.schema.field(n).type) for n, value in enumerate(row.values())]
                    for row in wanted.to_pylist()
                ]
                found += got is not None
        assert found > 10


VALUES: list[tuple[str, pa.DataType, list[Any]]] = [
    ("BOOLEAN", pa.bool_(), [True, False, None]),
    ("TINYINT", pa.int8(), [-128, 0, 127]),
    ("INTEGER", pa.int32(), [-(2**31), 7, None]),
    ("UBIGINT", pa.uint64(), [0, 2**64 - 1]),
    ("BIGINT", pa.int64(), [-(2**63), 2**63 - 1]),
    ("HUGEINT", pa.decimal128(38, 0), [decimal.Decimal(10**30), decimal.Decimal(-5)]),
    ("DECIMAL(18,8)", pa.decimal128(18, 8), [decimal.Decimal("0.00000001"), decimal.Decimal(0)]),
    ("DOUBLE", pa.float64(), [0.1, -0.0, 1e300, 1e-7, 123456789.0, float("inf"), float("nan"), None]),
    ("FLOAT", pa.float32(), [0.1, 1e30]),
    ("VARCHAR", pa.string(), ["", "héllo", None]),
    ("UUID", pa.string(), [str(uuid.UUID(int=5))]),
    ("BLOB", pa.binary(), [b"", b"\0\xff"]),
    ("DATE", pa.date32(), [0, -719162, 2932896, 3000000, 2**31 - 1, 1 - 2**31]),
    ("TIMESTAMP", pa.timestamp("us"), [0, 1, 500_000, -1, 10**15 + 120_000, -62_135_596_800_000_000, 3 * 10**17, 2**63 - 1, 1 - 2**63]),
    ("TIMESTAMP WITH TIME ZONE", pa.timestamp("us", "UTC"), [0, 1_500_000, -(10**15), None]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stored", "values"), VALUES, ids=[v[0] for v in VALUES])
@pytest.mark.parametrize("form", [0, 1])
def test_one_row_is_encoded_as_many_are(kind: str, stored: pa.DataType, values: list[Any], form: int) -> None:
    single = SingleRowEncoder([kind, kind], [form, form])
    temporal = pa.types.is_temporal(stored)
    column = pa.array(values, pa.int32() if pa.types.is_date32(stored) else pa.int64()) if temporal else None
    column = pa.array(values, stored) if column is None else column.view(stored)
    for n in range(len(column)):
        one = column.slice(n, 1)
        table = pa.table([one, one], names=["a", "b"])
        (wanted,) = RowEncoder([kind, kind], [form, form]).messages(table)
        for cell in (cell_reader(column)(n), one):
            assert single.message([cell, cell]) == wanted, values[n]
    assert struct.unpack("!i", wanted[1:5])[0] == len(wanted) - 1


def test_a_table_stays_open_over_epochs_that_change_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = NewestKeys.open

    def open_table(keys: NewestKeys, spec: Any) -> Any:
        opened.append(spec.name)
        return real(keys, spec)

    monkeypatch.setattr(NewestKeys, "open", open_table)
    ask = "SELECT v FROM t WHERE id = %s"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int PRIMARY KEY)")
        pond.sql("INSERT INTO t VALUES (1, 0); FLUSH")
        with (
            pond.serve(pg_port=0) as server,
            millpond.open(tmp_path / "pond") as reader,
            reader.serve(pg_port=0) as other,  # it learns of epochs by their manifests alone
            connected(server) as con,
            connected(other) as far,
        ):
            for _ in range(2):
                assert con.execute(ask, [1]).fetchall() == far.execute(ask, [1]).fetchall() == [(0,)]
            opened.clear()
            for n in range(10):  # more than are followed at once
                con.execute("INSERT INTO u VALUES (%s)", [n])
                con.execute("FLUSH")
                if n % 3 == 0:
                    assert far.execute(ask, [1]).fetchall() == [(0,)]
                assert con.execute(ask, [1]).fetchall() == [(0,)]
            assert far.execute(ask, [1]).fetchall() == [(0,)]
            assert not opened
            con.execute("UPDATE t SET v = 1 WHERE id = 1")
            assert con.execute(ask, [1]).fetchall() == far.execute(ask, [1]).fetchall() == [(1,)]
            con.execute("DELETE FROM t")
            assert con.execute(ask, [1]).fetchall() == far.execute(ask, [1]).fetchall() == []
            assert len(opened) >= 2
