"""Names: in every place a name works end to end, or is refused where it is defined, as it was written."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import Process, ValueState
from millpond.arguments.names import HIDDEN
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource

OWN = ["_errors", "_x", "_w", "_h", "_o", "__seq", "_bound", "_error", "_n", "_W"]
ODD = ["", " ", "a/b", "a!b", "a\nb", "inbox", "x" * 300]
FINE = ["select", "A", "a b", "ünï日本", "a.b", 'a"b', "a'b", "%s", "a@2", "*", "NULL", "rowid", "step", "1"]
NAMES = [*OWN, *ODD, *FINE]
COLUMNS_OF_PEOPLE = {*FINE, "_errors", "_x", "a/b", "a!b", "inbox", "x" * 300, "a\nb", " "}


def opened() -> Pond:
    return millpond.open("memory://", engine="inline")


def source(schema: Any, *rows: dict[str, Any], **more: Any) -> MemorySource:
    made = MemorySource(schema, **more)
    made.push(list(rows))
    return made


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def shown(pond: Pond, view: str) -> list[dict[str, Any]]:
    assert pond.errors().num_rows == 0
    found: list[dict[str, Any]] = pond.read(view).to_pylist()
    return found


# -- columns --------------------------------------------------------------------------------


def column_of_a_table(name: str, folder: Path, key: str | None = None) -> None:
    pond = opened()
    pond.table("t", {"k": int, name: int}, key=key)
    pond.insert("t", [{"k": 1, name: 2}])
    pond.drain()
    assert shown(pond, "t") == [{"k": 1, name: 2}]


def column_of_a_keyed_table(name: str, folder: Path) -> None:
    column_of_a_table(name, folder, "k")


def key_of_a_table(name: str, folder: Path) -> None:
    pond = opened()
    pond.table("t", {name: int, "v": int}, key=name)
    pond.insert("t", [{name: 1, "v": 1}])
    pond.insert("t", [{name: 1, "v": 2}])
    pond.drain()
    assert shown(pond, "t") == [{name: 1, "v": 2}] == pond.lookup("t", 1).to_pylist()


def column_of_a_stream(name: str, folder: Path) -> None:
    pond = opened()
    stream = pond.stream("s", source({"k": int, name: int}, {"k": 1, name: 2}))
    stream.view("v")
    stream.key_by(name).aggregate(c="count(*)").view("g")
    stream.filter("k > 0").distinct().view("f")
    pond.drain()
    assert shown(pond, "v") == shown(pond, "f") == [{"k": 1, name: 2}]
    assert shown(pond, "g") == [{name: 2, "c": 1}]


def column_that_can_be_retracted(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream("s", source({"k": int, name: int}, {"k": 1, name: 2}, append_only=False)).view("v")
    pond.drain()
    assert shown(pond, "v") == [{"k": 1, name: 2}]


def column_of_parquet(name: str, folder: Path) -> None:
    pq.write_table(pa.table({"k": [1], name: [2]}), folder / "a.parquet")
    _of_files(name, folder, "parquet")


def column_of_json(name: str, folder: Path) -> None:
    (folder / "a.json").write_text(json.dumps({"k": 1, name: 2}) + "\n")
    _of_files(name, folder, "json")


def column_of_csv(name: str, folder: Path) -> None:
    with (folder / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["k", name], [1, 2]])
    _of_files(name, folder, "csv")


def _of_files(name: str, folder: Path, format: Any) -> None:
    pond = opened()
    pond.stream("s", FileSource(folder, format=format)).view("v")
    pond.drain()
    assert shown(pond, "v") == [{"k": 1, name: 2}]


def computed_column(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).select(**{name: "k + 1"}).view("v")
    pond.drain()
    assert shown(pond, "v") == [{name: 2}]


def aggregate(name: str, folder: Path) -> None:
    pond = opened()
    stream = pond.stream("s", source({"k": int}, {"k": 1}))
    stream.key_by("k").aggregate(**{name: "sum(k + 1)"}).view("v")
    pond.drain()
    assert shown(pond, "v") == [{"k": 1, name: 2}]


def computed_key(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).key_by(**{name: "k + 1"}).aggregate(c="count(*)").view("v")
    pond.drain()
    assert shown(pond, "v") == [{name: 2, "c": 1}]


def column_of_map(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).map(lambda r: {name: r.k + 1}, {name: int}).view("v")
    pond.drain()
    assert shown(pond, "v") == [{name: 2}]


def tally(row: Any, c: Any = ValueState(int, default=0)) -> Any:
    c.value += 1
    yield (c.value,)


def column_of_process(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).key_by("k").process(tally, {name: int}).view("v")
    pond.drain()
    assert shown(pond, "v") == [{name: 1}]


def key_of_process(name: str, folder: Path) -> None:
    pond = opened()
    stream = pond.stream("s", source({name: int}, {name: 1}))
    stream.key_by(name).process(tally, {"out": int}, id="p").view("v")
    pond.drain()
    assert shown(pond, "v") == [{"out": 1}] and pond.state("p", "c").to_pylist() == [{name: 1, "c": 1}]


def field_of_a_state(name: str, folder: Path) -> None:
    class Keeps(Process):
        c = ValueState({name: int})

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.c.value = {name: 5}  # type: ignore[assignment]
            yield {"o": 1}

    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).key_by("k").process(Keeps, {"o": int}, id="p").view("v")
    pond.drain()
    assert shown(pond, "v") and pond.state("p", "c").to_pylist() == [{"k": 1, name: 5}]


def column_of_a_sql_table(name: str, folder: Path) -> None:
    pond = opened()
    pond.sql(f"CREATE TABLE t (k int, {quoted(name)} int); INSERT INTO t VALUES (1, 2); FLUSH")
    assert pond.sql("SELECT * FROM t").fetchall() == [(1, 2)]
    assert shown(pond, "t") == [{"k": 1, name: 2}]


def key_of_a_sql_table(name: str, folder: Path) -> None:
    pond = opened()
    pond.sql(f"CREATE TABLE t ({quoted(name)} int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 2); FLUSH")
    assert pond.sql(f"SELECT v FROM t WHERE {quoted(name)} = 1").fetchall() == [(2,)]


def column_that_sql_adds(name: str, folder: Path) -> None:
    pond = opened()
    pond.sql(f"CREATE TABLE t (k int); ALTER TABLE t ADD COLUMN {quoted(name)} int")
    pond.sql("INSERT INTO t VALUES (1, 2); FLUSH")
    assert shown(pond, "t") == [{"k": 1, name: 2}]


def column_of_a_sql_view(name: str, folder: Path) -> None:
    pond = opened()
    pond.sql("CREATE TABLE t (k int)")
    pond.sql(f"CREATE MATERIALIZED VIEW v AS SELECT k AS {quoted(name)}, count(*) AS c FROM t GROUP BY k")
    pond.sql("INSERT INTO t VALUES (1); FLUSH")
    assert shown(pond, "v") == [{name: 1, "c": 1}]
    assert pond.diff("v", 0, pond.epoch).to_pylist() == [{name: 1, "c": 1, "_w": 1}]


# -- names of things --------------------------------------------------------------------------


def view(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).view(name)
    pond.drain()
    assert shown(pond, name) == [{"k": 1}]
    assert pond.sql(f"SELECT * FROM {quoted(name)}").fetchall() == [(1,)]


def view_of_an_aggregate(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).key_by("k").aggregate(n="count(*)").view(name)
    pond.drain()
    assert shown(pond, name) == [{"k": 1, "n": 1}]
    assert pond.sql(f"SELECT * FROM {quoted(name)}").fetchall() == [(1, 1)]


def stream(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream(name, source({"k": int}, {"k": 1})).view("v")
    pond.drain()
    assert shown(pond, "v") == [{"k": 1}]


def table(name: str, folder: Path) -> None:
    pond = opened()
    pond.table(name, {"k": int})
    pond.insert(name, [{"k": 1}])
    pond.drain()
    assert shown(pond, name) == [{"k": 1}]
    assert pond.sql(f"SELECT * FROM {quoted(name)}").fetchall() == [(1,)]


def step(name: str, folder: Path) -> None:
    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).filter("k > 0", id=name).view("v")
    pond.drain()
    assert shown(pond, "v") == [{"k": 1}]


def side_output(name: str, folder: Path) -> None:
    def code(row: Any, ctx: Any) -> Any:
        ctx.emit(name, {"k": row.k})
        yield {"k": row.k}

    pond = opened()
    stream = pond.stream("s", source({"k": int}, {"k": 1}))
    stream.key_by("k").process(code, {"k": int}, sides={name: {"k": int}}).side(name).view("w")
    pond.drain()
    assert shown(pond, "w") == [{"k": 1}]


def state(name: str, folder: Path) -> None:
    class Keeps(Process):
        c = ValueState(int, default=0, name=name)

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.c.value += 1
            yield {"o": self.c.value}

    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1})).key_by("k").process(Keeps, {"o": int}, id="p").view("v")
    pond.drain()
    assert shown(pond, "v") == [{"o": 1}] and pond.state("p", name).num_rows == 1


def sink(name: str, folder: Path) -> None:
    told: list[Any] = []
    pond = opened()
    made = pond.stream("s", source({"k": int}, {"k": 1})).view("v")
    made.sink(name, CallbackSink(lambda epoch, rows: told.append(epoch)))
    pond.drain()
    assert len(told) == 1


def savepoint(name: str, folder: Path) -> None:
    pond = opened()
    pond.table("t", {"k": int})
    pond.drain()
    pond.savepoint(name)
    assert pond.read("t", epoch=name).num_rows == 0


def sql_table(name: str, folder: Path) -> None:
    pond = opened()
    pond.sql(f"CREATE TABLE {quoted(name)} (k int); INSERT INTO {quoted(name)} VALUES (1); FLUSH")
    assert pond.sql(f"SELECT * FROM {quoted(name)}").fetchall() == [(1,)]


def sql_view(name: str, folder: Path) -> None:
    pond = opened()
    pond.sql("CREATE TABLE t (k int)")
    pond.sql(f"CREATE MATERIALIZED VIEW {quoted(name)} AS SELECT k, count(*) AS c FROM t GROUP BY k")
    pond.sql("INSERT INTO t VALUES (1); FLUSH")
    assert shown(pond, name) == [{"k": 1, "c": 1}]


STORED = [  # columns of people: all work but the hidden ones
    column_of_a_table,
    column_of_a_keyed_table,
    key_of_a_table,
    column_of_a_stream,
    column_that_can_be_retracted,
    key_of_process,
    field_of_a_state,
    column_of_a_sql_table,
    key_of_a_sql_table,
    column_that_sql_adds,
]
COMPUTED = [  # columns of steps, and of files: none may begin with an underscore
    column_of_parquet,
    column_of_json,
    column_of_csv,
    computed_column,
    aggregate,
    computed_key,
    column_of_map,
    column_of_process,
]
THINGS = [
    view,
    view_of_an_aggregate,
    stream,
    table,
    step,
    side_output,
    state,
    sink,
    savepoint,
    sql_table,
    sql_view,
]
Place = Callable[[str, Path], None]


@pytest.mark.parametrize(
    "place", [*STORED, *COMPUTED, column_of_a_sql_view, *THINGS], ids=lambda p: p.__name__
)
def test_every_name_works_or_is_refused_where_it_is_written(place: Place, tmp_path: Path) -> None:
    works = set()
    for number, name in enumerate(NAMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            place(name, folder)
        except InvalidError as error:
            text = str(error)
            assert "\n" not in error.message and "/rows" not in text and ".view" not in text, text
            assert name in text or repr(name)[1:20] in text or not name.strip() or "\n" in name, text
        else:
            works.add(name)
    if place is column_of_a_sql_view:
        assert works == {*COLUMNS_OF_PEOPLE, *OWN} - {"_w", "_W"}
    elif place in STORED:
        assert works == COLUMNS_OF_PEOPLE
    elif place in COMPUTED:
        assert {*FINE, "a/b", "a!b"} <= works and not any(n.startswith("_") for n in works)
    elif place is state:
        assert {*FINE} - {"a.b"} <= works and not works & {*OWN, "", "a/b"}
    elif place is savepoint:
        assert works == {*FINE} - {"1"}
    else:
        assert works == {*FINE}


@pytest.mark.parametrize("name", sorted(HIDDEN))
def test_hidden_columns(name: str) -> None:
    with pytest.raises(InvalidError, match=f"column {name!r} of table 't' cannot have this name"):
        opened().table("t", {name: int, "a": int})
    with pytest.raises(InvalidError, match=f"column {name!r} of stream 's' cannot have this name"):
        opened().stream("s", MemorySource({name: int, "a": int}))


def test_names_that_differ_only_in_case(tmp_path: Path) -> None:
    pond = opened()
    with pytest.raises(InvalidError, match="columns 'a' and 'A' of table 't' differ only in case"):
        pond.table("t", {"a": int, "A": int})
    pq.write_table(pa.table({"a": [1], "A": [2]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidError, match="differ only in case"):
        pond.stream("files", FileSource(tmp_path))
    made = pond.table("t", {"a": int})
    made.select(b="a").view("view")
    for define in (
        lambda: made.select(c="a").view("View"),
        lambda: made.view("T"),
        lambda: pond.stream("T", MemorySource({"a": int})),
        lambda: pond.table("T", {"a": int}),
    ):
        with pytest.raises(InvalidError, match="SQL does not distinguish names"):
            define()


def test_a_column_that_is_there_twice() -> None:
    twice = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(InvalidError, match="column 'a' of table 't' is there twice"):
        opened().table("t", twice)
    with pytest.raises(InvalidError, match="column 'a' of stream 's' is there twice"):
        opened().stream("s", MemorySource(twice))


def test_a_view_may_have_the_name_of_its_stream() -> None:
    pond = opened()
    pond.stream("s", source({"k": int}, {"k": 1}, {"k": 1})).key_by("k").aggregate(n="count(*)").view("s")
    pond.drain()
    assert shown(pond, "s") == [{"k": 1, "n": 2}]
    assert pond.sql("SELECT n FROM s").fetchall() == [(2,)]


def test_null_is_a_key_like_any_other() -> None:
    pond = opened()
    pond.table("t", {"k": int, "v": int}, key="k")
    rows = [{"k": None, "v": 1}, {"k": None, "v": 2}, {"k": "a", "v": 1}]
    stream = pond.stream("s", source({"k": str, "v": int}, *rows))
    stream.key_by("k").aggregate(n="count(*)").view("by_k")
    stream.key_by("k", "v").aggregate(n="count(*)").view("by_both")
    stream.key_by("k").process(tally, {"n": int}, id="p").view("tallied")
    pond.insert("t", [{"k": None, "v": 1}, {"k": 1, "v": 1}])
    pond.insert("t", [{"k": None, "v": 5}])
    pond.drain()
    assert pond.lookup("t", None).to_pylist() == [{"k": None, "v": 5}]
    assert pond.lookup("by_k", None).to_pylist() == [{"k": None, "n": 2}]
    assert sorted(pond.lookup("by_k", [None, "a"])["n"].to_pylist()) == [1, 2]
    assert pond.lookup("by_both", (None, 1)).to_pylist() == [{"k": None, "v": 1, "n": 1}]
    assert sorted(pond.state("p", "c")["c"].to_pylist()) == [1, 2]
    pond.delete("t", [{"k": None, "v": None}])
    pond.drain()
    assert pond.read("t").to_pylist() == [{"k": 1, "v": 1}]
    pond.sql("CREATE TABLE q (k int PRIMARY KEY, v int)")
    with pytest.raises(InvalidError, match="NULL"):
        pond.sql("INSERT INTO q VALUES (NULL, 1)")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT _id, rank() OVER (PARTITION BY v ORDER BY _id) FROM t", [(1, 1), (2, 2), (3, 1)]),
        ("SELECT v, sum(_id) OVER (PARTITION BY v) FROM t", [(2, 3), (2, 3), (5, 3)]),
        ("SELECT _id, (SELECT max(_id) FROM t AS b WHERE b.v = a.v) FROM t AS a", [(1, 2), (2, 2), (3, 3)]),
        ("SELECT unnest([_id, v]) AS _each FROM t", [(1,), (2,), (2,), (2,), (3,), (5,)]),
    ],
)
def test_every_query_may_read_columns_that_begin_with_an_underscore(
    query: str, rows: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", checks=True) as pond:
        pond.sql(f"CREATE TABLE t (_id int PRIMARY KEY, v int); CREATE MATERIALIZED VIEW m AS {query}")
        pond.sql("INSERT INTO t VALUES (1, 2), (2, 2), (3, 5), (4, 5); DELETE FROM t WHERE _id = 4; FLUSH")
        assert sorted(pond.sql("SELECT * FROM m").fetchall()) == rows
