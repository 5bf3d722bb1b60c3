"""A time of day with a zone keeps its offset: in results, parameters, tables and views."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa

import millpond
from millpond.server.pgwire.binary_format import binary_column
from millpond.server.pgwire.parameter_values import value_of
from millpond.sql.pg_catalog import pg_types as pg
from millpond.sql.pg_catalog.pg_types import ColumnType

AT = datetime.time(10, 0, tzinfo=datetime.timezone(datetime.timedelta(hours=3, minutes=30)))
WEST = datetime.time(23, 59, 0, 500_000, tzinfo=datetime.timezone(-datetime.timedelta(hours=5)))


def test_reads_and_views(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        read = "SELECT '10:00:00+03:30'::timetz AS x, 1 AS x, ARRAY['23:59:00.5-05'::timetz, NULL] -- the end"
        assert pond.sql(read).fetchall() == [(AT, 1, [WEST, None])]
        assert pond.sql(read).columns[:2] == ["x", "x"]
        pond.sql("""CREATE TABLE z (id int PRIMARY KEY, t timetz);
            CREATE MATERIALIZED VIEW n AS SELECT t, count(*) AS n FROM z GROUP BY t;
            INSERT INTO z VALUES (1, '10:00:00+03:30'), (2, '10:00:00'); FLUSH""")
        pond.sql("INSERT INTO z VALUES (3, $1); FLUSH", params=[AT])
        utc = datetime.time(10, 0, tzinfo=datetime.UTC)
        assert pond.sql("SELECT t FROM z ORDER BY id DESC").fetchall() == [(AT,), (utc,), (AT,)]
        assert pond.sql("SELECT t FROM z WHERE id = 3").fetchall() == [(AT,)]
        assert set(pond.sql("SELECT * FROM n")) == {(utc, 1), (AT, 2)}
        pond.sql("UPDATE z SET t = $1 WHERE id = 2; DELETE FROM z WHERE id = 1; FLUSH", params=[WEST])
        assert set(pond.sql("SELECT * FROM n")) == {(AT, 1), (WEST, 1)}
        given = pond.sql("SELECT $1, $1::timetz::text, $2", params=[AT, datetime.time(3, 4)])
        assert given.fetchall() == [(AT, "10:00:00+03:30", datetime.time(3, 4))]


def test_clients_of_postgres_send_and_get_the_offset() -> None:
    texts = pa.array(["10:00:00+03:30", None, "23:59:00.5-05"])
    sent = binary_column(texts, "TIME WITH TIME ZONE", ColumnType(pg.TIMETZ)).to_pylist()
    assert sent[1] is None
    assert [value_of(sent[0], 1266, 1), value_of(sent[2], 1266, 1)] == [AT, WEST]
    assert sent[0][8:] == (-12_600).to_bytes(4, "big", signed=True)  # PostgreSQL counts to the west
