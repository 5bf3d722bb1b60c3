"""The HTTP API of a real `millpond serve` process, with httpx and curl."""

from __future__ import annotations

import base64
import concurrent.futures
import io
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import millpond
from millpond.server.http.endpoints import ENDPOINTS
from tests.serving.served_process import ServedPond, served

SETUP = """
CREATE TABLE orders (id int PRIMARY KEY, who text NOT NULL, n int DEFAULT 1, at timestamp);
CREATE TABLE plain (a text, b double);
CREATE MATERIALIZED VIEW totals AS SELECT who, sum(n) AS total, count(*) AS c FROM orders GROUP BY who;
CREATE MATERIALIZED VIEW pairs AS SELECT who, n, count(*) AS c FROM orders GROUP BY who, n;
INSERT INTO orders VALUES (1, 'ann', 5, '2024-01-02 03:04:05'), (2, 'bob', 7, NULL), (3, 'a/b', 2, NULL);
FLUSH
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPond]:
    pond = tmp_path_factory.mktemp("http") / "pond"
    with millpond.open(pond, engine="inline") as opened:
        opened.sql(SETUP)
    with served(pond, "--http", "0") as found:
        yield found


@pytest.fixture(scope="module")
def client(server: ServedPond) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url("http"), timeout=60) as made:
        yield made


def sql(client: httpx.Client, text: str, **more: object) -> dict[str, object]:
    answer = client.post("/v1/sql", json={"sql": text, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_changes_of_one_request_are_one_transaction(client: httpx.Client) -> None:
    failing = (
        "INSERT INTO orders VALUES (90, 'dee'); INSERT INTO orders VALUES (91, NULL)",
        "INSERT INTO orders VALUES (90, 'dee'); UPDATE orders SET n = 1 / 0 WHERE id = 90",
        "INSERT INTO orders VALUES (90, 'dee'); INSERT INTO nosuch VALUES (1)",
    )
    for text in failing:
        error(client.post("/v1/sql", json={"sql": text}), 400)
        assert sql(client, "SELECT * FROM orders WHERE id >= 90")["rows"] == [], text
    text = "INSERT INTO orders VALUES (90, 'dee'); SELECT 1; INSERT INTO orders VALUES (91, NULL)"
    error(client.post("/v1/sql", json={"sql": text}), 400)
    assert sql(client, "SELECT id FROM orders WHERE id >= 90")["rows"] == [{"id": 90}], (
        "a query divides a text"
    )
    several = "; ".join(f"INSERT INTO orders VALUES ({n}, $1)" for n in range(92, 95))
    before = sql(client, "DELETE FROM orders WHERE id = 90")["epoch"]
    made = sql(client, f"{several}; DELETE FROM orders WHERE id > 90 AND who = $1", params=["eve"])
    assert made["status"] == "DELETE 3" and isinstance(before, int) and made["epoch"] == before + 1


def error(answer: httpx.Response, status: int) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, object] = answer.json()["error"]
    assert set(found) == {"kind", "message", "detail", "hint", "step", "epoch", "position"}
    return found


def test_sql_with_parameters_in_every_format(client: httpx.Client) -> None:
    found = sql(client, "SELECT who, total FROM totals WHERE who = $1", params=["ann"])
    assert found["rows"] == [{"who": "ann", "total": 5}]
    assert found["columns"] == [{"name": "who", "type": "VARCHAR"}, {"name": "total", "type": "BIGINT"}]
    assert sql(client, "SELECT $a + 1 AS x", params={"a": 4})["rows"] == [{"x": 5}]
    asked = {"sql": "SELECT id, who, at FROM orders WHERE id < 3 ORDER BY id"}
    csv = client.post("/v1/sql", json=asked, headers={"Accept": "text/csv"})
    assert csv.headers["content-type"].startswith("text/csv")
    assert csv.text == "id,who,at\r\n1,ann,2024-01-02T03:04:05\r\n2,bob,\r\n"
    lines = client.post("/v1/sql", json=asked, headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [1, 2]
    arrow = client.post("/v1/sql", json=asked, headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(arrow.content).read_all().column("who").to_pylist() == ["ann", "bob"]
    image = {"Accept": "image/png, text/csv;q=0"}
    assert error(client.post("/v1/sql", json=asked, headers=image), 406)["hint"]
    refused = error(client.post("/v1/sql", json={"sql": "DELETE FROM orders"}, headers=image), 406)
    assert refused["detail"] == "Accept is 'image/png, text/csv;q=0'"
    assert sql(client, "SELECT count(*) AS n FROM orders WHERE id < 4")["rows"] == [{"n": 3}]
    error(client.get("/v1/views/totals", headers=image), 406)
    error(client.get("/v1/views/totals/ann", headers=image), 406)


def test_sql_at_an_epoch_and_own_writes(client: httpx.Client) -> None:
    before = sql(client, "SELECT count(*) AS n FROM plain")
    made = sql(client, "INSERT INTO plain VALUES ('x', 1.5)")
    assert made["status"] == "INSERT 0 1" and isinstance(made["epoch"], int)
    after = sql(client, "SELECT count(*) AS n FROM plain")
    assert after["rows"][0]["n"] == before["rows"][0]["n"] + 1  # type: ignore[index]
    then = sql(client, "SELECT count(*) AS n FROM plain -- the past", epoch=before["epoch"])
    assert then["rows"] == before["rows"] and then["epoch"] == before["epoch"]
    error(client.post("/v1/sql", json={"sql": "SHOW TABLES", "epoch": 1}), 400)
    error(client.post("/v1/sql", json={"sql": "SELECT 1 FROM plain", "epoch": "nosuch"}), 400)


def test_a_transaction_ends_with_its_request(client: httpx.Client) -> None:
    before = sql(client, "SELECT count(*) AS n FROM plain")["rows"][0]["n"]  # type: ignore[index]
    open_ended = "BEGIN; INSERT INTO plain VALUES ('never', 0)"
    client.post("/v1/sql", json={"sql": open_ended})
    error(client.post("/v1/sql", json={"sql": f"{open_ended}; SELECT nope"}), 400)
    made = sql(client, "BEGIN; INSERT INTO plain VALUES ('a', 0); INSERT INTO plain VALUES ('b', 0); COMMIT")
    assert made["status"] == "COMMIT"
    after = sql(client, "SELECT count(*) AS n, count(*) FILTER (a = 'never') AS never FROM plain")["rows"]
    assert after == [{"n": before + 2, "never": 0}]


def test_errors_have_one_shape(client: httpx.Client) -> None:
    found = error(client.post("/v1/sql", json={"sql": "SELECT nope FROM totals"}), 400)
    assert found["kind"] == "InvalidError" and found["position"] == 8
    assert error(client.post("/v1/sql", json={"sql": "SELEC 1"}), 400)["position"] == 1
    assert (
        error(client.post("/v1/sql", json={"sql": "SELECT 1", "parms": []}), 400)["hint"]
        == "did you mean 'params'?"
    )
    error(client.post("/v1/sql", content=b"{", headers={"Content-Type": "application/json"}), 400)
    error(client.post("/v1/sql", json=["SELECT 1"]), 400)
    for field, value in (
        ("dialect", 5),
        ("dialect", "klingon"),
        ("wait", "no"),
        ("epoch", [1]),
        ("limits", 7),
    ):
        error(client.post("/v1/sql", json={"sql": "SELECT 1", field: value}), 400)
    error(client.post("/v1/sql", json={"sql": "SELECT $2", "params": [1]}), 400)
    error(client.get("/nothing"), 404)
    answer = client.delete("/v1/sql")
    error(answer, 405)
    assert answer.headers["allow"] == "POST"
    deep = error(client.post("/v1/sql", json={"sql": "SELECT " + "(" * 5000 + "1" + ")" * 5000}), 400)
    assert deep["kind"] == "InvalidError"
    nested = b'{"sql": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    error(client.post("/v1/sql", content=nested, headers={"Content-Type": "application/json"}), 400)


def test_limits_of_a_query(client: httpx.Client) -> None:
    found = client.post("/v1/sql", json={"sql": "SELECT * FROM range(100)", "limits": {"rows": 10}})
    assert "more than 10 rows" in str(error(found, 400)["message"])
    slow = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
    started = time.monotonic()
    found = client.post("/v1/sql", json={"sql": slow, "limits": {"ms": 200}})
    assert "took longer" in str(error(found, 400)["message"])
    assert time.monotonic() - started < 20
    error(client.post("/v1/sql", json={"sql": "SELECT 1", "limits": {"rows": 0}}), 400)


def test_views_are_listed_paged_and_looked_up(client: httpx.Client) -> None:
    views = {view["name"]: view for view in client.get("/v1/views").json()["views"]}
    assert views["totals"]["key"] == ["who"] and views["orders"]["kind"] == "table"
    page = client.get("/v1/views/orders", params={"limit": 2}).json()
    assert [row["id"] for row in page["rows"]] == [1, 2]
    sql(client, "INSERT INTO orders VALUES (4, 'late', 1, NULL)")
    rest = client.get(page["next"]).json()
    assert [row["id"] for row in rest["rows"]] == [3] and rest["next"] is None, "of the same epoch"
    assert [r["who"] for r in client.get("/v1/views/totals?who=bob").json()["rows"]] == ["bob"]
    assert client.get("/v1/views/orders?id=2").json()["rows"][0]["who"] == "bob"
    assert client.get("/v1/views/totals/ann").json()["rows"] == [{"who": "ann", "total": 5, "c": 1}]
    assert client.get("/v1/views/pairs/bob/7").json()["rows"] == [{"who": "bob", "n": 7, "c": 1}]
    assert client.get("/v1/views/orders/1", params={"epoch": page["epoch"]}).json()["epoch"] == page["epoch"]
    assert error(client.get("/v1/views/totals/nobody"), 404)["epoch"]
    assert error(client.get("/v1/views/total"), 404)["hint"] == "did you mean 'totals'?"
    error(client.get("/v1/views/orders/x"), 400)
    error(client.get("/v1/views/pairs/bob"), 400)
    error(client.get("/v1/views/plain/x"), 400)
    error(client.get("/v1/views/orders?nope=1"), 400)
    error(client.get("/v1/views/orders?limit=-1"), 400)


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (b'[{"id": %d, "who": "json"}]', "application/json"),
        (b'{"rows": [{"id": %d, "who": "json"}]}', "application/json; charset=utf-8"),
        (b'{"id": %d, "who": "ndjson"}\n\n', "application/x-ndjson"),
        (b"who,id\ncsv,%d\n", "text/csv"),
        (b'\xef\xbb\xbf"who",id\r\n"c\n""s""v",%d', "text/csv"),
    ],
)
def test_rows_in_every_format(client: httpx.Client, body: bytes, media: str) -> None:
    id = 100 + abs(hash((body, media))) % 100_000
    answer = client.post("/v1/tables/orders?wait=true", content=body % id, headers={"Content-Type": media})
    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"] == 1 and answer.json()["epoch"] > 0
    row = client.get(f"/v1/views/orders/{id}").json()["rows"][0]
    assert row["n"] == 1, "the default of the column"
    assert row["at"] is None


def test_rows_as_arrow(client: httpx.Client) -> None:
    table = pa.table({"id": pa.array([50], pa.int32()), "who": ["arrow"]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    answer = client.post("/v1/tables/orders?wait=true", content=sink.getvalue(), headers=headers)
    assert answer.json()["rows"] == 1, answer.text
    assert client.get("/v1/views/orders/50").json()["rows"][0]["who"] == "arrow"


def test_a_repeated_request_counts_once(client: httpx.Client) -> None:
    before = sql(client, "SELECT count(*) AS n FROM plain")["rows"][0]["n"]  # type: ignore[index]
    send = {"json": [{"a": "once", "b": 1.0}], "headers": {"Idempotency-Key": "k-1"}}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/tables/plain?wait=true", **send), range(4)))  # type: ignore[arg-type]
    assert [a.status_code for a in answers] == [200] * 4, answers[0].text
    again = client.post("/v1/tables/plain?wait=true", **send)  # type: ignore[arg-type]
    assert again.status_code == 200
    assert sql(client, "SELECT count(*) AS n FROM plain")["rows"][0]["n"] == before + 1  # type: ignore[index]
    error(client.post("/v1/tables/plain", json=[], headers={"Idempotency-Key": "x" * 300}), 400)


def test_rows_that_do_not_fit_write_nothing(client: httpx.Client) -> None:
    before = sql(client, "SELECT count(*) AS n FROM orders")["rows"]
    found = error(
        client.post("/v1/tables/orders", json=[{"id": 900, "who": "x"}, {"id": "y", "who": "x"}]), 400
    )
    assert "row 2" in str(found["message"])
    assert (
        error(client.post("/v1/tables/orders", json=[{"id": 901, "wo": "x"}]), 400)["hint"]
        == "did you mean 'who'?"
    )
    error(client.post("/v1/tables/orders", json=[{"id": 902}]), 400)  # who is NOT NULL
    error(client.post("/v1/tables/orders", content=b"id\n1,2\n", headers={"Content-Type": "text/csv"}), 400)
    lines = b'id,who\n903,"two\nlines"\n\nx,y\n'
    found = error(client.post("/v1/tables/orders", content=lines, headers={"Content-Type": "text/csv"}), 400)
    assert "row 2 does not fit" in str(found["message"])
    plain = error(client.post("/v1/tables/orders", content=b"x", headers={"Content-Type": "text/plain"}), 415)
    assert plain["detail"] == "Content-Type is 'text/plain'" and "text/csv" in str(plain["hint"])
    error(client.post("/v1/tables/orders", content=b"[]"), 415)
    error(client.post("/v1/tables/totals", json=[{"who": "x"}]), 404)
    error(client.post("/v1/tables/nope", json=[{"who": "x"}]), 404)
    assert sql(client, "SELECT count(*) AS n FROM orders")["rows"] == before


def events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    found: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif found:
            yield found
            found = {}


def test_changes_resume_from_the_last_event(client: httpx.Client) -> None:
    with client.stream("GET", "/v1/views/totals/changes") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = events(response.iter_lines())
        assert next(stream) == {"retry": "1000"}
        snapshot = next(stream)
        assert snapshot["event"] == "snapshot"
        rows = {row["who"]: row for row in json.loads(snapshot["data"])["rows"]}
        assert rows["bob"]["weight"] == 1
        client.post("/v1/tables/orders", json={"id": 200, "who": "eve", "n": 3})
        first = next(e for e in stream if e["event"] == "changes")
        assert json.loads(first["data"])["rows"] == [{"weight": 1, "who": "eve", "total": 3, "c": 1}]
    sql(client, "INSERT INTO orders VALUES (201, 'eve', 4, NULL)")
    with client.stream("GET", "/v1/views/totals/changes", headers={"Last-Event-ID": first["id"]}) as response:
        second = next(e for e in events(response.iter_lines()) if e.get("event") == "changes")
        weights = {(r["weight"], r["total"]) for r in json.loads(second["data"])["rows"]}
        assert weights == {(-1, 3), (1, 7)} and int(second["id"]) > int(first["id"])
    error(client.get("/v1/views/totals/changes", headers={"Last-Event-ID": "99999999"}), 400)
    error(client.get("/v1/views/totals/changes", headers={"Last-Event-ID": "x"}), 400)
    error(client.get("/v1/views/nope/changes"), 404)


def test_health_readiness_and_description(client: httpx.Client) -> None:
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/ready").json()["status"] == "ready"
    described = client.get("/openapi.json").json()
    listed = {(method.upper(), path) for path, found in described["paths"].items() for method in found}
    assert listed == {(e.method, e.path) for e in ENDPOINTS}


def test_another_site_cannot_use_the_browser(client: httpx.Client) -> None:
    body = {"json": {"sql": "SELECT 1"}}
    error(client.post("/v1/sql", **body, headers={"Origin": "http://evil.example"}), 403)  # type: ignore[arg-type]
    error(client.post("/v1/sql", **body, headers={"Host": "evil.example"}), 403)  # type: ignore[arg-type]
    error(client.post("/v1/sql", content=b'{"sql": "SELECT 1"}', headers={"Content-Type": "text/plain"}), 415)


def test_curl(server: ServedPond) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    url = server.url("http")
    command = [
        "curl",
        "-sS",
        "-f",
        f"{url}/v1/sql",
        "--json",
        '{"sql": "SELECT 42 AS n"}',
        "-H",
        "Accept: text/csv",
    ]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"n\r\n42\r\n"


def test_half_open_and_garbage_connections_harm_only_themselves(
    server: ServedPond, client: httpx.Client
) -> None:
    port = int(server.url("http").rpartition(":")[2])
    open_ones = []
    for message in (
        b"",
        b"GET / HT",
        b"\x00\xff" * 500,
        b"POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 999999999999\r\n\r\n{",
    ):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(message)
        open_ones.append(connection)
    assert sql(client, "SELECT 1 AS x")["rows"] == [{"x": 1}]
    open_ones[-1].settimeout(20)
    assert b"413" in open_ones[-1].recv(1000)
    for connection in open_ones:
        connection.close()


def test_users_must_log_in(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:secret:with:colons\n")
    with millpond.open(tmp_path / "pond", engine="inline") as opened:
        opened.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1); FLUSH")
    with served(tmp_path / "pond", "--http", "0", "--users", str(users)) as found:
        with httpx.Client(base_url=found.url("http"), timeout=60) as client:
            assert client.get("/health").status_code == client.get("/ready").status_code == 200
            answer = client.post("/v1/sql", json={"sql": "SELECT * FROM t"})
            error(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Basic")
            error(client.get("/metrics"), 401)
            wrong = error(client.get("/v1/views", auth=("ann", "wrong")), 401)
            unknown = error(client.get("/v1/views", auth=("nobody", "wrong")), 401)
            assert wrong == unknown
            for header in (
                "Bearer nope",
                "Basic !!!",
                "Digest x",
                "Basic " + base64.b64encode(b"ann").decode(),
            ):
                error(client.get("/v1/views", headers={"Authorization": header}), 401)
            good = client.post("/v1/sql", json={"sql": "SELECT * FROM t"}, auth=("ann", "secret:with:colons"))
            assert good.json()["rows"] == [{"a": 1}]
        code, _ = found.stop()
        assert code == 0


def test_a_server_that_stops_ends_its_streams(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as opened:
        opened.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1); FLUSH")
    with served(tmp_path / "pond", "--http", "0") as found:
        with httpx.stream("GET", found.url("http") + "/v1/views/t/changes", timeout=60) as response:
            stream = events(response.iter_lines())
            assert [next(stream).get("event"), next(stream).get("event")] == [None, "snapshot"]
            code, errors = found.stop()
            last = list(stream)[-1]
        assert last["event"] == "error" and "shutting down" in last["data"]
        assert code == 0 and "Traceback" not in errors, errors
