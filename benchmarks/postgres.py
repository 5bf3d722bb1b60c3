"""PostgreSQL as a target and as a source, beside what a user would write without Millpond.

Law: the target has the rows of the view, and the copy those of the table, before a figure is shown.  All
contenders use one server, in turns; the CPU is that of this process, without the server's.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import report
from benchmarks.serving.postgres_peer import postgres

COLUMNS = "id bigint PRIMARY KEY, name text, price double precision, quantity bigint"
LOGICAL = {"wal_level": "logical"}


@dataclass(frozen=True)
class Figure:
    name: str
    rows_per_second: float
    rows_per_cpu_second: float


def run(rows: int, rounds: int, console: Console) -> None:
    contenders: dict[str, Callable[[str, int, Path], Figure]] = {
        "upserts of a view": upserts_of_a_view,
        "COPY of the same rows": plain_copy,
        "COPY and INSERT … ON CONFLICT by hand": upserts_by_hand,
        "changes of a table (CDC)": changes,
    }
    found: dict[str, list[Figure]] = {name: [] for name in contenders}
    with postgres(LOGICAL) as address:
        for turn in range(rounds):
            for name, measure in contenders.items():
                with tempfile.TemporaryDirectory(prefix="bench-pond-") as place:
                    figure = measure(address, rows, Path(place))
                found[name].append(figure)
                console.print(f"{turn + 1}. {name}: {figure.rows_per_second:,.0f} rows/s")
    shown = Table("", "rows/s", "rows/CPU s", title=f"{rows:,} rows, median of {rounds} turns")
    medians = {name: _median(name, figures) for name, figures in found.items()}
    for name, figure in medians.items():
        shown.add_row(name, f"{figure.rows_per_second:,.0f}", f"{figure.rows_per_cpu_second:,.0f}")
    console.print(shown)
    path = report.keep(
        "postgres", {"rows": rows, "turns": {n: [asdict(f) for f in fs] for n, fs in found.items()}}
    )
    console.print(f"written: benchmarks/results/{path.name}")


def _median(name: str, figures: list[Figure]) -> Figure:
    rates = [figure.rows_per_second for figure in figures]
    return Figure(name, statistics.median(rates), statistics.median(f.rows_per_cpu_second for f in figures))


def _timed(name: str, rows: int, act: Callable[[], Any]) -> Figure:
    wall, cpu = time.monotonic(), time.process_time()
    act()
    return Figure(name, rows / (time.monotonic() - wall), rows / (time.process_time() - cpu))


def made(rows: int, round_: int) -> pa.Table:
    """Rows whose keys stay, and whose values change from round to round."""
    ids = list(range(rows))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"name {n % 1000}" for n in ids],
            "price": [(n + round_) / 8 for n in ids],
            "quantity": pa.array([n % 100 for n in ids], pa.int64()),
        }
    )


def upserts_of_a_view(address: str, rows: int, place: Path) -> Figure:
    """Half of the rows are new and half replace others; only the delivery is timed."""
    with (
        psycopg.connect(address, autocommit=True) as con,
        millpond.open(place / "pond", engine="inline") as pond,
    ):
        con.execute("DROP TABLE IF EXISTS target, millpond_progress, millpond_refused")
        table = pond.table("sales", made(1, 0).schema, key="id")
        pond.insert("sales", made(rows // 2, 0))
        pond.drain()
        options = f"connector = 'postgres', connection = '{address}', table = 'target'"
        del table
        pond.sql(f"CREATE SINK pg FROM sales WITH ({options}, mode = 'upsert')")
        pond.drain()
        pond.sql("ALTER SINK pg PAUSE")
        pond.insert("sales", made(rows, 1))
        pond.drain()

        def deliver() -> None:
            pond.sql("ALTER SINK pg RESUME")
            pond.drain()

        figure = _timed("upserts", rows, deliver)
        count = con.execute("SELECT count(*), sum(price) FROM target").fetchone()
        assert count == (rows, sum((n + 1) / 8 for n in range(rows))), count
        return figure


def plain_copy(address: str, rows: int, place: Path) -> Figure:
    """COPY of text into a table with the same key."""
    with psycopg.connect(address) as con:
        con.execute("DROP TABLE IF EXISTS target")
        con.execute(f"CREATE TABLE target ({COLUMNS})")
        con.commit()
        table = made(rows, 1)

        def copy() -> None:
            _copy(con, "target", table)
            con.commit()

        return _timed("copy", rows, copy)


def upserts_by_hand(address: str, rows: int, place: Path) -> Figure:
    """What a user would write for the same result: COPY into a temporary table, and INSERT … ON CONFLICT."""
    with psycopg.connect(address) as con:
        con.execute("DROP TABLE IF EXISTS target")
        con.execute(f"CREATE TABLE target ({COLUMNS})")
        _copy(con, "target", made(rows // 2, 0))
        con.commit()
        table = made(rows, 1)

        def upsert() -> None:
            con.execute("CREATE TEMP TABLE fresh ON COMMIT DROP AS SELECT * FROM target WITH NO DATA")
            _copy(con, "fresh", table)
            con.execute(
                "INSERT INTO target SELECT * FROM fresh ON CONFLICT (id) DO UPDATE SET name = excluded.name,"
                " price = excluded.price, quantity = excluded.quantity"
            )
            con.commit()

        return _timed("by hand", rows, upsert)


def _copy(con: Any, name: str, table: pa.Table) -> None:
    text = io.BytesIO()
    pyarrow.csv.write_csv(table, text, pyarrow.csv.WriteOptions(include_header=False))
    with con.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
        copy.write(text.getbuffer())


def changes(address: str, rows: int, place: Path) -> Figure:
    """Inserts on the server until they are in a table of the pond; the first copy is not timed."""
    with (
        psycopg.connect(address, autocommit=True) as con,
        millpond.open(place / "pond", engine="inline") as pond,
    ):
        con.execute("DROP TABLE IF EXISTS source")
        con.execute(f"CREATE TABLE source ({COLUMNS})")
        pond.sql(f"CREATE TABLE source WITH (connector = 'postgres-cdc', connection = '{address}')")
        pond.drain()
        _copy(con, "source", made(rows, 1))
        figure = _timed("changes", rows, pond.drain)
        assert pond.sql("SELECT count(*) FROM source").fetchall() == [(rows,)]
        (slot,) = con.execute("SELECT slot_name FROM pg_replication_slots").fetchone() or ("",)
        pond.close()
        con.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        con.execute(f'DROP PUBLICATION "{slot}"')
        return figure
