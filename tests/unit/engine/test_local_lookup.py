"""Near lookups: rows are looked up where they are, and what comes of it is the same (law 3)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import tuning
from millpond.control.admission import spread
from millpond.kernels import dense_lookup
from millpond.plan.local_lookup import NO_LOCAL_LOOKUPS, LocalLookups, find_local_lookups
from millpond.pond import Pond
from millpond.sources.source import Split

AS_OF = "FOR SYSTEM_TIME AS OF PROCTIME()"
SOURCES = """
    CREATE SOURCE orders (id int, k int) WITH (connector = 'files', path = '{0}/orders', format = 'csv');
    CREATE SOURCE rates (k int, rate int) WITH (connector = 'files', path = '{0}/rates', format = 'csv');
"""
JOINED = f"SELECT o.id, r.rate FROM orders o JOIN rates {AS_OF} AS r ON o.k = r.k"
LEFT = f"SELECT o.id, r.rate + 1 FROM orders o LEFT JOIN rates {AS_OF} AS r ON o.k = r.k"


def opened(folder: Path, *views: str, parallelism: int = 3) -> Pond:
    for name in ("orders", "rates"):
        (folder / name).mkdir(exist_ok=True)
    fresh = not (folder / "pond").exists()
    pond = millpond.open(folder / "pond", engine="inline", checks=True, parallelism=parallelism)
    if fresh:
        pond.sql(SOURCES.format(folder))
        for number, view in enumerate(views):
            pond.sql(f"CREATE MATERIALIZED VIEW v{number} AS {view}")
    return pond


def feed(folder: Path, source: str, number: int, rows: list[tuple[Any, ...]], more: str = "") -> None:
    head = {"orders": "id,k", "rates": "k,rate"}[source]
    lines = [head, *(",".join(map(str, row)) for row in rows)]
    (folder / source / f"{number:03d}.csv").write_text("\n".join(lines) + "\n" + more)


def tasks(pond: Pond) -> list[int]:
    found: list[int] = pond.head().metrics["tasks"]
    return found


@pytest.mark.parametrize(
    ("seed", "several", "by_piece"), [(0, True, False), (1, True, True), (2, False, True)]
)
def test_rows_meet_what_came_with_them_and_before(
    seed: int, several: bool, by_piece: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once or piece by piece, and whether keys have one partner or several."""
    rng = random.Random(seed)
    found: list[bool] = []
    if by_piece:
        monkeypatch.setattr(tuning, "FUSED_SCAN_ROWS_MIN", 1)
        monkeypatch.setattr(tuning, "FUSED_SCAN_BATCH_ROWS", 2)
        monkeypatch.setattr(tuning, "DENSE_LOOKUP_ROWS_MIN", 1)
        monkeypatch.setattr(tuning, "DENSE_LOOKUP_SLOTS_PER_ROW", 3)
        find = dense_lookup.Partners.find
        monkeypatch.setattr(
            dense_lookup.Partners, "find", lambda *a: (x := find(*a), found.append(x is not None))[0]
        )
    pond = opened(tmp_path, JOINED, LEFT)
    rates: list[tuple[int, int]] = []
    want: list[Counter[Any]] = [Counter(), Counter()]
    for number in range(7):
        keys = [rng.randrange(6) for _ in range(rng.choice([0, 3]) if number else 3)]
        came = [(k, rng.randrange(9) if several else 7 * k) for k in keys]
        if came:
            feed(tmp_path, "rates", number, came)
        rates += came
        orders = [(10 * number + n, rng.randrange(7)) for n in range(rng.randrange(12))]
        for part in range(3):  # several splits: the rows of an epoch are in several tasks
            feed(tmp_path, "orders", 3 * number + part, orders[part::3])
        for id, k in orders:
            met = [rate for other, rate in rates if other == k]
            want[0].update((id, rate) for rate in met)
            want[1].update([(id, rate + 1) for rate in met] or [(id, None)])
        pond.drain()
        for view in (0, 1):
            assert Counter(pond.sql(f"FROM v{view}").fetchall()) == want[view]
        assert pond.head().counts.get("rows/rates", 0) == len(rates)
        if orders:
            assert len(tasks(pond)) == 1 and pond.replay(pond.epoch).same
        if number in (2, 5):
            pond.compact()
            pond.close()
            pond = opened(tmp_path, parallelism=rng.randint(1, 5))
    assert any(found) == by_piece and all(found) == (not several or not by_piece)
    assert len(want[0]) > 5 and None in {rate for _, rate in want[1]}
    pond.close()


