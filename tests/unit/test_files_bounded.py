"""A pond that runs for months with constant live data has a constant number of files, of every kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.clock import ManualClock
from millpond.engine.change.programs import release_plan, save_plan
from millpond.engine.task.worker import Worker
from millpond.plan.change import renamed
from millpond.pond import Pond
from millpond.state import inbox
from millpond.state.manifest.garbage import find_garbage
from millpond.state.plan_file import plan_names
from millpond.state.store.store import open_store
from tests.waiting import until

CREATE = "CREATE MATERIALIZED VIEW v{0} AS SELECT id % {0} AS k, count(*) AS n FROM t GROUP BY 1"


def opened(path: Path, **options: Any) -> Pond:
    options = {"retain_epochs": 3, "collect_every": 2, "durable": False, "poll_ms": 5, **options}
    return millpond.open(path, engine="inline", **options)


def files(path: Path) -> Counter[str]:
    return Counter(f.relative_to(path).parts[0] for f in path.rglob("*") if f.is_file())


def live(pond: Pond, number: int) -> None:
    """One round of a life: rows come and go, one is bad, views come and go, it is read and opened again."""
    pond.sql(f"INSERT INTO t VALUES ({number}, 'x'); FLUSH")
    pond.sql(f"DELETE FROM t WHERE id <= {number - 5}; FLUSH")
    pond.sql(CREATE.format(number + 2) + "; FLUSH")
    pond.read(f"v{number + 2}")
    pond.sql(f"DROP MATERIALIZED VIEW v{number + 2}; FLUSH")
    pond.savepoint(f"s{number}")
    pond.drop_savepoint(f"s{number}")


def test_files_do_not_grow_with_time(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    path = tmp_path / "pond"
    seen: list[Counter[str]] = []
    counts: list[int] = []
    for number in range(13):
        with opened(path, clock=clock, error_rows_max=16) as pond:
            if number == 0:
                pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text)")
                pond.sql("CREATE MATERIALIZED VIEW bad AS SELECT s::int AS n FROM t")
            live(pond, number)
            clock.advance(86_400_000_000)
            pond.compact()
            for _ in range(4):
                pond.sql(f"UPDATE t SET s = 'y' WHERE id = {number}; FLUSH")
            assert pond._runner is not None
            pond._runner.drain(settle=True)  # a collection runs beside the chain
            head = pond.head()
            counts.append(len(head.counts) + len(head.cursors) + len(head.watermarks) + len(head.positions))
        seen.append(files(path))
    early, late = seen[5:9], seen[-4:]
    for folder in set().union(*seen):
        most = max(found[folder] for found in early)
        assert max(found[folder] for found in late) <= 1.3 * most + 4, (folder, seen)
    assert max(counts[-4:]) <= max(counts[5:9])
    assert seen[-1]["catalog"] < 12


def test_sinks_that_were_dropped_leave_no_cursors(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY)")
        for number in range(6):
            target = tmp_path / f"out{number}"
            pond.sql(f"CREATE SINK k{number} FROM t WITH (connector = 'files', path = '{target}')")
            pond.sql(f"INSERT INTO t VALUES ({number}); FLUSH")
            pond.sql(f"DROP SINK k{number}")
        for number in range(100, 108):
            pond.sql(f"INSERT INTO t VALUES ({number}); FLUSH")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")  # the next change forgets them
        assert pond.head().cursors == {}


# -- plans ------------------------------------------------------------------------------------------


@pytest.fixture
def changed(tmp_path: Path) -> Any:
    with opened(tmp_path / "pond") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY)")
        yield pond


def epochs(pond: Pond, count: int = 8) -> None:
    for number in range(count):
        pond.insert("t", [{"id": number}])
        pond.drain()


def test_plans_that_nobody_needs_are_collected(changed: Pond) -> None:
    pond = changed
    for number in range(2, 12):
        pond.sql(CREATE.format(number))
        pond.sql(f"DROP MATERIALIZED VIEW v{number}")
    epochs(pond)
    assert pond._runner is not None
    pond._runner.drain(settle=True)  # a collection runs beside the epochs; the next one sees what is left
    epochs(pond)
    pond._runner.drain(settle=True)
    assert plan_names(pond.store) == [pond.head().catalog]
    until(lambda: list(pond.store.list("pins/")) == [])


def test_a_savepoint_and_a_pin_keep_their_plan(changed: Pond) -> None:
    pond = changed
    pond.sql(CREATE.format(2))
    pond.savepoint("two")
    kept = pond.head().catalog
    pond.sql("DROP MATERIALIZED VIEW v2")
    pond.sql(CREATE.format(3))
    with pond._reader.pinned() as snapshot:
        pond.sql("DROP MATERIALIZED VIEW v3")
        epochs(pond, 12)
        assert {kept, snapshot.manifest.catalog, pond.head().catalog} <= set(plan_names(pond.store))
    pond.rollback("two")
    assert pond.views() == ["t", "v2"]
    pond.drop_savepoint("two")
    epochs(pond, 12)
    head = pond.head()
    facts: dict[str, Any] = {"spare_from": head.epoch, "token": head.token, "pages": pond._worker.pages}
    found = find_garbage(pond.store, head, now_us=1 << 60, **facts)  # when readers' pins have run out
    assert set(plan_names(pond.store)) - set(found.plans) == {head.catalog}


def test_a_plan_that_was_just_saved_is_kept_until_an_entry_names_it(changed: Pond) -> None:
    """Another process saves a plan; epochs and collections pass before it asks for it, and again after."""
    pond = changed
    epochs(pond)
    other = Worker(open_store(pond.store.uri))
    name = save_plan(other, renamed(pond.plan, "t", "u"))
    epochs(pond)
    assert name in plan_names(pond.store), "its pin keeps it"
    inbox.append(pond.store, "change", {"catalog": name})
    release_plan(other, name)
    until(lambda: list(pond.store.list("pins/")) == [])
    head = pond.head()
    found = find_garbage(
        pond.store, head, spare_from=head.epoch, token=head.token, now_us=0, pages=pond._worker.pages
    )
    assert found.plans == (), "the entry keeps it"
    pond.drain()
    assert pond.head().catalog == name and "u" in pond.views()


def test_a_plan_whose_saver_died_is_collected_when_its_pin_runs_out(changed: Pond) -> None:
    pond = changed
    other = Worker(open_store(pond.store.uri))
    name = save_plan(other, renamed(pond.plan, "t", "u"))
    head = pond.head()
    later = other.plan_pins[name].expires_us
    assert later is not None
    facts: dict[str, Any] = {"spare_from": head.epoch, "token": head.token, "pages": pond._worker.pages}
    assert find_garbage(pond.store, head, now_us=later, **facts).plans == ()
    found = find_garbage(pond.store, head, now_us=later + 1, **facts)
    assert (found.plans, found.pins) == ((name,), (other.plan_pins[name].name,))


def test_the_same_program_is_one_plan(tmp_path: Path) -> None:
    for _ in range(3):
        with opened(tmp_path / "pond", retain_epochs=100) as pond:
            if pond._components.head() is None:
                pond.sql("CREATE TABLE t (id int PRIMARY KEY)")
            epochs(pond, 2)
            assert plan_names(pond.store)[-1:] == [pond.head().catalog] or len(plan_names(pond.store)) == 2
    assert len(plan_names(pond.store)) <= 2


def test_an_entry_that_cannot_be_read_keeps_every_plan(changed: Pond) -> None:
    pond = changed
    for number in range(2, 4):
        pond.sql(CREATE.format(number))
    pond.stop()
    head = pond.head()
    pond.store.put_new(inbox.entry_name(int(head.positions["inbox"])), b"{broken")
    facts: dict[str, Any] = {"spare_from": head.epoch, "token": head.token, "pages": pond._worker.pages}
    floor = replace(head, floor=head.epoch)
    assert find_garbage(pond.store, floor, now_us=0, **facts).plans == ()
