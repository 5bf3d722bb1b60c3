"""The flow API: Python steps with schemas from hints and samples, ways, reductions, late rows, computed keys."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.flow.stream import Stream
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from tests.sampling import first

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
START = datetime(2026, 1, 1)


def opened(path: Path, **options: Any) -> Pond:
    return millpond.open(path, engine="inline", **{"durable": False, "checks": True, **options})


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path / "pond") as made:
        yield made


def rows(pond: Pond, view: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in pond.read(view).to_pylist())


def source(*found: tuple[Any, ...]) -> MemorySource:
    made = MemorySource(SCHEMA)
    if found:
        made.push([dict(zip(SCHEMA.names, row, strict=True)) for row in found])
    return made


# -- map, filter, flat_map, map_batches ------------------------------------------------------


@dataclass
class Word:
    text: str
    length: int
    letters: list[str]


class Half(NamedTuple):
    k: int
    half: float


def word(row: Any) -> Word:
    return Word(row.s, len(row.s), sorted(set(row.s)))


def halves(row: Any) -> Iterator[Half]:
    for _ in range(row.v):
        yield Half(row.k, row.v / 2)


def test_schemas_come_from_hints(pond: Pond) -> None:
    stream = pond.stream("in", source((1, 2, "baa"), (2, 0, None), (3, 1, "x")))
    mapped = stream.map(word)
    assert mapped.schema == pa.schema(
        [("text", pa.string()), ("length", pa.int64()), ("letters", pa.list_(pa.string()))]
    )
    mapped.view("words")
    stream.flat_map(halves).view("halves")
    pond.drain()
    assert rows(pond, "words") == [("baa", 3, ["a", "b"]), ("x", 1, ["x"])]
    assert rows(pond, "halves") == [(1, 1.0), (1, 1.0), (3, 0.5)]
    (error,) = pond.errors("words").to_pylist()
    assert error["step"] == "in.map"
    assert "TypeError: object of type 'NoneType' has no len()" in error["reason"]


def test_schemas_come_from_samples_and_dicts(pond: Pond) -> None:
    stream = pond.stream("in", source((1, 2, "a")))
    sampled = stream.map(lambda row: {"double": row.v * 2, "s": row.s}, sample=[{"v": 1, "s": "a"}])
    assert sampled.schema == pa.schema([("double", pa.int64()), ("s", pa.string())])
    sampled.view("sampled")
    many = stream.flat_map(lambda row: [{"n": n} for n in range(row.v)], sample=[{"v": 0}, {"v": 2}])
    many.view("many")
    stream.map(lambda row: (row.k, row.v / 4), {"k": int, "quarter": float}).view("given")
    batches = stream.map_batches(lambda t: t.select(["s", "k"]), sample=[{"k": 1}])
    assert batches.schema == pa.schema([("s", pa.string()), ("k", pa.int64())])
    batches.view("batches")
    stream.map_batches(lambda t: t.select(["k"]), {"k": int}).view("told")
    stream.key_by("k").apply(lambda key, t: pa.table({"n": [t.num_rows]}), {"n": int}).view("applied")
    pond.drain()
    assert rows(pond, "sampled") == [(4, "a")]
    assert rows(pond, "many") == [(0,), (1,)]
    assert rows(pond, "given") == [(1, 0.5)]
    assert rows(pond, "batches") == [("a", 1)]
    assert rows(pond, "told") == [(1,)]
    assert rows(pond, "applied") == [(1,)]


def test_conditions_are_sql_or_python(pond: Pond) -> None:
    stream = pond.stream("in", source((1, 2, "a"), (2, 5, None), (3, 0, "c")))
    stream.filter(lambda row: row.s and row.v, id="real").view("python")
    stream.filter("s is not null and v > 0").view("sql")
    pond.drain()
    assert rows(pond, "python") == rows(pond, "sql") == [(1, 2, "a")]
    assert "real: FilterRows" in pond.explain()


def one_or_none(row: Any) -> Word | None:
    return None


def yields(row: Any) -> Any:
    yield row


async def waits(row: Any) -> Any:
    return row


def both(row: Any) -> list[Half]:
    return [Half(row.k, 1.0)] * 2


def told_wrong(row: Any) -> set[int]:
    return set()


@pytest.mark.parametrize(
    ("use", "message", "hint"),
    [
        (lambda s: s.map(lambda r: r), "result type of", "pass schema=..., annotate the return type"),
        (lambda s: s.map(told_wrong), "result type of told_wrong is not known", "sample=[...]"),
        (lambda s: s.map(halves), "halves is a generator", "use flat_map()"),
        (lambda s: s.map(both), "both returns many rows", "use flat_map()"),
        (lambda s: s.map(one_or_none), "may return None", "filter()"),
        (lambda s: s.flat_map(word), "word returns one row", "use map()"),
        (lambda s: s.map_batches(lambda t: t), "result type of", "pass schema=... or sample=[...]"),
        (lambda s: s.map(word, Word, sample=[{}]), "a schema and a sample", "leave out"),
        (lambda s: s.map(word, 3), "not a schema", "dataclass"),
        (lambda s: s.map(word, {"a": object}), "object cannot be the type of column 'a'", "pa.DataType"),
        (lambda s: s.map(word, {"_a": int}), "cannot be called '_a'", "underscore"),
        (lambda s: s.map(word, sample=[]), "sample is empty", "sample=["),
        (lambda s: s.map(word, sample=[{"x": 1}]), "no column named 'x'", "as this step gets them"),
        (lambda s: s.map(word, sample=[{"k": 1}]), "failed on row 1 of the sample", "fix"),
        (lambda s: s.map_batches(lambda t: 3, sample=[{}]), "must return an Arrow table", "pa.table"),
        (lambda s: s.map_batches(lambda t: t.nothing, sample=[{}]), "failed on the sample", "fix"),
        (
            lambda s: s.map_batches(lambda t: pa.table({"a": [None]}), sample=[{}]),
            "type of column 'a'",
            "schema=",
        ),
        (lambda s: s.map(lambda: 1, {"a": int}), "cannot be called with a row", "1 parameter"),
        (lambda s: s.map("v + 1", {"a": int}), "a function is needed", "SQL goes into select()"),
        (lambda s: s.flat_map(lambda a, b: 1, {"a": int}), "cannot be called with a row", "1 parameter"),
        (
            lambda s: s.map_batches(lambda: 1, {"a": int}),
            "cannot be called with an Arrow table",
            "1 parameter",
        ),
        (lambda s: s.filter(lambda: 1), "cannot be called with a row", "1 parameter"),
        (lambda s: s.filter(3), "a function is needed", "a row"),
        (lambda s: s.filter(yields), "yields is a generator", "return the value"),
        (lambda s: s.map(yields, {"a": int}), "yields is a generator", "flat_map()"),
        (lambda s: s.branch("v > 1", waits), "waits is async", "plain function"),
        (lambda s: s.flat_map(waits, {"a": int}), "waits is async", "plain function"),
        (lambda s: s.branch(), "at least one condition", "branch("),
        (lambda s: s.branch("v > 1", lambda: 1), "cannot be called with a row", "1 parameter"),
        (lambda s: s.branch("v"), "true or false", None),
        (
            lambda s: s.key_by("k").reduce(lambda a: a),
            "cannot be called with a row and a row",
            "2 parameters",
        ),
        (lambda s: s.key_by("k").apply(lambda t: t, SCHEMA), "cannot be called with the key", "2 parameters"),
        (lambda s: s.key_by(k="v % 2"), "there is a column 'k' already", "another name"),
        (lambda s: s.key_by("k", id="keys"), "adds no step", "step that follows"),
        (lambda s: s.key_by(x="nothing + 1"), "nothing", None),
        (lambda s: s.late(), "no watermark", "watermark("),
    ],
)
def test_wrong_steps_are_refused_when_they_are_written(
    pond: Pond, use: Callable[[Stream], object], message: str, hint: str | None
) -> None:
    stream = pond.stream("in", source())
    with pytest.raises(InvalidError, match=message) as caught:
        use(stream)
    assert hint is None or hint in (caught.value.hint or "")
    assert (caught.value.step or "").startswith("in")
    assert list(pond.plan.nodes) == ["in"], "nothing is left behind"


def test_the_chosen_id_is_told(pond: Pond) -> None:
    stream = pond.stream("in", source())
    for use in (
        lambda: stream.map(lambda r: r, id="mine"),
        lambda: stream.filter(3, id="mine"),  # type: ignore[arg-type]
        lambda: stream.branch(id="mine"),
        lambda: stream.key_by("k").reduce(lambda a: a, id="mine"),
    ):
        with pytest.raises(InvalidError) as caught:
            use()
        assert caught.value.step == "mine"


def test_default_ids_say_what_a_step_does_on_what(pond: Pond) -> None:
    stream = pond.stream("in", source())
    made = [
        stream.map(word),
        stream.map(lambda row: word(row), Word),
        stream.filter(lambda row: True),
        *stream.branch("v > 1", "v > 0"),
        *stream.branch("v > 5", id="size"),
        stream.key_by("k").reduce(lambda a, b: a),
        stream.key_by(odd="v % 2").stream,
    ]
    assert [s.step for s in made] == [
        "in.map",
        "in.map-2",
        "in.filter",
        "in.branch.1",
        "in.branch.2",
        "in.branch.rest",
        "size.1",
        "size.rest",
        "in.reduce",
        "in.key_by",
    ]
    with pytest.raises(InvalidError, match="step id 'size' is used twice"):
        stream.branch("v > 6", id="size")


# -- under random retraction, against plain Python -----------------------------------------------


def is_short(row: Any) -> bool:
    return row.s is not None and len(row.s) < 2


def longest(a: Any, b: Any) -> dict[str, Any]:
    """Not commutative: the order of a key's rows shows."""
    return {"v": (a.v * 7 + b.v) % 1009, "s": max(a.s or "", b.s or "", key=len)}


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_branch_and_reduce_follow_every_change(tmp_path: Path, seed: int) -> None:
    """Law 1: after every epoch each view is what plain Python makes of the rows that are there."""
    chance = random.Random(seed)
    path = tmp_path / "pond"
    live: Counter[tuple[Any, ...]] = Counter()
    for _ in range(2):  # and again after a restart
        with opened(path, parallelism=chance.randint(1, 4)) as pond:
            table = pond.table("t", SCHEMA)
            big, short, rest = table.branch("v > 60", is_short)
            for name, stream in (("big", big), ("short", short), ("rest", rest)):
                stream.view(name)
            table.key_by("k").reduce(longest).view("reduced")
            table.filter(is_short).view("filtered")
            table.map(lambda row: (row.k, (row.s or "").upper()), {"k": int, "s": str}).view("mapped")
            pond.drain()
            for _ in range(4):
                new = [
                    (
                        chance.randint(0, 3),
                        chance.randint(0, 100),
                        chance.choice([None, "", "a", "bb", "ccc"]),
                    )
                    for _ in range(chance.randint(0, 12))
                ]
                old = chance.sample(sorted(live.elements(), key=str), min(live.total(), chance.randint(0, 8)))
                for verb, some in ((pond.insert, new), (pond.delete, old)):
                    if some:
                        verb("t", [dict(zip(SCHEMA.names, row, strict=True)) for row in some])
                live = live + Counter(new) - Counter(old)
                pond.drain()
                check(pond, list(live.elements()))


