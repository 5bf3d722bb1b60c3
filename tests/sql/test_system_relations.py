"""The schema `millpond`, states of process steps and differences, as relations of SELECT."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import Pond, Process, ValueState
from millpond.errors import InvalidError
from millpond.serve import state_inspection
from millpond.sources.memory import MemorySource

START = datetime.datetime(2024, 1, 1)
RELATIONS = {
    *("epochs", "watermarks", "steps", "tables", "sinks", "sources", "errors", "late", "jobs"),
    *("savepoints", "objects"),
}


def share(row: Any) -> dict[str, Any]:
    return {"id": row.id, "share": 10 // (row.n - 1)}


class Visits(Process):
    seen = ValueState(int, default=0)
    what = ValueState()

    def on_row(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.seen.value += 1
        self.what.value = {"page": row.page}
        yield {"who": row.who, "seen": self.seen.value}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pond that no process runs any more."""
    path = tmp_path_factory.mktemp("system") / "pond"
    clicks = MemorySource({"who": str, "page": str, "at": datetime.datetime})
    with millpond.open(path, engine="inline") as made:
        stream = made.stream("clicks", clicks, event_time="at", delay="5s")
        stream.key_by("who").process(Visits(), {"who": str, "seen": int}, id="visits").view("visited")
        orders = made.table("orders", {"id": int, "n": int}, key="id")
        orders.aggregate(total="sum(n)").view("totals")
        orders.map(share, {"id": int, "share": int}, id="share").view("shares")
        made.insert("orders", [{"id": 1, "n": 5}, {"id": 2, "n": 7}])
        clicks.push(
            [
                {"who": w, "page": "/", "at": START + datetime.timedelta(minutes=n)}
                for n, w in enumerate("abca")
            ]
        )
        made.drain()
        made.savepoint("monday")
        made.insert("orders", [{"id": 1, "n": 6}, {"id": 3, "n": 1}])
        clicks.push([{"who": "z", "page": "/old", "at": START}])
        made.drain()
    return path


@pytest.fixture(scope="module")
def pond(folder: Path) -> Iterator[Pond]:
    with millpond.open(folder, engine="inline") as opened:
        yield opened


