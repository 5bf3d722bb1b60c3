"""Is a system's answer to a query the batch answer?

Law: rows are compared as multisets, column by column in order, in the types that DuckDB gives the batch
answer; floating numbers to nine digits, since systems add them up in different orders. Of windows only those
count that have ended for every system.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.nexmark import queries
from benchmarks.nexmark.queries import Query

LAG = "INTERVAL 4 SECOND"  # of the watermark behind the newest event


def connect(folder: Path, cores: int = 2) -> duckdb.DuckDBPyConnection:
    """DuckDB with the tables of the input."""
    connection = duckdb.connect(config={"threads": cores})
    connection.execute("SET TimeZone = 'UTC'")
    for table in ("person", "auction", "bid", "side_input"):
        place = folder / table / "*.parquet"
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{place}')")
    return connection


def expected(connection: duckdb.DuckDBPyConnection, query: Query) -> pa.Table:
    return connection.sql(queries.text("duckdb", query.name)).to_arrow_table()


def differences(connection: duckdb.DuckDBPyConnection, query: Query, found: pa.Table) -> list[str]:
    """What is wrong with `found`, in words; nothing when it is right.  `connection` has the input."""
    wanted = expected(connection, query)
    if query.check == "shape":
        return _too_many(connection, wanted, found)
    if found.num_columns != wanted.num_columns:
        return [f"{found.num_columns} columns found, {wanted.num_columns} expected"]
    connection.register("wanted_raw", wanted)
    connection.register("found_raw", found.rename_columns(wanted.schema.names))
    kinds = connection.sql("SELECT * FROM wanted_raw").types
    columns = ", ".join(_comparable(n, str(t)) for n, t in zip(wanted.schema.names, kinds, strict=True))
    bound = ""
    if query.check == "closed":
        newest = ", ".join(f"(SELECT max(date_time) FROM {table})" for table in query.reads)
        bound = f"WHERE {query.ends} <= least({newest}) - {LAG}"
    for side in ("wanted", "found"):
        made = (
            f"CREATE OR REPLACE TEMP TABLE {side} AS SELECT * FROM (SELECT {columns} FROM {side}_raw) {bound}"
        )
        connection.execute(made)
    wrong = []
    for what, one, other in (("missing", "wanted", "found"), ("too many", "found", "wanted")):
        rows = connection.sql(f"FROM {one} EXCEPT ALL FROM {other}").fetchall()
        if rows:
            wrong.append(f"{len(rows)} rows {what}, such as {rows[0]}")
    ((checked,),) = connection.sql("SELECT count(*) FROM wanted").fetchall()
    return wrong if wrong or checked else ["the batch answer is empty: the input is too small to tell"]


def _comparable(name: str, kind: str) -> str:
    if kind in ("DOUBLE", "FLOAT"):
        return f"CAST(printf('%.9g', CAST({name} AS DOUBLE)) AS DOUBLE) AS {name}"
    return f"CAST({name} AS {kind}) AS {name}"


def _too_many(connection: duckdb.DuckDBPyConnection, wanted: pa.Table, found: pa.Table) -> list[str]:
    bidder, count = found.schema.names[:2]
    connection.register("wanted_raw", wanted)
    connection.register("found_raw", found)
    rows = connection.sql(
        f"SELECT f.bidder, f.n, w.bid_count FROM (SELECT CAST({bidder} AS BIGINT) AS bidder,"
        f" sum(CAST({count} AS BIGINT)) AS n FROM found_raw GROUP BY 1) AS f"
        " LEFT JOIN wanted_raw AS w USING (bidder) WHERE w.bidder IS NULL OR f.n > w.bid_count"
    ).fetchall()
    return [f"more bids than there are of {len(rows)} bidders, such as {rows[0]}"] if rows else []