class Plain:
    def __init__(self, k: Any, v: Any, s: Any) -> None:
        self.k, self.v, self.s = k, v, s


def check(pond: Pond, live: list[tuple[Any, ...]]) -> None:
    def ways(row: tuple[Any, ...]) -> str:
        return "big" if row[1] > 60 else "short" if is_short(Plain(*row)) else "rest"

    def order(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return row[1], row[2] is None, row[2] or ""

    def seen(view: str) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(r.values()) for r in pond.read(view).to_pylist())

    for name in ("big", "short", "rest"):
        assert seen(name) == Counter(row for row in live if ways(row) == name)
    assert seen("filtered") == Counter(row for row in live if is_short(Plain(*row)))
    assert seen("mapped") == Counter((k, (s or "").upper()) for k, _, s in live)
    expected = []
    for key in {row[0] for row in live}:
        mine = [Plain(*row) for row in sorted((r for r in live if r[0] == key), key=order)]
        last = functools.reduce(lambda a, b: Plain(a.k, **longest(a, b)), mine)
        expected.append((key, last.v, last.s))
    assert seen("reduced") == Counter(expected)
    assert pond.errors().num_rows == 0


def test_a_branch_column_does_not_clash(pond: Pond) -> None:
    stream = pond.stream("in", source((1, 2, "a"), (2, 0, "b"))).with_columns(branch="k + 10", Branch0="k")
    one, two = stream.branch("v > 1")
    assert one.columns == two.columns == stream.columns
    one.view("one")
    two.view("two")
    pond.drain()
    assert (rows(pond, "one"), rows(pond, "two")) == ([(1, 2, "a", 11, 1)], [(2, 0, "b", 12, 2)])