def test_what_every_task_reads_is_accounted_for_once(tmp_path: Path) -> None:
    """Law 9: a row that cannot be read is one row of errors, though every task read it."""
    pond = opened(tmp_path, JOINED)
    feed(tmp_path, "rates", 0, [(1, 7), (2, 8)], more="what,is this\n")
    for part in range(3):
        feed(tmp_path, "orders", part, [(part, 1)])
    pond.drain()
    assert tasks(pond) == [3]
    assert pond.sql("FROM v0 ORDER BY id").fetchall() == [(0, 7), (1, 7), (2, 7)]
    assert pond.errors().num_rows == 1 and pond.head().counts["errors/rates"] == 1
    pond.close()


def test_a_right_side_that_others_read_travels(tmp_path: Path) -> None:
    """Its rows must not be there twice; when it stands still, lookups are near again."""
    pond = opened(tmp_path, JOINED, "SELECT count(*) FROM rates")
    feed(tmp_path, "rates", 0, [(1, 7)])
    feed(tmp_path, "orders", 0, [(0, 1)])
    feed(tmp_path, "orders", 1, [(1, 1)])
    pond.drain()
    assert len(tasks(pond)) == 2
    feed(tmp_path, "orders", 2, [(2, 1)])
    pond.drain()
    assert len(tasks(pond)) == 1
    assert pond.sql("FROM v0 ORDER BY id").fetchall() == [(0, 7), (1, 7), (2, 7)]
    assert pond.sql("FROM v1").fetchall() == [(1,)]
    pond.close()


def test_which_lookups_are_near(tmp_path: Path) -> None:
    pond = opened(tmp_path, JOINED)
    (lookup,) = (step for step in pond.plan.nodes if step.endswith("lookup"))
    still = find_local_lookups(pond.plan, {"orders": 10})
    assert still == LocalLookups(frozenset({lookup}))
    shared = find_local_lookups(pond.plan, {"orders": 10, "rates": tuning.LOCAL_LOOKUP_ROWS_MAX})
    assert shared.lookups == {lookup} and "rates" in shared.shared and "orders" not in shared.shared
    assert find_local_lookups(pond.plan, {"rates": tuning.LOCAL_LOOKUP_ROWS_MAX + 1}) == NO_LOCAL_LOOKUPS
    pond.close()


def test_values_of_chance_are_made_once(tmp_path: Path) -> None:
    """A task that computed them for itself would join with others than those that are kept."""
    pond = opened(tmp_path)
    pond.sql("CREATE VIEW drawn AS SELECT k, rate + (random() * 1000)::int AS rate FROM rates")
    pond.sql(f"CREATE MATERIALIZED VIEW v0 AS {JOINED.replace('rates', 'drawn')}")
    assert find_local_lookups(pond.plan, {"rates": 1}) == NO_LOCAL_LOOKUPS
    assert find_local_lookups(pond.plan, {"orders": 1}).lookups
    pond.close()


def test_splits_of_shared_steps_go_to_every_task() -> None:
    one, two, side = (Split({"n": n}, rows=5, bytes=5) for n in range(3))
    dealt = spread({"in": [one, two], "side": [side]}, 2, {"side"})
    assert [[step for step, _, _ in pile] for pile in dealt] == [["in", "side"], ["in", "side"]]
