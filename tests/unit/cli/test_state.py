"""`millpond state`: every table of a pond, by its step and name, or as a view."""

from __future__ import annotations

import datetime
import doctest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import ListState, Process, ValueState
from millpond.cli import tables
from millpond.cli.commands.state import legible
from millpond.sources.memory import MemorySource
from tests.unit.cli.ponds import ask, ask_json, make

STEP = "sales.by-shop"


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("state") / "pond")


def test_ls(pond: str) -> None:
    found = {t["table"]: t for t in ask_json("state", "ls", pond)["tables"]}
    groups = found[f"{STEP}/groups"]
    assert (groups["step"], groups["state"], groups["views"], groups["key"]) == (
        STEP,
        "groups",
        ["by_shop"],
        ["shop"],
    )
    assert groups["runs"] == 2 and groups["columns"]["shop"] == "string"
    assert ask_json("state", "ls", pond, "-e", "0")["epoch"] == 0
    text = ask("state", "ls", pond).out
    assert f"{STEP}/groups" in text and "at epoch 3" in text


@pytest.mark.parametrize("words", [(STEP, "groups"), (f"{STEP}/groups",), ("by_shop",)])
def test_get(pond: str, words: tuple[str, ...]) -> None:
    found = ask_json("state", "get", pond, *words)
    assert {r["shop"]: r["total"] for r in found["rows"]} == {"a": 11, "b": 2}
    (one,) = ask_json("state", "get", pond, *words, "a")["rows"]
    assert one["total"] == 11
    assert len(ask_json("state", "get", pond, *words, "a", "b", "zz")["rows"]) == 2
    (then,) = ask_json("state", "get", pond, *words, "a", "--epoch", "start")["rows"]
    assert then["total"] == 1
    assert "11" in ask("state", "get", pond, *words, "a").out


def test_diff(pond: str) -> None:
    for words in (("by_shop",), (STEP, "groups")):
        found = ask_json("state", "diff", pond, *words, "start", "3")
        assert (found["from"], found["to"], found["total"]) == (1, 3, 2)
        assert sorted((r["total"], r["_w"]) for r in found["rows"]) == [(1, -1), (11, 1)]
        back = ask_json("state", "diff", pond, *words, "3", "start")["rows"]
        assert sorted((r["total"], r["_w"]) for r in back) == [(1, 1), (11, -1)]
    assert "2 rows differ from epoch 1 to 3" in ask("state", "diff", pond, "by_shop", "1", "3").out


def test_export(pond: str, tmp_path: Path) -> None:
    target = tmp_path / "shops.parquet"
    done = ask_json("state", "export", pond, "by_shop", str(target), "--epoch", "1")
    assert (done["rows"], done["epoch"], done["state"]) == (2, 1, "by_shop")
    assert pq.read_table(target).sort_by("shop").to_pylist()[0] == {"shop": "a", "n": 1, "total": 1}
    again = ask("state", "export", pond, STEP, "groups", str(target))
    assert again.code == 2 and "there already" in again.err
    said = ask("state", "export", pond, STEP, "groups", str(target), "--force")
    assert said.code == 0 and "2 rows of" in said.out
    assert pq.read_table(target).num_rows == 2 and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("get", "{pond}", "by_shap"), "did you mean 'by_shop'?"),
        (("get", "{pond}", STEP, "gruppen"), f"step '{STEP}' has groups"),
        (("get", "{pond}", "by_shop", "a,b", "--epoch", "99"), "there is no epoch 99 yet"),
        (("get", "{pond}", "by_shop", "[1"), "JSON list"),
        (("get", "{pond}", "by_shop", '["a", "b"]'), "the key has 1 columns"),
        (("diff", "{pond}", "by_shop", "1"), "two epochs are needed"),
        (("diff", "{pond}", "by_shop", "a", "1", "2"), "a diff takes no key"),
        (("export", "{pond}", "by_shop"), "a file is needed"),
        (("export", "{pond}", "by_shop", "x.csv"), "must end in .parquet"),
        (("export", "{pond}", "by_shop", "a", "x.parquet"), "an export takes no key"),
    ],
)
def test_wrong_calls(pond: str, args: tuple[str, ...], message: str) -> None:
    found = ask("state", *(a.format(pond=pond) for a in args))
    assert found.code == 2 and message in found.err, found.err


def test_a_file_that_cannot_be_written(pond: str) -> None:
    found = ask("state", "export", pond, "by_shop", "/nowhere/at/all/x.parquet")
    assert found.code == 4 and "cannot be written" in found.err