def test_a_reduced_row_is_looked_up_by_its_key(pond: Pond) -> None:
    stream = pond.stream("in", source((1, 2, "a"), (1, 3, "b"), (2, 5, "c")))
    stream.key_by("k").reduce(lambda a, b: (a.v + b.v, a.s + b.s)).view("sums")
    stream.reduce(lambda a, b: (0, a.v + b.v, None)).view("all")
    pond.drain()
    assert pond.lookup("sums", 1).to_pylist() == [{"k": 1, "v": 5, "s": "ab"}]
    assert rows(pond, "all") == [(0, 10, None)]


def test_keys_are_computed_in_front(pond: Pond) -> None:
    stream = pond.stream("in", source((1, 2, "a"), (1, 3, "b"), (1, 5, "c")))
    keyed = stream.key_by("k", odd="v % 2 = 1", size="v // 4")
    assert keyed.key == ("k", "odd", "size")
    assert keyed.stream.columns == ["odd", "size", "k", "v", "s"]
    keyed.aggregate(n="count(*)").view("n")
    pond.drain()
    assert rows(pond, "n") == [(1, False, 0, 1), (1, True, 0, 1), (1, True, 1, 1)]


# -- late rows --------------------------------------------------------------------------------------

TIMED = pa.schema([("page", pa.string()), ("at", pa.timestamp("us"))])


