"""`millpond state`: every table of a pond, by its step and name, or as a view."""

from __future__ import annotations

import doctest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
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
        (("get", "{pond}", STEP, "gruppen"), f"step '{STEP}' keeps groups"),
        (("get", "{pond}", "by_shop", "a,b", "--epoch", "99"), "there is no epoch 99 yet"),
        (("get", "{pond}", "by_shop", "[1"), "JSON list"),
        (("get", "{pond}", "by_shop", '["a", "b"]'), "the key has 1 columns"),
        (("diff", "{pond}", "by_shop", "1"), "two epochs are needed"),
        (("diff", "{pond}", "by_shop", "a", "1", "2"), "a diff takes no key"),
        (("export", "{pond}", "by_shop"), "a file is needed"),
        (("export", "{pond}", "by_shop", "x.csv"), "must end in .parquet"),
        (("export", "{pond}", "by_shop", "a", "x.parquet"), "an export takes no key"),
        (("export", "{pond}", "by_shop", "/nowhere/at/all/x.parquet"), "cannot be written"),
    ],
)
def test_wrong_calls(pond: str, args: tuple[str, ...], message: str) -> None:
    found = ask("state", *(a.format(pond=pond) for a in args))
    assert found.code == 2 and message in found.err, found.err


def test_keys_of_several_typed_columns(tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64()), ("v", pa.int64())])
    source = MemorySource(schema)
    import datetime

    source.push([{"day": datetime.date(2026, 1, 2), "n": 3, "v": 4}])
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.stream("s", source).key_by("day", "n").aggregate(total="sum(v)").view("t")
        pond.drain()
    where = str(tmp_path / "pond")
    assert ask_json("state", "get", where, "t", "2026-01-02,3")["total"] == 1
    assert ask_json("state", "get", where, "t", '["2026-01-02", 4]')["total"] == 0
    found = ask("state", "get", where, "t", "someday,3")
    assert found.code == 2 and "'someday' is no date32" in found.err


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
