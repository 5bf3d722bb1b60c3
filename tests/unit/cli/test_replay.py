"""`millpond replay`: an epoch again, with the stored code or another, under a debugger or not."""

from __future__ import annotations

import io
import json
import pdb
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.cli import debugger as debuggers
from millpond.cli.commands import replay as command
from millpond.cli.debugger import Debugger
from millpond.sources.nexmark import NexmarkSource
from tests.unit.cli.ponds import ask, ask_json, make

FILE = """
import pyarrow as pa
from millpond.sources.nexmark import NexmarkSource

def half(row):
    yield {"auction": row.auction, "half": row.price // DIVISOR}

def pipeline(pond):
    stream = pond.stream("bids", NexmarkSource("bid", events=200))
    stream.flat_map(half, pa.schema([("auction", pa.int64()), ("half", pa.int64())]), id="half").view("halves")
    stream.key_by("auction").aggregate(n="count(*)").view("n")

"""


@pytest.fixture
def pond(tmp_path: Path) -> str:
    (tmp_path / "p.py").write_text(FILE + "DIVISOR = 2")
    where = str(tmp_path / "pond")
    ask_json("run", str(tmp_path / "p.py"), "--pond", where, "--engine", "inline", "--drain")
    return where


def test_the_stored_code_gives_the_same(pond: str) -> None:
    found = ask_json("replay", pond, "1")
    assert found["same"] and found["tables_compared"] == 2 and found["differing_tables"] == []
    assert {s["step"] for s in found["steps"]} >= {"bids", "half", "bids.by-auction"}
    said = ask("replay", pond, "1", "--step", "half", "--rows", "-n", "3")
    assert said.code == 0 and "epoch 1 came out the same: 2 tables compared" in said.out
    assert "3 of 184 rows of step half" in said.out and "by-auction" not in said.out


def test_a_changed_function_differs_and_says_where(pond: str, tmp_path: Path) -> None:
    (tmp_path / "fix.py").write_text(FILE + "DIVISOR = 3")
    found = ask("replay", pond, "1", "--file", str(tmp_path / "fix.py"), "-o", "json")
    assert found.code == command.DIFFERENT == 1
    assert found.json["differing_tables"] == ["halves.view/rows"]
    assert {r["_only"] for r in found.json["differences halves.view/rows"]} <= {"replay", "committed"}
    said = ask("replay", pond, "1", "--file", str(tmp_path / "fix.py"))
    assert said.code == 1 and "came out DIFFERENT" in said.out and "in only one of the two" in said.out
    (tmp_path / "same.py").write_text(FILE + "DIVISOR = 2")
    assert ask_json("replay", pond, "1", "-f", str(tmp_path / "same.py"))["same"]


def test_dice(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        schema = pa.schema([("luck", pa.float64())])
        stream = pond.stream("bids", NexmarkSource("bid", events=50))
        stream.flat_map(lambda r: [(random.random(),)], schema).view("lucky")
        pond.drain()
    found = ask("replay", str(tmp_path / "pond"), "1", "-o", "json")
    assert found.code == 1 and found.json["same"] is False


def test_wrong_calls(pond: str, tmp_path: Path) -> None:
    assert "computed nothing: it made the pond" in ask("replay", pond, "0").err
    assert "no step named 'hafl'" in ask("replay", pond, "1", "--step", "hafl").err
    assert "there is no epoch 77 yet" in ask("replay", pond, "77").err
    assert "--pdb needs a terminal" in ask("replay", pond, "1", "--pdb", "-o", "json").err
    found = ask("replay", make(tmp_path / "memory"), "1", "-o", "json")
    assert found.code == 2 and "what it read from source" in json.loads(found.err)["message"]
    assert "does not hold item 0" in json.loads(found.err)["detail"]
    (tmp_path / "other.py").write_text("def pipeline(pond):\n    pass")
    assert (
        "is in the pond but not in this pipeline"
        in ask("replay", pond, "1", "-f", str(tmp_path / "other.py")).err
    )


def told(commands: str) -> tuple[Debugger, io.StringIO]:
    """A debugger that reads its commands from a text."""
    out = io.StringIO()
    return Debugger(
        lambda: pdb.Pdb(stdin=io.StringIO(commands), stdout=out, nosigint=True, readrc=False)
    ), out


def test_pdb_stops_where_the_code_raises(pond: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.py").write_text(FILE + "DIVISOR = 0")
    made, out = told("p row.auction\np DIVISOR\nc\n")
    monkeypatch.setattr(command, "Debugger", lambda: made)
    found = ask("replay", pond, "1", "--file", str(tmp_path / "bad.py"), "--pdb")
    assert found.code == 1  # every row of that step is an error row now
    assert out.getvalue().count("bad.py(6)half()") == 184 and "(Pdb) 0\n" in out.getvalue()
    assert "ZeroDivisionError" in found.err


def test_pdb_stops_before_a_step(pond: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, out = told("p inputs[0].num_rows\nc\n")
    monkeypatch.setattr(command, "Debugger", lambda: made)
    found = ask("replay", pond, "1", "--step", "half", "--pdb")
    assert found.code == 0, found.err
    assert "184" in out.getvalue() and "step 'half' gets 184 rows" in found.err


def test_leaving_the_debugger_ends_the_replay(
    pond: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.py").write_text(FILE + "DIVISOR = 0")
    for more in (["--step", "half"], ["--file", str(tmp_path / "bad.py")]):
        made, out = told("q\n")
        monkeypatch.setattr(command, "Debugger", lambda made=made: made)
        found = ask("replay", pond, "1", "--pdb", *more)
        assert found.code == command.LEFT == 130 and "failed" not in found.err
        assert out.getvalue().count("(Pdb)") == 1


def test_the_default_debugger_is_pdb() -> None:
    default: Any = debuggers.Debugger()
    assert default._make is pdb.Pdb
