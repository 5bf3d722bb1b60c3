"""Makes a golden pond with pins: of a fork, and of a reader that is gone.

    python tests/golden/make_pins.py NAME

`pins-1` was made with the code of 17 November 2026, the last one that wrote pins without a number of their
format, and `pins-2` with the first one that this file was in.  `test_pins.py` opens, reads, continues and
rolls back a copy with today's code.  A golden pond is never made again.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

import millpond
from millpond.clock import ManualClock

try:
    from millpond.state.manifest.pins import pin
except ImportError:  # the code that made pins-1
    from millpond.state.pins import pin  # type: ignore[import-not-found, no-redef]

HERE = Path(__file__).parent
START_US = 1_767_603_600_000_000
READER_END_US = START_US + 600_000_000
FORKED, READ = 3, 5  # epochs that are pinned
SETTINGS = {"retain_epochs": 2, "collect_every": 1, "compact": False}
SQL = """
CREATE TABLE orders (id int PRIMARY KEY, amount int);
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(amount) AS total FROM orders;
"""


def build(folder: Path) -> None:
    clock = ManualClock(START_US)
    with millpond.open(folder, engine="inline", clock=clock, **SETTINGS) as pond:  # type: ignore[arg-type]
        pond.sql(SQL)
        for number in range(1, 12):
            pond.sql(f"INSERT INTO orders VALUES ({number}, {10 * number}); FLUSH")
            if pond.epoch == FORKED:
                pin(pond.store, FORKED, None, why="fork file:///somewhere/else")
            if pond.epoch == READ:
                pin(pond.store, READ, READER_END_US, last=READ + 1)
                pond.compact()  # from here on the runs before are needed by pinned epochs only


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "pond")
        (HERE / name).mkdir()
        with tarfile.open(HERE / name / "pond.tar.xz", "w:xz") as archive:
            for path in sorted((Path(folder) / "pond").rglob("*")):
                archive.add(
                    path, str(path.relative_to(Path(folder) / "pond")), recursive=False, filter=anonymous
                )


def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main(sys.argv[1])
