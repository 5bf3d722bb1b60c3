"""What users' functions and sinks raise is told with step, key and line; and lost rows are never silent (law 9)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from tests.waiting import until

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
HERE = Path(__file__).name


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, checks=True) as made:
        yield made


def line_of(function: Callable[..., Any], text: str) -> str:
    """Where a text stands in this file, as file:line."""
    lines, first = inspect.getsourcelines(function)
    return f"{HERE}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def rows(pond: Pond, view: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in pond.read(view).to_pylist())


def bad_batch(table: pa.Table) -> pa.Table:
    if table.num_rows:
        raise ZeroDivisionError("in my code")
    return table


def test_map_batches(pond: Pond) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": 1, "v": 1}])
    pond.stream("in", source).map_batches(bad_batch, SCHEMA, id="mine").view("v")
    with pytest.raises(InvalidError, match="bad_batch failed on a batch of 1 rows") as caught:
        pond.drain()
    assert caught.value.step == "mine"
    assert caught.value.epoch == 1
    assert f"ZeroDivisionError: in my code ({line_of(bad_batch, 'raise')})" in (caught.value.detail or "")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert pond.epoch == 0, "nothing is committed"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda t: None, "must return an Arrow table"),
        (lambda t: t.rename_columns(["a", "b"]), "returned other columns than declared"),
        (lambda t: t.set_column(1, "v", t.column("v").cast("string")), "returned another type than declared"),
    ],
    ids=["nothing", "names", "types"],
)
def test_map_batches_that_gives_something_else(
    pond: Pond, given: Callable[[pa.Table], Any], said: str
) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": 1, "v": 1}])
    pond.stream("in", source).map_batches(given, SCHEMA, id="mine").view("v")
    with pytest.raises(InvalidError, match=said) as caught:
        pond.drain()
    assert caught.value.step == "mine"


def bad_row(row: Any) -> Any:
    if row.v == 2:
        raise LookupError("no such thing")
    return [row.as_dict()]


def test_flat_map_keeps_the_good_rows(pond: Pond) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": k, "v": v} for k, v in ((1, 1), (2, 2), (3, 3))])
    pond.stream("in", source).flat_map(bad_row, SCHEMA, id="mine").view("v")
    pond.drain()
    assert rows(pond, "v") == [(1, 1), (3, 3)]
    (error,) = pond.errors("v").to_pylist()
    assert error["step"] == "mine"
    assert "2" in error["row"]
    assert error["reason"] == f"LookupError: no such thing ({line_of(bad_row, 'raise')})"
    assert pond.head().counts["errors/mine"] == 1


def bad_key(*arguments: Any) -> Any:
    table = next(a for a in arguments if isinstance(a, pa.Table))
    if 2 in table.column("k").to_pylist():
        raise OSError("not this key")
    return table


def test_apply_tells_the_key(pond: Pond) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": k, "v": 1} for k in (1, 2, 3)])
    pond.stream("in", source).key_by("k").apply(bad_key, SCHEMA, id="mine").view("v")
    try:
        pond.drain()
    except InvalidError as error:
        assert error.step == "mine"
        assert f"OSError: not this key ({line_of(bad_key, 'raise')})" in (error.detail or "")
        assert "2" in error.message + (error.detail or "")
        assert pond.epoch == 0
    else:
        (row,) = pond.errors("v").to_pylist()
        assert row["step"] == "mine"
        assert "2" in row["row"]
        assert f"OSError: not this key ({line_of(bad_key, 'raise')})" in row["reason"]
        assert rows(pond, "v") == [(1, 1), (3, 1)]


def test_a_function_that_was_mended_goes_on_in_the_same_process(pond: Pond) -> None:
    broken = [True]

    def mine(table: pa.Table) -> pa.Table:
        if broken:
            raise ValueError("today")
        return table

    source = MemorySource(SCHEMA)
    source.push([{"k": 1, "v": 1}])
    pond.stream("in", source).map_batches(mine, SCHEMA).view("v")
    for _ in range(3):
        with pytest.raises(InvalidError, match="mine failed"):
            pond.drain()
    broken.clear()
    pond.drain()
    assert rows(pond, "v") == [(1, 1)]


# -- sinks --------------------------------------------------------------------------------------


class Target:
    """Fails as long as it is told to; remembers what it was given, in which order."""

    def __init__(self) -> None:
        self.down: Exception | None = None
        self.epochs: list[int] = []
        self.totals: dict[tuple[Any, ...], int] = {}
        self.tries = 0

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        self.tries += 1
        if self.down is not None:
            raise self.down
        self.epochs.append(epoch)
        for row in delta.to_pylist():
            weight = row.pop("_w")
            key = tuple(row.values())
            self.totals[key] = self.totals.get(key, 0) + weight

    def rows(self) -> list[tuple[Any, ...]]:
        assert all(n in (0, 1) for n in self.totals.values())
        return sorted(key for key, n in self.totals.items() if n)


def with_sinks(pond: Pond, **sinks: Target) -> MemorySource:
    source = MemorySource(SCHEMA)
    view = pond.stream("in", source).key_by("k").aggregate(n="count(*)", s="sum(v)").view("v")
    for name, target in sinks.items():
        view.sink(name, target)
    return source


def test_a_sink_that_raises_holds_nothing_back_and_loses_nothing(pond: Pond) -> None:
    bad, good = Target(), Target()
    source = with_sinks(pond, bad=bad, good=good)
    source.push([{"k": 1, "v": 1}])
    pond.drain()
    bad.down = ConnectionError("the database is down")
    for value in range(3):
        source.push([{"k": 1, "v": value}, {"k": 2, "v": value}])
        with pytest.raises(UnavailableError, match="sink 'bad' failed") as caught:
            pond.drain()
        assert "ConnectionError: the database is down" in (caught.value.detail or "")
        assert isinstance(caught.value.__cause__, ConnectionError)
    want = rows(pond, "v")
    assert want == [(1, 4, 4), (2, 3, 3)], "the pipeline went on"
    assert good.rows() == want
    bad.down = None
    pond.drain()
    assert bad.rows() == want
    assert bad.epochs == sorted(set(bad.epochs))


def test_two_sinks_that_raise_are_both_tried_again(pond: Pond) -> None:
    one, two = Target(), Target()
    source = with_sinks(pond, one=one, two=two)
    one.down = two.down = RuntimeError("down")
    source.push([{"k": 1, "v": 1}])
    with pytest.raises(UnavailableError, match=r"sink '(one|two)' failed"):
        pond.drain()
    one.down = two.down = None
    pond.drain()
    assert one.rows() == two.rows() == [(1, 1, 1)]


def test_a_sink_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    target = Target()
    items = [[{"k": 1, "v": v}] for v in range(4)]
    for turn in range(4):
        with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
            target.down = OSError("down") if turn % 2 else None
            source = with_sinks(pond, out=target)
            source.push(*items[: turn + 1])
            if turn % 2:
                with pytest.raises(UnavailableError, match="sink 'out' failed"):
                    pond.drain()
            else:
                pond.drain()
                assert target.rows() == rows(pond, "v")


def test_a_sink_that_failed_in_the_background_is_tried_again_by_itself(tmp_path: Path) -> None:
    target = Target()
    with millpond.open(tmp_path / "p", engine="inline", durable=False, poll_ms=5) as pond:
        source = with_sinks(pond, out=target)
        target.down = OSError("down")
        pond.start()
        source.push([{"k": 1, "v": 1}])
        with pytest.raises(UnavailableError, match="sink 'out' failed"):
            pond.drain()
        target.down = None
        until(lambda: target.rows() == [(1, 1, 1)])  # the first retry comes after a second
        pond.drain()


def test_a_sink_added_to_an_old_pond_gets_all_rows(tmp_path: Path) -> None:
    options: dict[str, Any] = {"durable": False, "retain_epochs": 2, "collect_every": 1}
    items = [[{"k": v % 3, "v": v}] for v in range(12)]
    with millpond.open(tmp_path / "p", engine="inline", **options) as pond:
        source = with_sinks(pond)
        for item in items:
            source.push(item)
            pond.drain()
        assert pond.head().floor > 3
    target = Target()
    with millpond.open(tmp_path / "p", engine="inline", **options) as pond:
        source = with_sinks(pond, late=target)
        source.push(*items)
        pond.drain()
        assert target.rows() == rows(pond, "v")
        source.push([{"k": 0, "v": 100}])
        pond.drain()
        assert target.rows() == rows(pond, "v")


@pytest.mark.parametrize("kind", [KeyError, SystemError, UnicodeDecodeError])
def test_whatever_a_sink_raises_is_told(pond: Pond, kind: type[Exception]) -> None:
    target = Target()
    target.down = kind("utf-8", b"x", 0, 1, "odd") if kind is UnicodeDecodeError else kind("odd")
    source = with_sinks(pond, out=target)
    source.push([{"k": 1, "v": 1}])
    with pytest.raises(UnavailableError, match="sink 'out' failed") as caught:
        pond.drain()
    assert kind.__name__ in (caught.value.detail or "")