def rows(pond: Pond, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    return pond.sql(sql, **options).fetchall()


def test_every_relation_can_be_read_and_described(pond: Pond) -> None:
    for name in RELATIONS:
        found = pond.sql(f"SELECT * FROM millpond.{name}")
        described = [row[0] for row in pond.sql(f"DESCRIBE millpond.{name}").fetchall()]
        assert found.columns == described, name


def test_epochs_are_those_of_the_manifests(pond: Pond) -> None:
    found = rows(pond, "SELECT epoch, kind, rows FROM millpond.epochs ORDER BY epoch")
    assert [epoch for epoch, _, _ in found] == list(range(pond.epoch + 1))
    assert found[0][1] == "create"
    assert sum(count or 0 for _, _, count in found) == 4 + 5
    skews = [s for (s,) in rows(pond, "SELECT skew FROM millpond.epochs WHERE tasks IS NOT NULL")]
    assert skews and all(s is None or s >= 1 for s in skews)


def test_levels_of_an_epoch_have_times_and_skew(pond: Pond) -> None:
    found = rows(pond, "SELECT level_ms, level_skew, ms FROM millpond.epochs WHERE ms IS NOT NULL")
    assert found
    for levels, skews, ms in found:
        assert len(levels) == len(skews) > 1 and 0 < max(levels) <= ms
        assert all(skew is None or skew >= 1 for skew in skews)


def test_a_definition_is_shown_without_its_secrets() -> None:
    with millpond.open("memory://", engine="inline") as made:
        made.sql("CREATE TABLE t (k int PRIMARY KEY)")
        made.sql("CREATE SINK s FROM t WITH (connector = 'http', url = 'http://a/b', header.x = 'hush')")
        ((shown,),) = rows(made, "SELECT definition FROM millpond.objects WHERE name = 's'")
        assert shown.startswith("CREATE SINK s") and "hush" not in shown
        told = "SELECT key, definition FROM millpond.objects WHERE name = 't'"
        assert rows(made, told) == [("k", "CREATE TABLE t (k int PRIMARY KEY)")]


def test_relations_are_filtered_joined_and_aliased(pond: Pond) -> None:
    sql = "SELECT count(*) FROM millpond.epochs e JOIN millpond.savepoints s ON s.epoch = e.epoch WHERE s.name = 'monday'"
    assert rows(pond, sql) == [(1,)]
    assert rows(pond, "SELECT epochs.kind FROM millpond.epochs WHERE epochs.epoch = 0") == [("create",)]
    assert rows(pond, "SELECT millpond.epochs.kind FROM millpond.epochs WHERE epoch = 0") == [("create",)]
    assert rows(pond, 'SELECT kind FROM "millpond"."epochs" WHERE epoch = $1', params=[0]) == [("create",)]
    joined = "SELECT t.rows, (SELECT count(*) FROM orders) FROM millpond.tables t WHERE t.relation = 'orders'"
    (upper, count), *_ = rows(pond, joined)
    assert upper >= count == 3
    assert rows(
        pond, "SELECT orders.n, epochs.kind FROM orders, millpond.epochs WHERE epoch = 0 AND id = 3"
    ) == [(1, "create")]
    assert rows(pond, "WITH e AS (SELECT * FROM MILLPOND.EPOCHS) SELECT min(epoch) FROM e") == [(0,)]


def test_the_past_of_a_relation(pond: Pond) -> None:
    now = rows(pond, "SELECT max(epoch) FROM millpond.epochs")
    then = rows(pond, "SELECT max(epoch) FROM millpond.epochs AS OF SAVEPOINT monday")
    assert then < now
    both = "SELECT a.rows < b.rows FROM millpond.tables AS OF SAVEPOINT monday a JOIN millpond.tables b USING (step, state) WHERE a.relation = 'orders'"
    assert rows(pond, both) == [(True,)]
    assert rows(pond, "SELECT count(*) FROM millpond.savepoints AS OF EPOCH 0") == [(0,)]
    with pytest.raises(InvalidError, match=r"millpond\.jobs has no past"):
        rows(pond, "SELECT * FROM millpond.jobs AS OF EPOCH 0")


def test_steps_have_levels_time_state_and_watermark(pond: Pond) -> None:
    found = {
        row[0]: row[1:]
        for row in rows(pond, "SELECT step, level, ms, state_rows, watermark FROM millpond.steps")
    }
    assert set(found) == set(pond.head() and pond.at().plan.nodes)
    level, ms, state, mark = found["visits"]
    assert level == 1 and ms > 0 and state == 2 * 3
    assert mark == START + datetime.timedelta(minutes=3, seconds=-5)


def test_late_and_error_rows(pond: Pond) -> None:
    assert rows(pond, "SELECT step, row->>'who' FROM millpond.late") == [("clicks.watermark", "z")]
    assert rows(pond, "SELECT late_rows FROM millpond.watermarks WHERE source IS NULL") == [(1,)]
    assert rows(pond, "SELECT count(*) FROM millpond.late AS OF SAVEPOINT monday") == [(0,)]
    assert rows(pond, "SELECT step, sum(weight) FROM millpond.errors GROUP BY step") == [("share", 1)]


def test_sources_and_sinks(pond: Pond) -> None:
    found = rows(pond, "SELECT source, connector, relation FROM millpond.sources ORDER BY source")
    assert [row[2] for row in found] == ["clicks", "orders"]
    assert rows(pond, "SELECT count(*) FROM millpond.sinks") == [(0,)]


def test_state_by_key_is_a_lookup(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows(pond, "SELECT sum(seen) FROM state.visits.seen") == [(4,)]

    def never(*_: Any) -> Any:
        raise AssertionError("the state was scanned")

    monkeypatch.setattr(state_inspection, "state_batches", never)
    assert rows(pond, "SELECT seen FROM state.visits.seen WHERE who = 'a'") == [(2,)]
    assert rows(pond, "SELECT seen FROM state.visits.seen WHERE who = $1", params=["b"]) == [(1,)]
    assert rows(pond, "SELECT s.seen FROM state.visits.seen AS s WHERE s.who IN ('a', 'x')") == [(2,)]
    assert rows(pond, "SELECT seen FROM state.visits.seen AS OF EPOCH 0 WHERE who = 'a'") == []


def test_pickled_state_stays_pickled(pond: Pond) -> None:
    ((raw,),) = rows(pond, "SELECT what FROM state.visits.what WHERE who = 'a'")
    assert isinstance(raw, bytes) and b"page" in raw


def test_state_of_a_step_whose_name_has_dots(pond: Pond) -> None:
    step = next(
        info.step for info in pond.states() if info.step.startswith("orders.") and info.state == "rows"
    )
    assert rows(pond, f'SELECT count(*) FROM state."{step}".rows') == [(3,)]
    assert rows(pond, f"SELECT count(*) FROM state.{step}.rows") == [(3,)]
    with pytest.raises(InvalidError, match="no step named 'visit'") as error:
        rows(pond, "SELECT * FROM state.visit.seen")
    assert error.value.hint == "did you mean 'visits'?"


def test_difference_of_a_view_between_two_epochs(pond: Pond) -> None:
    last = pond.epoch
    forth = rows(pond, f"SELECT weight, id, n FROM DIFF(orders, 'monday', {last}) ORDER BY id, weight")
    assert forth == [(-1, 1, 5), (1, 1, 6), (1, 3, 1)]
    back = rows(pond, f"SELECT -weight, id, n FROM diff(orders, {last}, 'monday') d ORDER BY id, -weight")
    assert back == forth
    assert rows(
        pond, "SELECT total, weight FROM DIFF(totals, $1, $2) ORDER BY 2", params=["monday", last]
    ) == [
        (12, -1),
        (14, 1),
    ]
    joined = (
        f"SELECT sum(d.weight * d.n), max(o.n) FROM DIFF(orders, 'monday', {last}) d JOIN orders o USING (id)"
    )
    assert rows(pond, joined) == [(2, 6)]
    twice = f"SELECT count(*) FROM DIFF(orders, 0, 'monday') a, DIFF(orders, 'monday', {last}) b"
    assert rows(pond, twice) == [(6,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM millpond.epoch", "no system relation 'millpond.epoch'"),
        ("SELECT nope FROM millpond.epochs", "nope"),
        ("SELECT * FROM DIFF(orders, 1)", "DIFF needs a view and two epochs"),
        ("SELECT * FROM DIFF(order, 1, 2)", "order"),
        ("SELECT * FROM DIFF('orders', 1, 2)", "DIFF begins with the name of a view"),
        ("SELECT * FROM DIFF(orders, 1, 99)", "there is no epoch 99 yet"),
        ("CREATE TABLE millpond.mine (a int)", "belongs to the system"),
        ("CREATE TABLE state.mine (a int)", "belongs to the system"),
        ("INSERT INTO millpond.epochs VALUES (1)", "belongs to the system"),
        ("DROP TABLE millpond.epochs", "belongs to the system"),
        ("CREATE VIEW v AS SELECT * FROM millpond.epochs", "a view cannot read 'millpond.epochs'"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM state.visits.seen", "a view cannot read"),
    ],
)
def test_refused(pond: Pond, sql: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        pond.sql(sql)


def test_own_names_keep_their_meaning() -> None:
    with millpond.open("memory://", engine="inline") as made:
        made.sql("CREATE TABLE state (x int, millpond int); CREATE TABLE epochs (x int)")
        made.sql("INSERT INTO state VALUES (1, 2); INSERT INTO epochs VALUES (9); FLUSH")
        assert rows(made, "SELECT state.x, state.millpond FROM state") == [(1, 2)]
        assert rows(made, "SELECT x, millpond.x FROM epochs millpond") == [(9, 9)]
        assert rows(made, "SELECT e.x, m.epoch FROM epochs e, millpond.epochs m WHERE m.epoch = 0") == [
            (9, 0)
        ]


def test_a_pond_without_epochs_has_empty_relations() -> None:
    with millpond.open("memory://", engine="inline") as made:
        for name in RELATIONS:
            assert rows(made, f"SELECT * FROM millpond.{name}") == []
        with pytest.raises(InvalidError, match="no epochs yet"):
            made.sql("SELECT * FROM DIFF(orders, 0, 1)")


def test_a_parameter_cannot_name_the_view_of_a_difference(pond: Pond) -> None:
    """Access is checked by the names in a statement."""
    with pytest.raises(InvalidError, match="DIFF begins with the name of a view"):
        pond.sql("SELECT * FROM DIFF($1, 0, 1)", params=["orders"])
