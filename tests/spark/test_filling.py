"""A view that is filled on Spark while rows keep coming: chunks take turns with epochs, and a restart goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import millpond
from millpond.engine.change.backfill import Progress
from millpond.pond import Pond
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest

ROWS = 3000
OPTIONS: dict[str, Any] = {
    "engine": "spark",
    "durable": False,
    "checks": True,
    "poll_ms": 5,
    "parallelism": 2,
    "epoch_rows_max": ROWS // 4,  # a chunk takes in no more either
}
OLD = "SELECT k, count(*) AS n FROM t GROUP BY k"
NEW = "SELECT t.k, sum(x) AS s, max(old.n) AS n FROM t JOIN old ON old.k = t.k GROUP BY t.k"


class Crash(BaseException):
    pass


def counted(pond: Pond, view: str, epoch: int) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in pond.read(view, epoch=epoch).to_pylist())


def check(pond: Pond, first: int) -> tuple[int, int]:
    """Law 1 at every epoch from `first` on; how many different answers `old` had, and how many epochs `new`."""
    answers, had = set(), 0
    for epoch in range(first, pond.epoch + 1):
        with duckdb.connect() as batch:
            batch.register("t", pond.read("t", epoch=epoch))
            batch.execute(f"CREATE TABLE old AS {OLD}")
            found = counted(pond, "old", epoch)
            assert found == Counter(batch.sql("FROM old").fetchall()), f"old at epoch {epoch}"
            answers.add(str(sorted(found)))
            if "new" in pond._reader.plan_of(pond.at(epoch).manifest).views:
                assert counted(pond, "new", epoch) == Counter(batch.sql(NEW).fetchall()), (
                    f"new at epoch {epoch}"
                )
                had += 1
    return len(answers), had


def test_a_view_is_filled_between_epochs_and_goes_on_after_a_restart(session: Any, tmp_path: Path) -> None:
    told: list[Progress] = []
    fed = iter(range(ROWS, 10 * ROWS, 100))

    def feed(progress: Progress) -> None:
        """More rows whenever a chunk is in, some of them in the place of others."""
        told.append(progress)
        start = next(fed)
        rows = [{"id": i % (ROWS + 200), "k": i % 11, "x": i} for i in range(start, start + 100)]
        pond.insert("t", rows)

    def crash(manifest: Manifest) -> None:
        if manifest.backfill is not None and manifest.backfill.chunks == 2:
            raise Crash

    pond = millpond.open(tmp_path / "pond", spark=session, **OPTIONS)
    pond.sql(f"CREATE TABLE t (id int PRIMARY KEY, k int, x int); CREATE MATERIALIZED VIEW old AS {OLD}")
    pond.insert("t", [{"id": i, "k": i % 7, "x": i} for i in range(ROWS)])
    pond.drain()
    first = pond.epoch
    pond.session.on_progress = feed
    pond.on_epoch(crash)
    with pytest.raises(Crash):
        pond.sql(f"CREATE MATERIALIZED VIEW new AS {NEW}")
    pond.close()

    pond = millpond.open(tmp_path / "pond", spark=session, **OPTIONS)
    pond._listeners.on_progress = feed
    assert "new" not in pond.views()
    pond.drain()
    assert "new" in pond.views()
    assert [p.chunks for p in told] == list(range(1, len(told) + 1)), "no chunk was done twice"
    during = [m for e in history.epochs(pond.store) if (m := pond.at(e).manifest).backfill is not None]
    assert len([m for m in during if m.admitted]) >= 3, "epochs with rows, while the view was filled"
    pond.insert("t", [{"id": 1, "k": 5, "x": -1}])
    pond.drain()
    answers, had = check(pond, first)
    assert answers >= 3 and had >= 2
    pond.close()
