"""psycopg 3: values in text and binary, pipelines, cursors, COPY, errors, cancelling and subscriptions."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

import millpond
from tests.serving.served import ServedPond

FOREVER = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
COLUMNS = {
    "id": ("bigint", 7),
    "s": ("text", "héllo"),
    "d": ("date", datetime.date(2024, 1, 2)),
    "ts": ("timestamp", datetime.datetime(2024, 1, 2, 3, 4, 5, 678)),
    "tz": ("timestamptz", datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
    "n": ("decimal(12,3)", decimal.Decimal("-1.500")),
    "f": ("double", 2.5),
    "r": ("real", 0.5),
    "b": ("boolean", True),
    "by": ("blob", b"\x00\x01\xff"),
    "u": ("uuid", uuid.UUID(int=5)),
    "a": ("int[]", [1, 2, None]),
    "ta": ("text[]", ["x", "y z", None, 'q"uote', ""]),
    "i": ("interval", datetime.timedelta(days=1, seconds=5)),
    "t": ("time", datetime.time(1, 2, 3)),
    "sm": ("smallint", -3),
}


@pytest.fixture
def con(server: ServedPond) -> Iterator[Any]:
    with psycopg.connect(server.address(), autocommit=True) as found:
        yield found


def test_values_of_every_type(con: Any) -> None:
    listed = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    row = tuple(value for _, value in COLUMNS.values())
    con.execute(f"CREATE TABLE kinds ({listed}, PRIMARY KEY (id))")
    con.execute(f"INSERT INTO kinds VALUES ({','.join(['%s'] * len(row))})", row)
    con.execute("INSERT INTO kinds (id) VALUES (8)")
    for binary in (False, True):
        cursor = con.cursor(binary=binary)
        assert cursor.execute("SELECT * FROM kinds WHERE id = %s", [7]).fetchone() == row
        assert cursor.execute("SELECT * FROM kinds WHERE s = %s", ["héllo"]).fetchone() == row
        assert cursor.execute("SELECT * FROM kinds WHERE id = 8").fetchone() == (8, *[None] * (len(row) - 1))
        assert cursor.execute("SELECT {'k': [1]} AS s, MAP {'a': 2} AS m").fetchone() == (
            {"k": [1]},
            {"a": 2},
        )


def test_texts_of_times_that_are_out_of_range_of_arrow(con: Any) -> None:
    asked = (
        b"SELECT time '24:00:00', timestamp '205000-07-10 17:32:01', timestamptz '205000-07-10 17:32:01.5+00'"
    )
    found = con.pgconn.exec_(asked)
    shown = [bytes(found.get_value(0, n)).decode() for n in range(3)]
    assert shown == ["24:00:00", "205000-07-10 17:32:01", "205000-07-10 17:32:01.5+00"]


def test_statements_by_name_and_pipelines(con: Any) -> None:
    for n in range(8):  # prepared after five
        assert con.execute("SELECT name FROM t WHERE id = %s", [1 + n % 2]).fetchone() == (
            ("ann", "bob")[n % 2],
        )
    with con.pipeline():
        one, two = con.execute("SELECT 1"), con.execute("SELECT 2")
        assert (one.fetchone(), two.fetchone()) == ((1,), (2,))
    with pytest.raises(psycopg.errors.UndefinedColumn), con.pipeline() as pipeline:
        con.execute("SELECT 1")
        con.execute("SELECT nope FROM t")
        con.execute("SELECT 3")
        pipeline.sync()
    assert con.execute("SELECT 5").fetchone() == (5,)


def test_a_connection_reads_its_own_writes(con: Any) -> None:
    con.execute("CREATE TABLE own (id int PRIMARY KEY, n int)")
    for n in range(5):
        con.execute("INSERT INTO own VALUES (1, %s)", [n])
        assert con.execute("SELECT n FROM own WHERE id = 1").fetchone() == (n,)
    assert con.execute("UPDATE own SET n = 9 WHERE id = 1").rowcount == 1
    assert con.execute("SELECT n FROM own").fetchone() == (9,)


def test_copy(con: Any) -> None:
    con.execute("CREATE TABLE copied (a int, b text)")
    cursor = con.cursor()
    with cursor.copy("COPY copied (a, b) FROM STDIN") as copy:
        for n in range(1000):
            copy.write_row((n, f"row\t{n}\\"))
    assert cursor.rowcount == 1000
    with cursor.copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["int4", "text"])
        copy.write_row((5000, None))
    with cursor.copy("COPY copied FROM STDIN (FORMAT csv)") as copy:
        copy.write('6000,"a ""quoted"", text"\n6001,\n')
    query = "(SELECT * FROM copied WHERE a IN (1, 5000, 6000) ORDER BY a)"
    wanted = [(1, "row\t1\\"), (5000, None), (6000, 'a "quoted", text')]
    with cursor.copy(f"COPY {query} TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["int4", "text"])
        assert list(copy.rows()) == wanted
    with cursor.copy(f"COPY {query} TO STDOUT") as copy:
        copy.set_types(["int4", "text"])
        assert list(copy.rows()) == wanted
    with cursor.copy(f"COPY {query} TO STDOUT (FORMAT csv, HEADER)") as copy:
        assert b"".join(copy).decode() == 'a,b\n1,row\t1\\\n5000,\n6000,"a ""quoted"", text"\n'


def test_a_copy_that_fails_writes_nothing(con: Any) -> None:
    con.execute("CREATE TABLE whole_or_not (a int)")
    with pytest.raises(psycopg.Error), con.cursor().copy("COPY whole_or_not FROM STDIN") as copy:
        copy.write("1\n2\nthree\n")
    with pytest.raises(ZeroDivisionError), con.cursor().copy("COPY whole_or_not FROM STDIN") as copy:
        copy.write("1\n")
        raise ZeroDivisionError
    assert con.execute("SELECT count(*) FROM whole_or_not").fetchone() == (0,)


def test_errors_have_a_state_and_a_position(con: Any) -> None:
    for sql, state, position in [
        ("SELECT * FROM nosuch", "42P01", "15"),
        ("SELECT nope FROM t", "42703", "8"),
        ("SELEC 1", "42601", "1"),
        ("SELECT nosuch(1)", "42883", "8"),
        ("CREATE TABLE t (a int)", "42P07", None),
        ("SET client_encoding = latin1", "22023", None),
        ("LISTEN x", "0A000", None),
    ]:
        with pytest.raises(psycopg.Error) as caught:
            con.execute(sql)
        assert caught.value.sqlstate == state, sql
        if position is not None:
            assert caught.value.diag.statement_position == position, sql


def test_cancel_and_timeout(con: Any) -> None:
    timer = threading.Timer(0.5, con.cancel)
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        con.execute(FOREVER)
    timer.join()
    con.execute("SET statement_timeout = '200ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        con.execute(FOREVER)
    con.execute("RESET statement_timeout")
    assert con.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_subscriptions(server: ServedPond, con: Any) -> None:
    con.execute("CREATE TABLE followed (id int PRIMARY KEY, n int)")
    con.execute("INSERT INTO followed VALUES (1, 10)")
    con.execute("SELECT 1 FROM followed").fetchall()
    con.execute("DECLARE c CURSOR FOR SUBSCRIBE followed")
    assert [row[1:] for row in con.execute("FETCH ALL c").fetchall()] == [(1, 1, 10)]
    assert con.execute("FETCH ALL c WITH (timeout = '100ms')").fetchall() == []
    with psycopg.connect(server.address(), autocommit=True) as other:
        other.execute("UPDATE followed SET n = 11")
    assert sorted(row[1:] for row in con.execute("FETCH ALL c").fetchall()) == [(-1, 1, 10), (1, 1, 11)]
    con.execute("CLOSE c")
    stream = con.cursor().stream("SUBSCRIBE followed")
    assert next(stream)[1:] == (1, 1, 11)
    stream.close()  # cancels it
    assert con.execute("SELECT 1").fetchone() == (1,)


def test_settings(con: Any) -> None:
    assert con.execute("SHOW server_version").fetchone() == ("15.8",)
    con.execute("SET application_name = 'a test'")
    assert con.info.parameter_status("application_name") == "a test"
    notices: list[str] = []
    con.add_notice_handler(lambda found: notices.append(str(found.message_primary)))
    con.execute("SET work_mem = '4MB'")
    assert notices == ["the setting work_mem has no effect here"]
    con.execute("DISCARD ALL")
    assert con.execute("SHOW application_name").fetchone() == ("",)


def test_cancelling_by_pid_and_the_catalog_beside_tables(server: ServedPond, con: Any) -> None:
    with psycopg.connect(server.address(), autocommit=True) as other:
        pid = other.execute("SELECT pg_backend_pid()").fetchone()
        assert pid is not None
        ended: list[BaseException] = []

        def run() -> None:
            try:
                other.execute(FOREVER)
            except psycopg.Error as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while not con.execute(
            "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active'", [pid[0]]
        ).fetchall():
            pass
        assert con.execute("SELECT pg_cancel_backend(%s)", [pid[0]]).fetchone() == (True,)
        thread.join(60)
        assert isinstance(ended[0], psycopg.errors.QueryCanceled)
        assert con.execute("SELECT pg_cancel_backend(%s)", [99999999]).fetchone() == (False,)
    rows = con.execute(
        "SELECT c.relname, t.name FROM pg_class c JOIN public.t ON t.id = %s WHERE c.relname = 't'", [1]
    ).fetchall()
    assert rows == [("t", "ann")]
    assert con.execute(
        "SELECT count(*) FROM t, information_schema.tables i WHERE i.table_name = 't'"
    ).fetchone() == (2,)


def test_a_user_cancels_only_its_own_statements(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:a\nbob:b\nroot:r\n")
    with (
        millpond.open(tmp_path / "pond", engine="inline") as pond,
        pond.serve(pg_port=0, users=users, admins=("root",)) as server,
    ):
        addresses = {n: server.urls["pg"].replace("//", f"//{n}:{n[0]}@") for n in ("ann", "bob", "root")}
        with psycopg.connect(addresses["ann"], autocommit=True) as ann:
            pid = ann.info.backend_pid
            with (
                psycopg.connect(addresses["bob"], autocommit=True) as bob,
                pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be a member"),
            ):
                bob.execute("SELECT pg_cancel_backend(%s)", [pid])
            with psycopg.connect(addresses["root"], autocommit=True) as root:
                assert root.execute("SELECT pg_cancel_backend(%s)", [pid]).fetchone() == (True,)
            assert ann.execute("SELECT pg_cancel_backend(%s)", [pid]).fetchone() == (True,)
            _what_others_run(ann, addresses)


def _what_others_run(ann: Any, addresses: dict[str, str]) -> None:
    """pg_stat_activity and pg_terminate_backend."""
    ask = "SELECT query, state, client_addr, backend_start <= now() FROM pg_stat_activity WHERE pid = %s"
    ann.execute("SELECT 'of ann'")
    with psycopg.connect(addresses["bob"], autocommit=True) as bob:
        hidden, *_ = bob.execute(ask, [ann.info.backend_pid]).fetchone()
        assert hidden == "<insufficient privilege>"
        assert "pg_stat_activity" in bob.execute(ask, [bob.info.backend_pid]).fetchone()[0]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            bob.execute("SELECT pg_terminate_backend(%s)", [ann.info.backend_pid])
        with psycopg.connect(addresses["root"], autocommit=True) as root:
            shown = root.execute(ask, [ann.info.backend_pid]).fetchone()
            assert shown[:2] == ("SELECT 'of ann'", "idle") and shown[3]
            assert str(shown[2]).startswith("127.0.0.1")
            bob.execute("SELECT 1")
            assert root.execute("SELECT pg_terminate_backend(%s)", [bob.info.backend_pid]).fetchone() == (
                True,
            )
            with pytest.raises(psycopg.errors.AdminShutdown, match="administrator command"):
                for _ in range(100):
                    bob.execute("SELECT 1")


def test_warnings_and_old_protocols(server: ServedPond, con: Any) -> None:
    seen: list[tuple[str, str]] = []
    con.add_notice_handler(lambda said: seen.append((said.severity, said.sqlstate)))
    con.execute("COMMIT")
    con.execute("BEGIN")
    con.execute("BEGIN")
    con.execute("ROLLBACK")
    assert seen == [("WARNING", "25P01"), ("WARNING", "25001")]
    with socket.create_connection((server.host, server.port), timeout=20) as raw:
        raw.sendall(struct.pack("!ii", 16, 2 << 16) + b"user\0ann")
        assert b"C0A000" in (answer := raw.recv(1000)) and b"FATAL" in answer and b"2.0" in answer


def test_named_cursors_of_psycopg(server: ServedPond) -> None:
    with psycopg.connect(server.address()) as con, con.cursor(name="c") as cursor:
        cursor.execute("SELECT i, 'x' || i AS t FROM range(%s) r(i)", [10])
        assert [c.name for c in cursor.description or ()] == ["i", "t"]
        assert cursor.fetchmany(3) == [(0, "x0"), (1, "x1"), (2, "x2")]
        assert len(cursor.fetchall()) == 7 and cursor.fetchone() is None


def test_the_time_zone_of_a_connection(server: ServedPond) -> None:
    with psycopg.connect(server.address(), autocommit=True, options="-c timezone=Europe/Berlin") as con:
        assert con.info.timezone == ZoneInfo("Europe/Berlin")
        con.execute("CREATE TABLE zoned (id int PRIMARY KEY, tz timestamptz)")
        con.execute("INSERT INTO zoned VALUES (1, '2024-07-01 00:30'), (2, '2024-10-27 02:30')")
        assert con.execute("SELECT tz::text FROM zoned ORDER BY id").fetchall() == [
            ("2024-07-01 00:30:00+02",),
            ("2024-10-27 02:30:00+01",),
        ]
        raw = con.execute("SELECT tz FROM zoned WHERE id = 1").pgresult
        assert raw is not None and raw.get_value(0, 0) == b"2024-07-01 00:30:00+02"
        with con.transaction():
            con.execute("SET LOCAL TimeZone = 'Asia/Tokyo'")
            assert con.execute("SELECT (min(tz))::text FROM zoned").fetchone() == ("2024-07-01 07:30:00+09",)
        assert con.info.timezone == ZoneInfo("Europe/Berlin")
        found = con.execute("SELECT id FROM zoned WHERE tz = %s::timestamptz", ["2024-07-01 00:30"])
        assert found.fetchall() == [(1,)]
        con.execute("RESET TimeZone")
        assert con.info.timezone == ZoneInfo("Europe/Berlin")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="invalid value for parameter"):
            con.execute("SET TimeZone = 'Mars/Base'")
    with pytest.raises(psycopg.OperationalError, match="invalid value for parameter"):
        psycopg.connect(server.address(), options="-c timezone=Mars/Base")


def test_cursors_go_forward_and_back(con: Any) -> None:
    def ns(fetch: str) -> list[int]:
        return [row[0] for row in con.execute(fetch).fetchall()]

    with con.transaction():
        con.execute("DECLARE c SCROLL CURSOR FOR SELECT n FROM generate_series(1, 5) AS t (n) ORDER BY n")
        assert (ns("FETCH 2 FROM c"), ns("FETCH c"), ns("FETCH PRIOR c")) == ([1, 2], [3], [2])
        assert (ns("FETCH LAST c"), ns("FETCH NEXT c"), ns("FETCH BACKWARD 2 c")) == ([5], [], [5, 4])
        assert (ns("FETCH ABSOLUTE 2 c"), ns("FETCH RELATIVE 2 c"), ns("FETCH RELATIVE 0 c")) == (
            [2],
            [4],
            [4],
        )
        assert con.execute("MOVE BACKWARD ALL c").statusmessage == "MOVE 3"
        assert (ns("FETCH PRIOR c"), ns("FETCH ALL c"), ns("FETCH ABSOLUTE -2 c")) == (
            [],
            [1, 2, 3, 4, 5],
            [4],
        )
        assert ns("FETCH FIRST c") == [1] and con.execute("MOVE 3 IN c").statusmessage == "MOVE 3"
    with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
        con.execute("DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1")
    con.execute(
        "DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT n FROM generate_series(1, 3) AS t (n) ORDER BY n"
    )
    assert ns("FETCH 2 FROM c") == [1, 2]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        con.execute("FETCH PRIOR c")
    con.execute("CLOSE c")
    with con.transaction(), con.cursor("named", scrollable=True) as cursor:
        cursor.execute("SELECT n FROM generate_series(1, 9) AS t (n) ORDER BY n")
        cursor.scroll(5)
        assert cursor.fetchone() == (6,)
        cursor.scroll(1, mode="absolute")
        assert cursor.fetchmany(2) == [(2,), (3,)]
        cursor.scroll(-2)
        assert cursor.fetchone() == (2,)


def test_a_portal_is_moved_by_its_name(server: ServedPond) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def ask() -> list[Any]:
        client = await asyncpg.connect(server.address())
        try:
            async with client.transaction():
                cursor = await client.cursor("SELECT generate_series(0, 9)")
                moved = await cursor.forward(4)
                row = await cursor.fetchrow()
                return [moved, row[0], await cursor.forward(100), await cursor.fetchrow()]
        finally:
            await client.close()

    assert asyncio.run(ask()) == [4, 4, 5, None]