def test_keys_of_several_typed_columns(tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64()), ("v", pa.int64())])
    source = MemorySource(schema)
    source.push([{"day": datetime.date(2026, 1, 2), "n": 3, "v": 4}])
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.stream("s", source).key_by("day", "n").aggregate(total="sum(v)").view("t")
        pond.drain()
    where = str(tmp_path / "pond")
    assert ask_json("state", "get", where, "t", "2026-01-02,3")["total"] == 1
    assert ask_json("state", "get", where, "t", '["2026-01-02", 4]')["total"] == 0
    found = ask("state", "get", where, "t", "someday,3")
    assert found.code == 2 and "'someday' is not a valid date32" in found.err


def test_pickled_values_are_told_by_their_size() -> None:
    field = pa.field("model", pa.binary(), metadata={b"millpond": b"pickle"})
    table = pa.table(
        [pa.array([b"12345", None]), pa.array([b"ab", b"c"])], schema=pa.schema([field, ("b", pa.binary())])
    )
    assert legible(table).to_pylist() == [
        {"model": "pickle, 5 bytes", "b": b"ab"},
        {"model": None, "b": b"c"},
    ]


def test_examples_in_the_code() -> None:
    assert doctest.testmod(tables).failed == 0


class Spree(Process):
    """Counts, keeps the last sales for a while, and remembers a set that Arrow knows nothing of."""

    n = ValueState(int, default=0)
    shops = ValueState()
    last = ListState(int, ttl="10s", clock="event")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n.value += 1
        self.shops.value = (self.shops.value or set()) | {row.shop}
        self.last.append(row.price)
        return {"n": self.n.value}


def test_states_of_a_process(tmp_path: Path) -> None:
    def sale(user: str, shop: str, price: int, second: int) -> dict[str, Any]:
        return {"user": user, "shop": shop, "price": price, "at": datetime.datetime(2026, 1, 1, 0, 0, second)}

    schema = pa.schema(
        [("user", pa.string()), ("shop", pa.string()), ("price", pa.int64()), ("at", pa.timestamp("us"))]
    )
    source = MemorySource(schema)
    source.push([sale("u", "a", 1, 1), sale("v", "b", 2, 2)])
    where = str(tmp_path / "pond")
    with millpond.open(where, engine="inline", durable=False) as pond:
        keyed = pond.stream("s", source, event_time="at").key_by("user")
        keyed.process(Spree(), schema=pa.schema([("n", pa.int64())]), id="spree").view("rows")
        first = pond.drain()
        source.push([sale("u", "c", 30, 30)])
        pond.drain()
        assert pond.replay(first).same and pond.replay(pond.epoch).same
        with pond.at(first) as then:
            assert {r["user"]: r["n"] for r in then.state("spree", "n").to_pylist()} == {"u": 1, "v": 1}
            assert {tuple(r["shops"]) for r in then.state_rows("spree", "shops")} == {("a",), ("b",)}
            assert {(s.step, s.state) for s in then.states()} >= {("spree", "n"), ("spree", "last")}
    listed = {t["table"] for t in ask_json("state", "ls", where)["tables"]}
    assert {"spree/n", "spree/shops", "spree/last"} <= listed and not any("ttl" in t for t in listed)
    assert any("ttl" in t["table"] for t in ask_json("state", "ls", where, "--all")["tables"])
    (got,) = ask_json("state", "get", where, "spree", "n", "u")["rows"]
    assert got == {"user": "u", "n": 2}
    assert ask_json("state", "get", where, "spree", "n", "u", "-e", str(first))["rows"][0]["n"] == 1
    (hidden,) = ask_json("state", "get", where, "spree", "shops", "v")["rows"]
    assert hidden["shops"].startswith("pickle, ")
    assert ask_json("state", "get", where, "spree", "shops", "v", "--unpickle")["rows"][0]["shops"] == "{'b'}"
    # What is over is not shown, by key or at all.
    assert [r["last"] for r in ask_json("state", "get", where, "spree", "last", "u")["rows"]] == [30]
    assert [r["last"] for r in ask_json("state", "get", where, "spree", "last")["rows"]] == [30]
    moved = ask_json("state", "diff", where, "spree", "n", str(first), "2")["rows"]
    assert sorted((r["n"], r["_w"]) for r in moved) == [(1, -1), (2, 1)]
    ask_json("state", "export", where, "spree", "n", str(tmp_path / "n.parquet"))
    assert pq.read_table(tmp_path / "n.parquet").sort_by("user")["n"].to_pylist() == [2, 1]
