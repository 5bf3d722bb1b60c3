"""Makes a golden pond with access rules, and a golden backup of it.

    python tests/golden/make_backup.py

It was made with the code of 20 November 2026, which writes version 1 of both formats.  `test_backup.py` reads
the rules, restores a copy of the backup, continues and rolls back with today's code.  It is never made again.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import millpond
from millpond.clock import ManualClock
from tests.golden.make_pins import anonymous

HERE = Path(__file__).parent
START_US = 1_767_603_600_000_000
SQL = """
CREATE TABLE orders (id int PRIMARY KEY, amount int);
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(amount) AS total FROM orders;
INSERT INTO orders VALUES (1, 10), (2, 20);
FLUSH;
CREATE ROLE readers;
CREATE USER ann PASSWORD 'a golden password';
GRANT readers TO ann;
GRANT SELECT ON total TO readers
"""


def build(folder: Path) -> None:
    clock = ManualClock(START_US)
    with millpond.open(folder / "pond", engine="inline", clock=clock) as pond:
        pond.sql(SQL)
        pond.savepoint("monday")
        pond.sql("INSERT INTO orders VALUES (3, 30); FLUSH")
        pond.backup(folder / "backup")


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        build(folder)
        (HERE / "backup-1").mkdir()
        for name in ("pond", "backup"):
            with tarfile.open(HERE / "backup-1" / f"{name}.tar.xz", "w:xz") as archive:
                for path in sorted((folder / name).rglob("*")):
                    archive.add(path, str(path.relative_to(folder / name)), recursive=False, filter=anonymous)


if __name__ == "__main__":
    main()
