"""SHOW JOBS: what runs and what waits; and IF [NOT] EXISTS on everything that comes and goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.engine.change.backfill import Progress
from millpond.errors import MillpondError
from millpond.pond import Pond
from millpond.state import inbox


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", epoch_rows_max=200) as made:
        yield made


def jobs(pond: Pond) -> list[tuple[Any, ...]]:
    return pond.sql("SHOW JOBS").fetchall()


def test_a_backfill_is_seen_while_it_runs(pond: Pond) -> None:
    """From another thread, which is not kept waiting for it."""
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t SELECT i, i FROM range(1000) r(i); FLUSH"
    )
    seen: list[tuple[Any, ...]] = []

    def look(progress: Progress) -> None:
        other = threading.Thread(target=lambda: seen.extend(jobs(pond)))
        other.start()
        other.join(timeout=120)

    pond.session.on_progress = look
    pond.sql("CREATE MATERIALIZED VIEW v AS SELECT x % 10 AS k, count(*) AS n FROM t GROUP BY k")
    assert len(seen) >= 2, "a job a chunk"
    kind, what, state, rows, total, unit, _ = seen[0]
    assert (kind, what, state, unit) == ("backfill", "v", "running", "rows") and 0 < rows < total
    assert [job[3] for job in seen] == sorted(job[3] for job in seen)
    assert jobs(pond) == []


def test_what_waits_in_the_inbox_is_told_by_any_process(pond: Pond, tmp_path: Path) -> None:
    assert jobs(pond) == []
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1); INSERT INTO t VALUES (2, 2)"
    )
    pond.sql("UPDATE t SET x = 0")
    inbox.append(pond.store, "rescale", {"parallelism": 3})
    wanted = [
        ("rows", "t", "waiting", 0, 1, "entries", None),
        ("change of rows", "t", "waiting", 0, 1, "entries", None),
        ("rescale", "parallelism 3", "waiting", 0, 1, "entries", None),
    ]
    with millpond.open(tmp_path / "pond", engine="inline") as other:
        assert jobs(other) == jobs(pond) == wanted
    pond.sql("FLUSH")
    assert jobs(pond) == []


def test_a_sink_that_fails_is_told(pond: Pond, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("no folder")
    pond.sql(
        "CREATE TABLE t (x int); CREATE SINK s FROM t WITH (connector = 'files', path = ?)",
        params=[str(tmp_path / "out")],
    )
    with pytest.raises(MillpondError):
        pond.sql("INSERT INTO t VALUES (1); FLUSH")
    (job,) = jobs(pond)
    assert job[:3] == ("delivery", "s", "failed") and job[3] < job[4] == pond.epoch
    runner = pond._runner
    assert runner is not None
    runner.drain()  # it is tried again, and fails again
    (job,) = jobs(pond)
    assert job[:3] == ("delivery", "s", "failed") and "sink 's' failed" in job[6]


def test_a_compaction_is_told(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.engine.coordinator import shell

    seen: list[tuple[Any, ...]] = []
    real = shell.compact
    monkeypatch.setattr(shell, "compact", lambda *given: seen.extend(jobs(pond)) or real(*given))
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH; INSERT INTO t VALUES (2); FLUSH"
    )
    pond.compact()
    assert [job[:3] for job in seen] == [("compaction", "t.rows/rows", "running")] and seen[0][6] == "2 runs"


CREATED = {
    "TABLE": "t2 (a int)",
    "SOURCE": "s WITH (connector = 'nexmark', events = 1)",
    "VIEW": "v AS SELECT 1 AS a",
    "MATERIALIZED VIEW": "m AS SELECT a FROM t",
    "SINK": "k FROM t WITH (connector = 'files', path = 'out')",
    "INDEX": "i ON t (a)",
    "SAVEPOINT": "p",
}


@pytest.mark.parametrize("kind", CREATED)
def test_if_exists_and_if_not_exists(
    pond: Pond, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pond.sql("CREATE TABLE t (a int)")
    rest = CREATED[kind]
    name = rest.split()[0]
    pond.sql(
        f"DROP {kind} IF EXISTS {name}; CREATE {kind} IF NOT EXISTS {rest}; CREATE {kind} IF NOT EXISTS {rest}"
    )
    with pytest.raises(MillpondError, match="already"):
        pond.sql(f"CREATE {kind} {rest}")
    pond.sql(f"DROP {kind} {name}; DROP {kind} IF EXISTS {name}")
    with pytest.raises(MillpondError, match=f'no {kind.lower()} named|{kind.lower()} "\\w+" does not exist'):
        pond.sql(f"DROP {kind} {name}")


@pytest.mark.parametrize(
    "what",
    [
        "TABLES",
        "SOURCES",
        "VIEWS",
        "MATERIALIZED VIEWS",
        "SINKS",
        "INDEXES",
        "LATE",
        "OBJECTS",
        "EPOCHS",
        "JOBS",
    ],
)
def test_everything_is_shown_of_an_empty_pond_and_of_one(pond: Pond, what: str) -> None:
    pond.sql(
        "CREATE TABLE t (a int); CREATE MATERIALIZED VIEW m AS SELECT a FROM t; CREATE VIEW v AS SELECT 1 AS a"
    )
    found = pond.sql(f"SHOW {what}")
    assert found.columns and len(found.types) == len(found.columns)
    if what == "VIEWS":
        assert [r[0] for r in found] == ["m", "v"]
    if what == "MATERIALIZED VIEWS":
        assert [r[0] for r in found] == ["m"]