def test_late_rows_are_a_stream(pond: Pond) -> None:
    clicks = MemorySource(TIMED)
    stream = pond.stream("clicks", clicks, event_time="at", delay="5s")
    counted = stream.tumble("10s")
    late = counted.late()
    assert late.step == "clicks.watermark.late"
    assert late.schema == TIMED
    assert stream.late().step == late.step, "the same rows, once"
    late.view("late")
    late.key_by("page").aggregate(n="count(*)").view("late_by_page")
    stream.view("on_time")

    def at(second: int) -> datetime:
        return START + timedelta(seconds=second)

    clicks.push([{"page": "a", "at": at(1)}, {"page": "a", "at": at(30)}])
    pond.drain()
    assert rows(pond, "late") == [], "nothing is late before there is a bound"
    clicks.push([{"page": "a", "at": at(24)}, {"page": "b", "at": at(25)}, {"page": "c", "at": None}])
    clicks.push([{"page": "b", "at": at(2)}, {"page": "a", "at": at(3)}])
    pond.drain()
    assert rows(pond, "late") == [("a", at(3)), ("a", at(24)), ("b", at(2))]
    assert rows(pond, "late_by_page") == [("a", 2), ("b", 1)]
    assert rows(pond, "on_time") == [("a", at(1)), ("a", at(30)), ("b", at(25))]
    assert sorted(tuple(r.values()) for r in pond.late("clicks.watermark").to_pylist()) == rows(pond, "late")
    assert pond.errors().num_rows == 1, "a row without a time is told once"


def test_late_rows_of_a_stream_that_forgot_its_time(pond: Pond) -> None:
    stream = pond.stream("clicks", MemorySource(TIMED), event_time="at", delay="5s")
    with pytest.raises(InvalidError, match="no watermark") as caught:
        stream.select("page").late()
    assert "right after it" in (caught.value.hint or "")


