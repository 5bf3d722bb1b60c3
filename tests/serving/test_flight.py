"""Arrow Flight SQL of a real `millpond serve` process, with the ADBC driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import millpond
from millpond.server.flight.messages import packed
from tests.serving.served_process import ServedPond, served

dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
errors = pytest.importorskip("adbc_driver_manager")

SETUP = """
CREATE TABLE orders (id int PRIMARY KEY, who text NOT NULL, n int, price decimal(10, 2), at timestamp);
CREATE MATERIALIZED VIEW totals AS SELECT who, sum(n) AS total FROM orders GROUP BY who;
CREATE VIEW small AS SELECT * FROM orders WHERE n < 10;
INSERT INTO orders VALUES (1, 'ann', 5, 1.25, '2024-01-02 03:04:05'), (2, 'bob', 70, NULL, NULL);
FLUSH
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPond]:
    folder = tmp_path_factory.mktemp("flight")
    users = folder / "users"
    users.write_text("ann:secret\n")
    with millpond.open(folder / "pond", engine="inline") as opened:
        opened.sql(SETUP)
    with served(folder / "pond", "--flight", "0", "--users", str(users), "--admin", "ann") as found:
        yield found


def connected(server: ServedPond, name: str = "ann", password: str = "secret") -> Any:
    return dbapi.connect(
        server.url("grpc"), db_kwargs={"username": name, "password": password}, autocommit=True
    )


@pytest.fixture(scope="module")
def connection(server: ServedPond) -> Iterator[Any]:
    with connected(server) as made:
        yield made


