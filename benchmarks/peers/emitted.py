"""The rows a keyed-state job emitted, made one row a key.

Law: a job that reads and updates a count per record emits, for each key, the counts 1, 2, 3 … each once, in
any order of arrival: one that skipped, doubled or forgot a record is refused here, before it is compared.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa


def final(folder: Path) -> pa.Table:
    """(auction, n, total) of the last row of each key, from Parquet files with every emitted row."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE emitted AS SELECT auction, n, total FROM read_parquet(?)",
            [str(folder / "**" / "*.parquet")],
        )
        wrong = connection.sql(
            "SELECT auction, count(*), count(DISTINCT n), min(n), max(n) FROM emitted GROUP BY auction "
            "HAVING count(*) <> max(n) OR count(DISTINCT n) <> max(n) OR min(n) <> 1 ORDER BY auction"
        ).fetchall()
        if wrong:
            auction, rows, distinct, least, most = wrong[0]
            raise RuntimeError(
                f"{len(wrong)} keys did not get one row a record; the first, {auction}: "
                f"{rows} rows, {distinct} counts from {least} to {most}"
            )
        return connection.sql(
            "SELECT auction, max(n) AS n, arg_max(total, n) AS total FROM emitted GROUP BY auction"
        ).to_arrow_table()
