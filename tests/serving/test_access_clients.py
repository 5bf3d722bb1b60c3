"""Access control as clients meet it: psycopg, HTTP with tokens, Flight; the audit; limits of users."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyarrow import flight

import millpond
from millpond.clock import SystemClock
from millpond.errors import InvalidError, UnavailableError
from millpond.server.access import cached_rules
from millpond.server.audit import WAITING_MAX, Audit
from millpond.server.server import Server
from millpond.state.audit_log import FILE_BYTES_MAX, AuditWriter, delete_old, read_audit

DAY_US = 86_400_000_000


@pytest.fixture(autouse=True)
def quick_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_rules, "FRESH_S", 0.1)


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "pond", engine="inline") as made:
        made.sql("CREATE TABLE open (id int PRIMARY KEY, x text); CREATE TABLE secret (id int PRIMARY KEY)")
        made.sql("INSERT INTO open SELECT i, 'x' FROM range(50) r(i); INSERT INTO secret VALUES (1); FLUSH")
        made.sql("CREATE USER root PASSWORD 'rr' ADMIN; CREATE USER ann PASSWORD 'aa'")
        made.sql("GRANT SELECT ON open TO ann")
        yield made


@pytest.fixture
def server(pond: millpond.Pond) -> Iterator[Server]:
    with pond.serve(pg_port=0, http_port=0, flight_port=0) as found:
        yield found


def pg(server: Server, user: str = "ann", password: str = "aa") -> Any:
    address = server.urls["pg"].replace("//", f"//{user}:{password}@")
    return psycopg.connect(address, autocommit=True)


def http(server: Server, sql: str, authorization: str | None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if authorization is not None:
        headers["Authorization"] = authorization
    body = json.dumps({"sql": sql}).encode()
    asked = urllib.request.Request(server.urls["http"] + "/v1/sql", body, headers)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(answer.status), json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def by_flight(server: Server, sql: str, authorization: str) -> Any:
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    options = {"adbc.flight.sql.authorization_header": authorization}
    with (
        dbapi.connect(server.urls["flight"], db_kwargs=options, autocommit=True) as con,
        con.cursor() as cursor,
    ):
        cursor.execute(sql)
        return cursor.fetchall()


def test_a_missing_grant_in_every_protocol(server: Server) -> None:
    with pg(server) as con:
        assert con.execute("SELECT count(*) FROM open").fetchone() == (50,)
        for sql in ("SELECT * FROM secret", "INSERT INTO open VALUES (99, 'y')", "DROP TABLE open"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="lacks"):
                con.execute(sql)
        with (
            pytest.raises(psycopg.errors.InsufficientPrivilege),
            con.cursor() as cursor,
            cursor.copy("COPY secret TO STDOUT") as copy,
        ):
            list(copy)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            con.execute("SELECT * FROM millpond.audit")
    assert http(server, "SELECT count(*) AS n FROM open", basic("ann", "aa"))[0] == 200
    status, body = http(server, "SELECT * FROM secret", basic("ann", "aa"))
    assert status == 403 and "lacks SELECT" in body["error"]["message"]
    assert by_flight(server, "SELECT count(*) FROM open", basic("ann", "aa")) == [(50,)]
    with pytest.raises(Exception, match="lacks SELECT"):
        by_flight(server, "SELECT * FROM secret", basic("ann", "aa"))


def test_wrong_passwords_and_tokens(server: Server, pond: millpond.Pond) -> None:
    for user, password in (("ann", "no"), ("nobody", "aa"), ("ann", "")):
        with pytest.raises(psycopg.OperationalError, match=r"authentication failed|no password"):
            pg(server, user, password)
        assert http(server, "SELECT 1", basic(user, password))[0] == 401
    assert http(server, "SELECT 1", None)[0] == 401
    (token,) = pond.sql("CREATE TOKEN FOR ann EXPIRES IN 1 DAYS").fetchall()[0]
    time.sleep(0.15)
    assert http(server, "SELECT count(*) FROM open", f"Bearer {token}")[0] == 200
    assert by_flight(server, "SELECT 1", f"Bearer {token}") == [(1,)]
    assert http(server, "SELECT 1", f"Bearer {token}x")[0] == 401


def test_an_expired_token(pond: millpond.Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    (token,) = pond.sql("CREATE TOKEN FOR ann EXPIRES IN 1 DAYS").fetchall()[0]
    real = SystemClock.now_us
    with pond.serve(http_port=0, flight_port=0) as server:
        assert http(server, "SELECT 1", f"Bearer {token}")[0] == 200
        monkeypatch.setattr(SystemClock, "now_us", lambda self: real(self) + 2 * DAY_US)
        assert http(server, "SELECT 1", f"Bearer {token}")[0] == 401
        with pytest.raises(Exception, match="login failed"):
            by_flight(server, "SELECT 1", f"Bearer {token}")


def test_rights_are_taken_from_clients_that_are_connected(server: Server, pond: millpond.Pond) -> None:
    (token,) = pond.sql("CREATE TOKEN FOR ann").fetchall()[0]
    time.sleep(0.15)
    client = flight.connect(server.urls["flight"])
    header, value = client.authenticate_basic_token("ann", "aa")
    with pg(server) as con:
        assert con.execute("SELECT id FROM open WHERE id = 1").fetchall() == [(1,)]
        pond.sql("REVOKE SELECT ON open FROM ann")
        time.sleep(0.15)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            con.execute("SELECT id FROM open WHERE id = 1")
        assert http(server, "SELECT id FROM open", f"Bearer {token}")[0] == 403
        pond.sql("DROP USER ann")
        time.sleep(0.15)
        with pytest.raises(psycopg.errors.InvalidPassword, match="no longer"):
            con.execute("SELECT 1")
        assert http(server, "SELECT 1", f"Bearer {token}")[0] == 401
        with pytest.raises(Exception, match="no longer"):
            by_flight(server, "SELECT 1", value.decode())
    client.close()
    assert header == b"authorization"


def test_users_of_a_file_may_read_and_named_ones_everything(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:aa\nroot:rr\n")
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
        with pond.serve(pg_port=0, http_port=0, users=users, admins=("root",)) as server:
            with pg(server) as con:
                assert con.execute("SELECT * FROM t").fetchall() == [(1,)]
                assert con.execute("SHOW is_superuser").fetchone() == ("off",)
                for sql in ("INSERT INTO t VALUES (2)", "CREATE TABLE u (id int)", "DROP TABLE t"):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        con.execute(sql)
            assert http(server, "DELETE FROM t", basic("ann", "aa"))[0] == 403
            with pg(server, "root", "rr") as con:
                con.execute("INSERT INTO t VALUES (2)")
                assert con.execute("SELECT count(*) FROM t").fetchone() == (2,)
                con.execute("CREATE TABLE u (id int)")
        with pytest.raises(InvalidError, match="'boss' is no user"):
            pond.serve(pg_port=0, users=users, admins=("boss",))
        with pytest.raises(InvalidError, match="only for a file"):
            pond.serve(pg_port=0, admins=("root",))


def test_limits_of_a_user(server: Server, pond: millpond.Pond) -> None:
    pond.sql("CREATE ROLE staff; GRANT staff TO ann; ALTER ROLE staff SET select_rows_max = 10")
    pond.sql("ALTER USER ann CONNECTION LIMIT 1 SET statement_timeout = '300ms'")
    time.sleep(0.15)
    with pg(server) as con:
        assert len(con.execute("SELECT * FROM open LIMIT 10").fetchall()) == 10
        con.execute("SET select_rows_max = 1000")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="more than 10 rows"):
            con.execute("SELECT * FROM open")
        con.execute("SET statement_timeout = 0")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            con.execute("SELECT count(*) FROM range(1000000) a, range(1000000) b")
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            pg(server)
        with pg(server, "root", "rr") as other:
            assert len(other.execute("SELECT * FROM open").fetchall()) == 50, "others have no limits"
        status, body = http(server, "SELECT 1", basic("ann", "aa"))
        assert status == 429 and "too many connections" in body["error"]["message"]
    assert http(server, "SELECT 1", basic("ann", "aa"))[0] == 200
    assert http(server, "SELECT * FROM open", basic("ann", "aa"))[0] == 400
    with pytest.raises(Exception, match="more than 10 rows"):
        by_flight(server, "SELECT * FROM open", basic("ann", "aa"))
    pond.sql("ALTER USER ann SET select_spill_bytes_max = 10000000 RESET statement_timeout")
    assert ("ann", "user", "LIMIT", "select_spill_bytes_max = 10000000") in pond.sql("SHOW GRANTS").fetchall()
    pond.sql("ALTER ROLE staff RESET ALL")
    time.sleep(0.15)
    with pg(server) as con:
        assert len(con.execute("SELECT * FROM open").fetchall()) == 50
        with pytest.raises(psycopg.Error, match=r"memory|larger than"):
            con.execute("SELECT i, repeat('x', 100) FROM range(1000000) r(i)")
    for wrong, why in (
        ("ALTER USER ann SET nonsense = 1", "no limit named"),
        ("ALTER USER ann SET select_rows_max = 0", "1 or more"),
        ("ALTER USER ann SET select_rows_max = 'x'", "number"),
    ):
        with pytest.raises(InvalidError, match=why):
            pond.sql(wrong)


def test_the_audit_has_who_what_and_when(server: Server, pond: millpond.Pond) -> None:
    begun = SystemClock().now_us()
    with pg(server) as con:
        con.execute("SELECT count(*) FROM open")
        for n in range(20):
            con.execute("SELECT x FROM open WHERE id = %s", [n], prepare=True)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            con.execute("SELECT * FROM secret")
    with pytest.raises(psycopg.OperationalError):
        pg(server, "ann", "wrong")
    http(server, "SELECT 'by http'", basic("ann", "aa"))
    http(server, "SELECT 1", basic("eve", "guess"))
    by_flight(server, "SELECT 'by flight'", basic("ann", "aa"))
    with pg(server, "root", "rr") as con:
        con.execute("CREATE USER bob PASSWORD 'hunter2hunter2'")
        with pytest.raises(psycopg.Error):
            con.execute("CREATE USER bob WITH PASSWORD 'swordfish!' NONSENSE")
        rows = con.execute(
            "SELECT user_name, protocol, kind, statement, outcome, error, count, at, address FROM millpond.audit"
        ).fetchall()
    by = {(r[0], r[1], r[2], r[3]): r for r in rows}
    assert by["ann", "pg", "LOGIN", ""][4] in ("ok", "InvalidError")
    assert {r[4] for r in rows if r[:3] == ("ann", "pg", "LOGIN")} == {"ok", "InvalidError"}
    assert by["ann", "pg", "SELECT", "SELECT x FROM open WHERE id = $1"][6] == 20
    refused = by["ann", "pg", "SELECT", "SELECT * FROM secret"]
    assert refused[4] == "InvalidError" and "lacks SELECT" in refused[5]
    assert by["ann", "http", "SELECT", "SELECT 'by http'"][4] == "ok"
    assert by["eve", "http", "LOGIN", ""][4] == "InvalidError"
    assert any(r[:3] == ("ann", "flight", "SELECT") for r in rows)
    assert by["root", "pg", "CREATE", "CREATE USER bob PASSWORD ***"][4] == "ok"
    shown = json.dumps(rows, default=str)
    assert "hunter2" not in shown and "swordfish" not in shown and "guess" not in shown
    for row in rows:
        assert (
            begun <= int(row[7].timestamp() * 1e6 if row[7].tzinfo else _us(row[7])) and row[8] == "127.0.0.1"
        )


def _us(at: Any) -> int:
    return int((at - type(at)(1970, 1, 1)).total_seconds() * 1e6)


def test_the_audit_outlives_the_server_and_is_bounded(pond: millpond.Pond) -> None:
    for n in range(2):
        with pond.serve(http_port=0) as server:
            http(server, f"SELECT 'run {n}'", basic("root", "rr"))
    texts = [r[0] for r in pond.sql("SELECT statement FROM millpond.audit ORDER BY at").fetchall()]
    assert [t for t in texts if "run" in t] == ["SELECT 'run 0'", "SELECT 'run 1'"]
    with pond.serve(http_port=0, audit_days_max=0) as server:
        http(server, "SELECT 'unseen'", basic("root", "rr"))
        assert not any("unseen" in r[0] for r in pond.sql("SELECT statement FROM millpond.audit").fetchall())
    names = pond.store.list("audit/")
    assert len(names) == 2
    assert delete_old(pond.store, 0, 1 << 30) == 0
    assert delete_old(pond.store, 0, pond.store.size(names[1]) or 0) == 1, "by size, the oldest first"
    assert pond.store.list("audit/") == names[1:]
    assert delete_old(pond.store, SystemClock().now_us(), 1 << 30) == 1, "by time"


def test_what_cannot_be_recorded_is_counted(pond: millpond.Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(pond.store, 1, 1 << 30)
    try:
        with audit._writing:  # nothing is written meanwhile
            for n in range(WAITING_MAX + 7):
                audit.ran(("ann", "pg", ""), "SELECT", f"SELECT {n}", None, 0.0)
        real = AuditWriter.write

        def broken(*args: Any) -> None:
            raise UnavailableError("the storage is away")

        monkeypatch.setattr(AuditWriter, "write", broken)
        audit.flush()
        assert list(read_audit(pond.store)) == []
        monkeypatch.setattr(AuditWriter, "write", real)
    finally:
        audit.stop()
    found = list(read_audit(pond.store))
    assert len(found) == WAITING_MAX + 1
    assert [(r.kind, r.count) for r in found if r.outcome == "lost"] == [("AUDIT", 7)]


def test_small_files_are_replaced_and_no_record_counts_twice(pond: millpond.Pond) -> None:
    audit = Audit(pond.store, 1, 1 << 30)
    for n in range(30):
        audit.ran(("ann", "pg", ""), "SELECT", f"SELECT {n}", None, 0.0)
        audit.flush()
    assert len(pond.store.list("audit/")) == 1
    (name,) = pond.store.list("audit/")
    data = pond.store.get(name)
    audit.ran(("ann", "pg", ""), "SELECT", "SELECT 'last'", None, 0.0)
    audit.stop()
    pond.store.put_new(name, data)  # as if the old file was not deleted yet
    texts = [r.statement for r in read_audit(pond.store)]
    assert sorted(texts) == sorted([*(f"SELECT {n}" for n in range(30)), "SELECT 'last'"])
    assert FILE_BYTES_MAX > 0


def test_a_search_path_gives_no_permission(pond: millpond.Pond, server: Server) -> None:
    pond.sql(
        "CREATE SCHEMA s; CREATE TABLE s.open (id int PRIMARY KEY); INSERT INTO s.open VALUES (77); FLUSH"
    )
    ann = basic("ann", "aa")
    assert http(server, "SELECT count(*) AS n FROM open", ann)[0] == 200
    for text in ("SELECT * FROM open", "BEGIN; SET LOCAL search_path TO s; SELECT * FROM open; COMMIT"):
        status, told = http(server, f"SET search_path TO s; {text}", ann)
        assert status == 403 and "77" not in json.dumps(told), told
    status, told = http(server, "SELECT max(id) AS n FROM open", ann)
    assert status == 200 and told["rows"] == [{"n": 49}], told


def test_what_set_changes_is_of_one_request(server: Server) -> None:
    root = basic("root", "rr")
    http(server, "SET search_path TO nowhere; SET TimeZone TO 'Asia/Tokyo'; SET implicit_flush = on", root)
    for name, shown in (("search_path", '"$user", public'), ("TimeZone", "UTC"), ("implicit_flush", "off")):
        status, told = http(server, f"SHOW {name}", root)
        assert status == 200 and list(told["rows"][0].values()) == [shown], told
