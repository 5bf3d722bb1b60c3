"""The origin of rows: the order in which an epoch admitted them, whoever reads, carries and receives them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.engine.task import frames, source_reading
from millpond.flow.stream import Stream
from millpond.plan.levels import cut
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from tests.unit.engine.recorder import recorder

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
BITS = 40
START = datetime(2026, 1, 1)

Row = dict[str, Any]
Came = list[tuple[int, int, int]]  # origin, k, v


def opened(path: Path, parallelism: int = 3) -> Pond:
    return millpond.open(path, engine="inline", parallelism=parallelism, durable=False, checks=True)


def items(seed: int, splits: int) -> list[list[Row]]:
    """Splits of very different sizes, so that no task gets a row of neighbours."""
    rng = random.Random(seed)
    rows = ({"k": rng.randrange(5), "v": v, "ts": START + timedelta(seconds=v)} for v in range(10**6))
    return [[next(rows) for _ in range(rng.choice([1, 2, 3, 40]))] for _ in range(splits)]


def numbered(found: list[list[Row]], first: int = 0) -> Came:
    return [
        ((number << BITS) + place, row["k"], row["v"])
        for number, split in enumerate(found, first)
        for place, row in enumerate(split)
    ]


def told(came: Came) -> list[tuple[int, int, int, int]]:
    """What the recorder must say of rows that came in this order: (k, place, v, origin)."""
    met: dict[int, int] = {}
    said = []
    for origin, k, v in came:
        said.append((k, met.get(k, 0), v, origin))
        met[k] = met.get(k, 0) + 1
    return sorted(said)


def recorded(pond: Pond, name: str = "seen") -> list[tuple[int, int, int, int]]:
    rows = pond.read(name).to_pylist()
    return sorted((r["k"], r["place"], r["v"], r["origin"]) for r in rows)


def record(stream: Stream, name: str = "seen", *, asks: bool = True) -> None:
    stream._then(name, recorder(asks), "record").view(name)


@pytest.mark.parametrize("parallelism", range(1, 8))
def test_rows_are_told_in_the_order_of_admission(tmp_path: Path, parallelism: int) -> None:
    """Law 3: whatever the number of tasks."""
    with opened(tmp_path / "pond", parallelism) as pond:
        source = MemorySource(SCHEMA)
        record(pond.stream("in", source))
        given = items(1, 23)
        source.push(*given)
        pond.drain()
        assert len(pond.head().metrics["tasks"]) == 2
        assert pond.head().metrics["tasks"] == [parallelism, parallelism]
        assert recorded(pond) == told(numbered(given))


def each(row: Any) -> Iterator[Row]:
    assert set(row.as_dict()) == {"k", "v", "ts"}, "a user's function sees the user's columns"
    for i in range(row.v % 4):
        yield {"k": row.k, "v": row.v * 10 - i}


def each_of(came: Came) -> Came:
    return [(o, k, v * 10 - i) for o, k, v in came for i in range(v % 4)]


THROUGH: dict[str, tuple[Callable[[Stream], Stream], Callable[[Came], Came]]] = {
    "filter": (lambda s: s.filter("v % 3 <> 1"), lambda c: [r for r in c if r[2] % 3 != 1]),
    "map": (lambda s: s.select("k", v="v + 1"), lambda c: [(o, k, v + 1) for o, k, v in c]),
    "flat_map": (lambda s: s.flat_map(each, schema=SCHEMA.remove(2)), each_of),
    "python filter": (
        lambda s: s.filter(lambda row: row.v % 3 != 1),
        lambda c: [r for r in c if r[2] % 3 != 1],
    ),
    "a branch": (
        lambda s: s.branch("v % 5 = 0", lambda row: row.v % 3 != 1)[1],
        lambda c: [r for r in c if r[2] % 5 and r[2] % 3 != 1],
    ),
    "all branches": (
        lambda s: (lambda a, b, rest: rest.union(b, a))(*s.branch("v % 5 = 0", lambda row: row.v % 3 != 1)),
        lambda c: c,
    ),
    "watermark": (lambda s: s.watermark("ts", "1h"), lambda c: c),
    "tumble": (lambda s: s.tumble("10 s", time="ts").select("k", "v"), lambda c: c),
    "hop": (
        lambda s: s.hop("10 s", "5 s", time="ts").select("k", "v"),
        lambda c: [r for r in c for _ in "ab"],
    ),
    "all of them": (
        lambda s: (
            s.watermark("ts", "1h")
            .filter("v % 3 <> 1")
            .flat_map(each, schema=SCHEMA.remove(2))
            .select("k", v="v + 1")
        ),
        lambda c: [(o, k, v + 1) for o, k, v in each_of([r for r in c if r[2] % 3 != 1])],
    ),
}


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("through", THROUGH)
def test_linear_steps_carry_it(tmp_path: Path, through: str, parallelism: int) -> None:
    build, want = THROUGH[through]
    with opened(tmp_path / "pond", parallelism) as pond:
        source = MemorySource(SCHEMA)
        record(build(pond.stream("in", source)))
        given = items(2, 12)
        source.push(*given)
        pond.drain()
        assert recorded(pond) == told(want(numbered(given)))


@pytest.mark.parametrize("parallelism", [1, 5])
def test_sources_come_one_after_the_other_in_a_union(tmp_path: Path, parallelism: int) -> None:
    with opened(tmp_path / "pond", parallelism) as pond:
        b, a = MemorySource(SCHEMA), MemorySource(SCHEMA, partition="a")
        record(pond.stream("b", b).union(pond.stream("a", a).filter("v >= 0")))
        of_a, of_b = items(3, 6), items(4, 5)
        a.push(*of_a)
        b.push(*of_b)
        pond.drain()
        assert recorded(pond) == told(numbered(of_a) + numbered(of_b, first=6))


def test_only_those_who_ask_get_it(tmp_path: Path) -> None:
    """Beside a step that asks: views, keyed steps, a user's function on batches, the late table, error rows."""
    seen: list[list[str]] = []

    def batches(table: pa.Table) -> pa.Table:
        seen.append(table.column_names)
        return table

    with opened(tmp_path / "pond") as pond:
        source = MemorySource(SCHEMA)
        stream = pond.stream("in", source, event_time="ts", delay="1 s")
        record(stream)
        record(stream, "plain", asks=False)
        stream.view("all")
        stream.select("k", bad="(100 / (v - 3))::int").view("bad")
        stream.distinct("k").view("distinct")
        stream.key_by("k").aggregate(id="n", n="count(*)").view("n")
        stream.map_batches(batches, SCHEMA, id="batches").view("batches")
        first, second = items(5, 7), items(6, 7)
        for given in (first, second):
            source.push(*given)
            pond.drain()
        assert recorded(pond)[0][3] >= 0
        assert {r[3] for r in recorded(pond, "plain")} == {-1}
        assert seen and all(names == SCHEMA.names for names in seen)
        assert pond.late("in.watermark").column_names == SCHEMA.names
        assert pond.late("in.watermark").num_rows
        for name in ("all", "batches"):
            assert pond.read(name).column_names == SCHEMA.names
        assert pond.read("distinct").num_rows == 5, "equal rows of other origins are equal"
        assert "_o" not in str(pond.errors().to_pylist())


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map_batches(lambda t: t, SCHEMA),
        lambda s: s.distinct(),
        lambda s: s.key_by("k").aggregate(v="sum(v)"),
        lambda s: s.union(s.distinct()),
    ],
    ids=["batches", "distinct", "aggregate", "a union with one of them"],
)
def test_it_ends_where_rows_are_made_of_others(tmp_path: Path, build: Callable[[Stream], Stream]) -> None:
    """In part of the rows it would be worse than in none: then nobody makes it."""
    with opened(tmp_path / "pond") as pond:
        source = MemorySource(SCHEMA)
        record(build(pond.stream("in", source)))
        assert not cut(pond.plan).with_origin
        source.push(*items(7, 5))
        pond.drain()
        assert {r[3] for r in recorded(pond)} == {-1}