def rows(connection: Any, text: str, params: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(text, params) if params is not None else cursor.execute(text)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def test_queries_give_arrow(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM orders ORDER BY id")
        table = cursor.fetch_arrow_table()
    assert table.schema.field("id").type == pa.int32() and table.schema.field("price").type == pa.decimal128(
        10, 2
    )
    assert table.column("who").to_pylist() == ["ann", "bob"]
    assert rows(connection, "SELECT count(*) FROM totals AS OF EPOCH 0") == [(0,)]
    assert rows(connection, "SELECT 1 WHERE false") == []


def test_parameters_are_bound(connection: Any) -> None:
    assert rows(connection, "SELECT who FROM orders WHERE id = $1", [2]) == [("bob",)]
    assert rows(connection, "SELECT who FROM orders WHERE id = ? AND who = ?", (1, "ann")) == [("ann",)]
    assert rows(connection, "SELECT $1 AS x", ["'; DROP TABLE orders"]) == [("'; DROP TABLE orders",)]
    assert rows(connection, "SELECT who FROM orders WHERE id = $1", [99]) == []


def test_changes_are_read_back(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders (id, who, n) VALUES (10, 'cy', 1)")
        assert rows(connection, "SELECT total FROM totals WHERE who = 'cy'") == [(1,)]
        cursor.executemany(
            "INSERT INTO orders (id, who, n) VALUES ($1, $2, $3)", [(11, "cy", 2), (12, "cy", 3)]
        )
        assert cursor.rowcount == 2
        assert rows(connection, "SELECT total FROM totals WHERE who = 'cy'") == [(6,)]
        cursor.execute("DELETE FROM orders WHERE who = 'cy'")
    assert rows(connection, "SELECT total FROM totals WHERE who = 'cy'") == []


def test_changes_of_one_command_are_one_transaction(connection: Any) -> None:
    with connection.cursor() as cursor:
        with pytest.raises(errors.ProgrammingError, match="not-null"):
            cursor.execute("INSERT INTO orders (id, who) VALUES (20, 'dee'); UPDATE orders SET who = NULL")
        with pytest.raises(errors.ProgrammingError, match="not-null"):
            cursor.executemany("INSERT INTO orders (id, who) VALUES ($1, $2)", [(21, "dee"), (22, None)])
        assert rows(connection, "SELECT * FROM orders WHERE id >= 20") == []
        (before,) = rows(connection, "SELECT max(epoch) FROM millpond.epochs")
        cursor.executemany(
            "INSERT INTO orders (id, who) VALUES ($1, $2)", [(n, "dee") for n in range(20, 120)]
        )
        assert cursor.rowcount == 100
        cursor.execute("DELETE FROM orders WHERE id = 20; DELETE FROM orders WHERE id > 20")
        (after,) = rows(connection, "SELECT max(epoch) FROM millpond.epochs")
        assert after[0] - before[0] <= 4
    assert rows(connection, "SELECT * FROM orders WHERE id >= 20") == []


def test_bulk_ingestion(connection: Any) -> None:
    table = pa.table({"k": pa.array(range(1000), pa.int64()), "v": [f"v{n}" for n in range(1000)]})
    with connection.cursor() as cursor:
        assert cursor.adbc_ingest("bulk", table, mode="create") == 1000
        assert rows(connection, "SELECT count(*), max(k) FROM bulk") == [(1000, 999)]
        with pytest.raises(errors.ProgrammingError, match="already"):
            cursor.adbc_ingest("bulk", table, mode="create")
        assert cursor.adbc_ingest("bulk", table.to_reader(max_chunksize=100), mode="append") == 1000
        assert rows(connection, "SELECT count(*) FROM bulk") == [(2000,)]
        assert cursor.adbc_ingest("bulk", table.slice(0, 5), mode="replace") == 5
        assert rows(connection, "SELECT count(*) FROM bulk") == [(5,)]
        with pytest.raises(errors.ProgrammingError, match="no table named"):
            cursor.adbc_ingest("nosuch", table, mode="append")
        with pytest.raises(errors.ProgrammingError, match="lack column"):
            cursor.adbc_ingest("bulk", table.select(["k"]), mode="append")
    assert rows(connection, "SELECT count(*) FROM bulk") == [(5,)]


def test_catalogs_tables_and_columns(connection: Any) -> None:
    (catalog,) = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    assert catalog["catalog_name"] == "pond"
    (schema,) = catalog["catalog_db_schemas"]
    tables = {t["table_name"]: t for t in schema["db_schema_tables"]}
    assert {name: t["table_type"] for name, t in tables.items() if name != "bulk"} == {
        "orders": "TABLE",
        "small": "VIEW",
        "totals": "MATERIALIZED VIEW",
    }
    assert [c["column_name"] for c in tables["orders"]["table_columns"]] == ["id", "who", "n", "price", "at"]
    some = connection.adbc_get_objects(
        depth="tables", table_name_filter="tot%", table_types_filter=["MATERIALIZED VIEW"]
    )
    found = some.read_all().to_pylist()[0]["catalog_db_schemas"][0]["db_schema_tables"]
    assert [t["table_name"] for t in found] == ["totals"]
    assert connection.adbc_get_table_schema("orders").field("who").nullable is False
    assert set(connection.adbc_get_table_types()) == {"TABLE", "VIEW", "MATERIALIZED VIEW"}
    assert connection.adbc_get_info()["vendor_name"] == "Millpond"


def test_errors_have_our_fields_and_no_stack(connection: Any) -> None:
    with pytest.raises(errors.ProgrammingError) as caught:
        rows(connection, "SELECT nope FROM orders")
    text = str(caught.value)
    assert "INVALID_ARGUMENT" in text and "detail: in the statement" in text
    assert "SELECT nope FROM orders\n" in text, "the text of the user"
    assert "Traceback" not in text and ".py" not in text
    with pytest.raises(errors.ProgrammingError, match="no statement begins"):
        rows(connection, "FROBNICATE")


def test_wrong_logins_are_refused(server: ServedPond) -> None:
    for name, password in (("ann", "wrong"), ("nobody", "secret")):
        with pytest.raises(errors.Error, match="the login failed"):
            connected(server, name, password)
    with flight.connect(server.url("grpc")) as client:
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_actions())
        options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer nosuch")])
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_actions(options))


def test_a_plain_client(server: ServedPond) -> None:
    """Commands that the ADBC driver does not send, by messages of our own."""
    with flight.connect(server.url("grpc")) as client:
        token = client.authenticate_basic_token("ann", "secret")
        options = flight.FlightCallOptions(headers=[token])

        def ask(name: str, **fields: Any) -> pa.Table:
            info = client.get_flight_info(
                flight.FlightDescriptor.for_command(packed(name, **fields)), options
            )
            found = client.do_get(info.endpoints[0].ticket, options).read_all()
            assert found.schema == info.schema
            return found

        (key,) = ask("CommandGetPrimaryKeys", table="orders").to_pylist()
        assert (key["column_name"], key["key_sequence"]) == ("id", 1)
        assert ask("CommandGetPrimaryKeys", table="totals").column("column_name").to_pylist() == ["who"]
        assert ask("CommandGetExportedKeys", table="orders").num_rows == 0
        assert ask("CommandGetDbSchemas", db_schema_filter_pattern="x%").num_rows == 0
        assert ask("CommandGetXdbcTypeInfo", data_type=4).column("type_name").to_pylist() == ["INTEGER"]
        assert ask("CommandStatementQuery", query="SELECT 7 AS x").to_pylist() == [{"x": 7}]
        for raw in (b"", b"\xff\xff", packed("DoPutUpdateResult", record_count=1)):
            with pytest.raises(pa.ArrowInvalid):
                client.get_flight_info(flight.FlightDescriptor.for_command(raw), options)
        with pytest.raises(pa.ArrowInvalid, match="no such prepared statement"):
            client.do_get(
                flight.Ticket(packed("TicketStatementQuery", statement_handle=b"x")), options
            ).read_all()
        with pytest.raises(pa.ArrowInvalid, match="no action"):
            list(client.do_action(flight.Action("Frob", b""), options))


def test_prepared_statements_of_others_are_not_found(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:a\nbob:b\n")
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1); FLUSH")
        with (
            pond.serve(flight_port=0, users=users) as server,
            flight.connect(server.urls["flight"]) as client,
        ):
            options = {
                name: flight.FlightCallOptions(headers=[client.authenticate_basic_token(name, name[0])])
                for name in ("ann", "bob")
            }
            command = flight.FlightDescriptor.for_command(
                packed("CommandStatementQuery", query="SELECT * FROM t")
            )
            ticket = client.get_flight_info(command, options["ann"]).endpoints[0].ticket
            with pytest.raises(pa.ArrowInvalid, match="no such prepared statement"):
                client.do_get(ticket, options["bob"]).read_all()
            assert client.do_get(ticket, options["ann"]).read_all().to_pylist() == [{"a": 1}]
