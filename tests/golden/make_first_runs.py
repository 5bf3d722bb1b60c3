"""Makes a golden pond whose run files have version 1, from before tables shared stacks.

    python tests/golden/make_first_runs.py

It was made with the code of 16 November 2026, the last one that wrote this version.  `test_first_runs.py` opens,
reads, continues and rolls back a copy with today's code.  A golden pond is never made again.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import millpond
from millpond.clock import ManualClock

HERE = Path(__file__).parent
START_US = 1_767_603_600_000_000
SQL = """
CREATE TABLE orders (id int PRIMARY KEY, customer int, item text, amount decimal(10,2));
CREATE MATERIALIZED VIEW totals AS
    SELECT customer, count(*) AS n, sum(amount) AS total, avg(amount) AS mean FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW best AS SELECT id, amount FROM orders ORDER BY amount DESC LIMIT 2;
INSERT INTO orders VALUES (1, 1, 'pen', 20), (2, 2, 'cup', 5.5), (3, 1, 'hat', 7.25);
FLUSH
"""


def build(folder: Path) -> None:
    clock = ManualClock(START_US)
    with millpond.open(folder, engine="inline", parallelism=2, clock=clock) as pond:
        pond.sql(SQL)
        pond.savepoint("monday")
        pond.sql("UPDATE orders SET amount = amount * 2 WHERE customer = 1")
        pond.sql("INSERT INTO orders VALUES (4, 4, 'pen', 11); FLUSH")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "pond")
        (HERE / "runs-1").mkdir()
        with tarfile.open(HERE / "runs-1" / "pond.tar.xz", "w:xz") as archive:
            for path in sorted((Path(folder) / "pond").rglob("*")):
                archive.add(
                    path, str(path.relative_to(Path(folder) / "pond")), recursive=False, filter=anonymous
                )


def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main()