def test_when_nobody_asks_nobody_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> Any:
        raise AssertionError("rows were numbered")

    monkeypatch.setattr(source_reading, "with_origin", never)
    with opened(tmp_path / "pond") as pond:
        source = MemorySource(SCHEMA)
        record(pond.stream("in", source).filter("v > 1"), asks=False)
        made = cut(pond.plan)
        assert not made.with_origin and not made.origins
        assert all("_o" not in edge.columns for edge in made.edges)
        source.push(*items(8, 5))
        pond.drain()
        assert pond.read("seen").num_rows


def test_only_the_sources_behind_a_step_that_asks_make_it(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        record(pond.stream("in", MemorySource(SCHEMA)).filter("v > 1", id="few"))
        pond.stream("other", MemorySource(SCHEMA, partition="o")).filter("v > 1", id="rest").view("rest")
        made = cut(pond.plan)
        assert made.with_origin == {"in", "few"}
        assert made.origins == {("few", 0), ("seen", 0)}
        assert [edge.columns for edge in made.edges] == [("k", "v", "ts", "_o")]
        assert "_o" not in made.columns["in"], "it is not the source that gives it"


def test_a_shared_exchange_brings_it_only_to_those_who_ask(tmp_path: Path) -> None:
    with opened(tmp_path / "pond", 4) as pond:
        source = MemorySource(SCHEMA)
        stream = pond.stream("in", source)
        record(stream)
        record(stream, "plain", asks=False)
        assert len(cut(pond.plan).edges) == 1
        given = items(9, 9)
        source.push(*given)
        pond.drain()
        assert recorded(pond) == told(numbered(given))
        assert {r[3] for r in recorded(pond, "plain")} == {-1}


def test_rows_made_of_one_row_keep_their_order_in_the_shuffle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have one origin, so nothing but their order tells them apart: frames are put in the order sent."""
    encode, receive, rng = frames.encode_table, frames.receive, random.Random(0)

    def small(table: pa.Table) -> Iterator[tuple[bytes | pa.Buffer, ...]]:
        return encode(table, max_bytes=100)

    def shuffled(level: int, task: int, incoming: Iterator[bytes], sources: Any) -> frames.Received:
        raw = list(incoming)
        rng.shuffle(raw)
        return receive(level, task, iter(raw), sources)

    monkeypatch.setattr(frames, "encode_table", small)
    monkeypatch.setattr(frames, "receive", shuffled)
    with opened(tmp_path / "pond", 4) as pond:
        source = MemorySource(SCHEMA)
        record(pond.stream("in", source).flat_map(each, schema=SCHEMA.remove(2)))
        given = items(10, 12)
        source.push(*given)
        pond.drain()
        assert recorded(pond) == told(each_of(numbered(given)))


def test_bad_rows_and_more_than_one_epoch(tmp_path: Path) -> None:
    """Each epoch counts from the beginning; a row that fails leaves the others where they were."""
    with opened(tmp_path / "pond", 2) as pond:
        source = MemorySource(SCHEMA)
        record(pond.stream("in", source).select("k", v="v + (1 / (v - 3))::int * 0"))
        first, second = items(11, 4), items(12, 4)
        want = []
        for given in (first, second):
            source.push(*given)
            pond.drain()
            want += told([r for r in numbered(given) if r[2] != 3])
        assert recorded(pond) == sorted(want)


def test_a_replay_tells_the_same_order_and_does_not_show_it(tmp_path: Path) -> None:
    met: list[str] = []
    with opened(tmp_path / "pond", 3) as pond:
        source = MemorySource(SCHEMA)
        record(pond.stream("in", source).filter("v > 1", id="few"))
        source.push(*items(13, 8))
        epoch = pond.drain()
        again = pond.replay(
            epoch,
            on_input=lambda step, given: met.extend(
                n for d in given if d is not None for n in d.column_names
            ),
        )
        assert again.same, again.differences
        assert set(again.outputs["few"].column_names) - {"_w"} == set(SCHEMA.names)
        assert met and "_o" not in met


def test_late_rows_bring_it_too(tmp_path: Path) -> None:
    with opened(tmp_path / "pond") as pond:
        source = MemorySource(SCHEMA)
        record(pond.stream("in", source, event_time="ts", delay="0s").late())
        source.push(*items(14, 6))
        pond.drain()
        again = items(15, 3)
        source.push(*again)
        pond.drain()
        bound = max(row["v"] for split in items(14, 6) for row in split)
        assert recorded(pond) == told([r for r in numbered(again) if r[2] < bound])
        assert recorded(pond)
