"""No statement reads or writes files, the network, other databases or the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import MillpondError
from millpond.pond import Pond

SECRET = "TOPSECRET"
RELATIONS = """
    read_csv('{file}') | read_text('{file}') | read_blob('{file}') | read_json('{file}') | read_parquet('{file}')
    '{file}' | glob('{folder}/*') | sniff_csv('{file}') | parquet_metadata('{file}') | read_duckdb('{file}')
    duckdb_secrets() | duckdb_extensions() | 'https://example.com/x.csv' | read_csv('https://example.com/x.csv')
    query('select * from read_text(''{file}'')') | query_table('t') | sqlite_scan('{file}', 'x')
    postgres_scan('a', 'b', 'c') | arrow_scan(1, 2, 3) | pandas_scan(1) | enable_logging() | force_checkpoint()
    json_execute_serialized_sql(json_serialize_sql('select * from read_text(''{file}'')'))
"""
VALUES = """
    getenv('BANK_TOKEN') | pg_read_file('{file}') | file_exists('{file}') | system('ls') | load_extension('x')
    set_config('enable_external_access', 'true', false) | nextval('x') | (SELECT content FROM read_text('{file}'))
"""
STATEMENTS = """
    COPY t TO '{folder}/out.csv' | COPY t FROM '{file}' | COPY (SELECT 1) TO '{folder}/out.csv'
    ATTACH '{folder}/other.db' | DETACH main | USE other | INSTALL httpfs | LOAD httpfs | CHECKPOINT
    EXPORT DATABASE '{folder}/export' | IMPORT DATABASE '{folder}/export' | PRAGMA database_list
    SET enable_external_access = true | RESET enable_external_access | CALL pragma_version()
"""


def cases(text: str) -> list[str]:
    return [case.strip() for line in text.strip().splitlines() for case in line.split(" | ")]


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "secret.csv").write_text(f"a\n{SECRET}\n")
    os.environ["BANK_TOKEN"] = SECRET
    with millpond.open(folder / "pond", engine="inline") as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY, x text); INSERT INTO t VALUES (1, 'a'); FLUSH")
        yield made
    del os.environ["BANK_TOKEN"]


def refused(pond: Pond, sql: str) -> None:
    folder = Path(pond.store.uri.removeprefix("file://")).parent
    text = sql.replace("{file}", str(folder / "secret.csv")).replace("{folder}", str(folder))
    before = sorted(p.name for p in folder.iterdir())
    with pytest.raises(MillpondError) as error:
        _ = pond.sql(text).fetchall()
    assert SECRET not in str(error.value)
    assert sorted(p.name for p in folder.iterdir()) == before
    assert pond.sql("FLUSH; SELECT * FROM t").fetchall() == [(1, "a")]


@pytest.mark.parametrize("relation", cases(RELATIONS))
def test_no_relation(pond: Pond, relation: str) -> None:
    refused(pond, f"SELECT * FROM {relation}")
    refused(pond, f"INSERT INTO t SELECT 2, a.* FROM {relation} AS a")


@pytest.mark.parametrize("value", cases(VALUES))
def test_no_value(pond: Pond, value: str) -> None:
    for sql in (
        f"SELECT {value}",
        f"INSERT INTO t VALUES (2, {value})",
        f"UPDATE t SET x = {value}",
        f"DELETE FROM t RETURNING {value}",
        f"CREATE VIEW w AS SELECT {value} AS x",
        f"CREATE MATERIALIZED VIEW m AS SELECT id, {value} AS x FROM t",
        f"CREATE TABLE z (id int, x text DEFAULT {value})",
        f"CREATE FUNCTION f() AS {value}",
    ):
        refused(pond, sql)


@pytest.mark.parametrize("statement", cases(STATEMENTS))
def test_no_statement(pond: Pond, statement: str) -> None:
    refused(pond, statement)


def test_no_transaction(pond: Pond) -> None:
    """Not even one that a client wrote by itself, which the pond executes."""
    good = {"table": "t", "name": "t", "verb": "update", "reads": []}
    folder = Path(pond.store.uri.removeprefix("file://")).parent
    for value in (f"(SELECT content FROM read_text('{folder}/secret.csv'))", "getenv('BANK_TOKEN')"):
        items = [{**good, "sql": f"UPDATE t SET x = {value}"}]
        pond._inbox.append("transaction", {"items": items}, b"")
        pond._inbox.append("transaction", {"items": [*items, {"verb": "require", "sql": value}]}, b"")
    pond.sql("FLUSH")
    assert pond.errors().num_rows == 4
    assert pond.sql("SELECT * FROM t").fetchall() == [(1, "a")]
