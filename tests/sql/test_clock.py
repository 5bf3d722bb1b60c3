"""now() in views: after every epoch the batch query at the time of that epoch (law 1), however the clock went."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.sql.binding.now import macros
from tests.sql.world import World

US, SECOND, HOUR, DAY = 1, 1_000_000, 3_600_000_000, 86_400_000_000
START = 1_709_164_800 * SECOND  # the 29th of February 2024, midnight
TABLES = {
    "t": (
        {"id": "INTEGER", "k": "INTEGER", "ts": "TIMESTAMP", "tz": "TIMESTAMPTZ", "d": "DATE", "l": "INTEGER[]"},
        "id",
    ),
    "u": ({"id": "INTEGER", "k": "INTEGER", "since": "TIMESTAMP", "ttl": "INTEGER"}, "id"),
}  # fmt: skip
QUERIES = [
    "select id, ts from t where ts > now() - interval '1 hour'",
    "select id, l from t where ts >= current_timestamp - interval '1 hour' and k > 0",
    "select id from t where ts <= now()",
    "select id from t where tz < proctime() + interval '90 seconds'",
    "select id from t where ts between now() - interval '1 hour' and now()",
    "select id from t where ts + interval '1 month' > now()",
    "select id from u where since + ttl * interval '1 second' > now() and since <= now()",
    "select id from t where now() - tz < interval '2 hours'",
    "select id from t where ts - now() between interval '-1 hours' and interval '30 minutes'",
    "select id, k from t where ts = now()",
    "select id from t where now() between ts and ts + interval 1 hour",
    "select id from t where not (ts > now() or k = 1)",
    "select id from t where k is null or ts > now() - interval '10 minutes'",
    "select id from t where (k = 1 and ts > now()) or tz > now() or k = 2",
    "select id from t where d = current_date",
    "select id from t where d >= current_date - 1 and d < today() + 2",
    "select id from t where ts > current_date - interval '1 day'",
    "select id from t where date_trunc('hour', ts) = date_trunc('hour', now())",
    "select id from t where ts < date_trunc('hour', localtimestamp - interval '30 minutes') + interval '5 minutes'",
    "select id from t where ts >= date_trunc('month', now()) and ts < date_trunc('week', now())",
    "select k, count(*), sum(id), max(ts) from t where ts > now() - interval '1 hour' group by k",
    "select k, max(ts) as m from t group by k having max(ts) < now() - interval '5 minutes'",
    "select t.id, u.id from t join u on t.k = u.k and t.ts > now() - interval '2 hours' and u.since <= now()",
    "select t.id, u.id from t left join u on t.k = u.k and u.since > now() - interval '1 hour'",
    "select t.id, u.id from t, u where t.k = u.k and t.ts + u.ttl * interval '1 minute' > now()",
    "select id from t where k in (select k from u where since <= now())",
    "select id from t where not exists (select 1 from u where u.k = t.k and u.since > now() - interval '1 hour')",
    "with c as (select * from t where ts > now()) select k, count(*) from c group by k union all select 9, count(*) from c",
    "select distinct k from t where ts > now() - interval '1 hour'",
    "select * from (select id, k, ts from t where ts <= now() order by ts desc, id limit 3)",
    "select id, row_number() over (partition by k order by id) from t where ts > now() - interval '1 hour'",
    "select 1 as one where now() > timestamp '2024-02-29 02:00:00'",
    "select id from t where now() < timestamptz '2024-02-29 03:00:00+00'",
]  # fmt: skip


class Timed(World):
    """A world with a clock of its own; the batch query sees the time of the epoch."""

    def __init__(self, path: Path, **pond: Any) -> None:
        self.clock = ManualClock(START)
        super().__init__(path, TABLES, clock=self.clock, **pond)

    def check(self, context: str = "") -> None:
        self.pond.drain()
        head = self.pond.head()
        for now in {head.now_us, self.clock.now_us()}:  # what is drained is of both times
            self.at(now)
            super().check(f"{context} at {now - START}, {head.kind}")

    def at(self, now_us: int) -> None:
        for statement in macros(f"make_timestamptz({now_us})"):
            self.con.execute(statement)


def some_time(rng: random.Random, now_us: int) -> datetime.datetime:
    """Near the present, on edges of hours and days more often than by chance; sometimes far off."""
    step = rng.choice([US, 500 * US, SECOND, HOUR, HOUR, DAY])
    at = now_us + rng.randrange(-6, 7) * step
    if rng.random() < 0.4:
        at = at // HOUR * HOUR + rng.choice([-1, 0, 0, 1])
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=at)


def row(table: str, rng: random.Random, now_us: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    found = {"id": rng.randrange(20), "k": maybe(rng.randrange(3))}
    if table == "u":
        return {**found, "since": maybe(some_time(rng, now_us)), "ttl": maybe(rng.choice([0, 1, 90]))}
    at = some_time(rng, now_us)
    return {
        **found,
        "ts": maybe(at),
        "tz": maybe(some_time(rng, now_us).replace(tzinfo=datetime.UTC)),
        "d": maybe(at.date()),
        "l": maybe([rng.randrange(2)]),
    }


def change(world: Timed, rng: random.Random) -> None:
    for name in TABLES:
        schema = world.con.sql(f"from {name}").to_arrow_table().schema
        fresh = {r["id"]: r for r in (row(name, rng, world.clock.now_us()) for _ in range(rng.randrange(8)))}
        world.put(name, pa.Table.from_pylist(list(fresh.values()), schema=schema))
        held = world.con.sql(f"from {name} order by id").to_arrow_table()
        if held.num_rows and rng.random() < 0.6:
            world.take(name, held.slice(rng.randrange(held.num_rows), 1))


def pass_time(world: Timed, rng: random.Random) -> None:
    world.clock.advance(
        rng.choice([0, US, 250 * US, SECOND, 40 * SECOND, HOUR // 2, HOUR, 5 * HOUR, 2 * DAY])
    )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_views_are_the_batch_queries_at_the_time_of_the_epoch(seed: int, tmp_path: Path) -> None:
    """Rows come, change and go; time passes with and without rows; restarts, compactions, other parallelism."""
    rng = random.Random(seed)
    world = Timed(tmp_path / "pond", parallelism=rng.choice([1, 3]))
    for number, query in enumerate(QUERIES):
        world.view(f"v{number}", query)
    world.check("empty")
    for epoch in range(14 if seed else 4):
        if rng.random() < 0.3:
            world.shake(rng)
        if rng.random() < 0.7:
            change(world, rng)
        if rng.random() < 0.3:
            world.check(f"rows {epoch}")
        pass_time(world, rng)
        world.check(f"epoch {epoch}")
    assert world.pond.errors().num_rows == 0
    world.close()


def test_every_epoch_of_the_history_is_the_batch_query_at_its_time(tmp_path: Path) -> None:
    """Also those that ran no step: take-overs, savepoints, merges, and views that came later."""
    rng = random.Random(7)
    world = Timed(tmp_path / "pond", retain_epochs=10_000)
    asked = [QUERIES[n] for n in (0, 4, 20, 23)]
    for number, query in enumerate(asked):
        world.view(f"v{number}", query)
    for number in range(8):
        change(world, rng)
        world.pond.drain()
        pass_time(world, rng)
        if number % 3 == 0:
            world.pond.savepoint(f"s{number}")
        if number % 4 == 2:
            world.shake(rng)
        if number in (4, 7):
            with world.pond.changing():
                world.view(f"late{number}", asked[0])
                world.view(f"above{number}", f"select count(*) as n, min(id) from ({asked[1]})")
    world.pond.drain()
    world.pond.close()
    kinds = set()
    world.pond = millpond.open(world.path, **world.settings)
    for epoch in range(world.pond.head().floor, world.pond.epoch + 1):
        with world.pond.at(epoch) as moment:
            kinds.add(moment.manifest.kind)
            world.at(moment.manifest.now_us)
            for name in set(TABLES) & set(moment.views()):
                world.con.register("held", moment.read(name))
                world.con.execute(f"create or replace table {name} as from held")
            for name in set(world.queries) & set(moment.views()):
                world.con.register("given", moment.read(name))
                listed = ", ".join(c.sql for c in world.columns[name])
                given = world.batch(f"select {listed} from given")
                told = f"epoch {epoch}, {moment.manifest.kind}, {name}"
                assert given == world.batch(world.queries[name]), told
    assert {"epoch", "takeover", "change"} <= kinds
    ran = [s.epoch for s in world.pond.epochs(last=None) if s.rows is not None]
    assert all(world.pond.replay(epoch).same for epoch in ran[-6:]), "a replay has the same time (law 3)"
    world.close()