# -- explain ----------------------------------------------------------------------------------------


def test_explain_shows_what_each_step_gives(pond: Pond) -> None:
    wide = MemorySource(pa.schema([(f"c{n}", pa.int64()) for n in range(12)]))
    stream = pond.stream("wide", wide)
    big, _ = stream.branch("c1 > 1", lambda row: row.c2 > 2, id="size")[:2]
    big.key_by("c0").aggregate(id="by_c0", n="count(*)").view("v")
    stream.map(lambda row: Word("a", 1, []), Word, id="words").view("w")
    text = pond.explain()
    assert "  wide: Scan -> c0 int64, c1 int64, " in text
    assert "c7 int64, and 4 more" in text
    assert "  size: Branch c1 > 1, a lambda -> " in text
    assert "  by_c0: Aggregate by (c0) n=count(*) -> c0 int64, n int64" in text
    assert "  words: Map a lambda -> text string, length int64, letters list<item: string>" in text
    assert "    needed c0 of 12 columns" in text.splitlines()
    drawn = pond.explain("mermaid")
    assert "size<br/>Branch c1 &gt; 1, a lambda" in drawn


# -- state that ends -------------------------------------------------------------------------------


def test_a_view_keeps_what_its_step_would_let_go(tmp_path: Path) -> None:
    """A step whose own table is a view never lets go; one that became a view later has another over it."""
    timed = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
    clicks = MemorySource(timed)

    def defined(pond: Pond, *, both: bool) -> Stream:
        window = pond.stream("clicks", clicks, event_time="ts", delay="5s").tumble("10s")
        window.key_by("window_end").aggregate(n="count(*)", id="direct").view("direct")
        behind = window.key_by("window_end").aggregate(n="count(distinct v)", id="behind")
        behind.filter("n > 0").view("filtered")
        if both:
            behind.view("named")
        return behind

    def push(second: int) -> None:
        clicks.push([{"k": 1, "v": n, "ts": START + timedelta(seconds=second)} for n in range(3)])

    with opened(tmp_path / "pond") as pond:
        behind = defined(pond, both=False)
        again = pond.stream("clicks", clicks, event_time="ts", delay="5s").tumble("10s")
        assert again.key_by("window_end").aggregate(n="count(*)").step == "direct", "the same step, once"
        for n in range(10):
            push(10 * n)
            pond.drain()
        assert pond.plan.nodes["behind"].binding.view is None
        assert pond.plan.nodes["direct"].binding.view == "direct/groups"
        assert pond.state("behind", "groups").num_rows < 4
        assert pond.read("direct").num_rows == pond.read("filtered").num_rows == 10
        with pond.changing():
            behind.view("named")
        assert rows(pond, "named") == rows(pond, "filtered"), "filled from what the pond holds"
    with opened(tmp_path / "pond") as pond:
        defined(pond, both=True)
        push(200)
        pond.drain()
        assert pond.read("named").num_rows == 11
        assert rows(pond, "named") == rows(pond, "filtered")


@pytest.mark.parametrize(("kind", "kept"), [("semi", [1]), ("anti", [2, 3])])
def test_a_condition_of_a_join_that_shows_one_side(kind: Any, kept: list[int], pond: Pond) -> None:
    left = pond.table("left", {"k": int, "v": int})
    right = pond.table("right", {"k": int, "v": int, "w": int})
    left.join(right, "k", kind, where="w > 5 AND v_right < v + 10").view("found")
    assert pond.stream_of("found").columns == ["k", "v"]
    pond.insert("left", [{"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 3, "v": 3}])
    pond.insert("right", [{"k": 1, "v": 1, "w": 6}, {"k": 2, "v": 99, "w": 6}, {"k": 3, "v": 3, "w": 1}])
    pond.drain()
    assert [row[0] for row in rows(pond, "found")] == kept
    pond.insert("right", [{"k": 2, "v": 2, "w": 6}])
    pond.delete("right", [{"k": 1, "v": 1, "w": 6}])
    pond.drain()
    assert [row[0] for row in rows(pond, "found")] == ([2] if kind == "semi" else [1, 3])
