"""Commands that change a pond go through the inbox: to a running pipeline, or to the next one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import millpond
from millpond.cli.command_answer import answer
from millpond.control import lease
from millpond.control.inbox_sender import InboxSender, Sent
from millpond.engine.task.worker import Worker
from millpond.errors import InvalidError
from millpond.serve.reader import Reader
from millpond.state.inbox import beyond
from millpond.state.manifest import history
from tests.unit.cli.ponds import ask, ask_json, define, make, sales


def test_a_running_pipeline_does_it(tmp_path: Path) -> None:
    source = sales()
    with define(tmp_path / "pond", source, poll_ms=10) as pond:
        pond.start()
        pond.flush()
        path = str(tmp_path / "pond")
        done = ask_json("rescale", path, "3")
        assert done["status"] == "done" and done["running"]
        assert pond.head().parallelism == 3
        assert f"savepoint here made in epoch {done['epoch'] + 1}" in ask("savepoint", path, "here").out
        assert pond.head().savepoints == {"here": done["epoch"]}
        source.push([{"shop": "c", "price": 5}])
        pond.flush()
        assert len(pond.read("by_shop")) == 3
        back = ask_json("rollback", path, "here")
        assert back["status"] == "done"
        shown = ask_json("show", path, str(back["epoch"]))
        assert (shown["kind"], shown["note"]) == ("rollback", f"back to epoch {done['epoch']}")
        assert ask_json("savepoint", path, "here", "--drop")["status"] == "done"
        assert pond.head().savepoints == {}


def test_without_a_pipeline_it_is_queued_and_the_next_run_does_it(tmp_path: Path) -> None:
    path = make(tmp_path / "pond")
    said = ask("rescale", path, "4")
    assert said.code == 0
    assert "queued: no pipeline is running on this pond" in said.out
    assert ask_json("savepoint", path, "later") == {
        "status": "queued",
        "epoch": None,
        "inbox": 2,
        "running": False,
    }
    source = sales()
    source.push([{"shop": "a", "price": 10}])
    with define(tmp_path / "pond", source) as pond:
        pond.drain()
        assert pond.head().parallelism == 4
        assert set(pond.head().savepoints) == {"start", "later"}


def test_savepoints_are_listed(tmp_path: Path) -> None:
    path = make(tmp_path / "pond")
    (found,) = ask_json("savepoint", path)["savepoints"]
    assert (found["name"], found["epoch"]) == ("start", 1) and found["when"].startswith("20")
    assert "start" in ask("savepoint", path).out
    assert ask("savepoint", path, "--drop").code == 2
    fork = tmp_path / "fork"
    ask_json("fork", path, str(fork))
    assert ask("savepoint", str(fork)).out.strip() == "no savepoints"


def test_a_silent_pipeline_is_waited_for_and_then_told_apart(tmp_path: Path) -> None:
    """A lease that was never released: its holder may be dead; we wait as long as we were told to."""
    reader = Reader(Worker(millpond.open(make(tmp_path / "pond")).store))
    lease.beat(reader.store, 100, "elsewhere:1")
    clock = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    sent = InboxSender(reader.store).send(
        "rescale",
        {"parallelism": 2},
        wait_s=1.0,
        monotonic=lambda: clock[0],
        sleep=sleep,
    )
    assert sent == Sent(1, None, False)
    assert 9 <= len(slept) <= 11

    def renew(seconds: float) -> None:
        clock[0] += seconds
        last = lease.latest(reader.store)
        assert last is not None
        lease.beat(reader.store, last.number + 1, "elsewhere:1")

    sent = InboxSender(reader.store).send(
        "rescale",
        {"parallelism": 2},
        wait_s=1.0,
        monotonic=lambda: clock[0],
        sleep=renew,
    )
    assert sent == Sent(2, None, True)
    assert "the running pipeline has not executed it yet" in answer(sent, "done", "rescale").sentence


def test_a_refused_command_is_an_error(tmp_path: Path) -> None:
    """Only a rollback whose epoch is collected in between is refused; the history says so."""
    path = make(tmp_path / "pond")
    reader = Reader(Worker(millpond.open(path).store))
    InboxSender(reader.store).send("rollback", {"epoch": 77}, wait_s=0)
    source = sales()
    source.push([{"shop": "a", "price": 10}])
    with define(tmp_path / "pond", source) as pond:
        pond.drain()
    made = [history.read_manifest(reader.store, e) for e in history.epochs(reader.store)]
    (refusal,) = [m for m in made if "refused" in m.metrics]
    with pytest.raises(InvalidError, match="refused the command"):
        answer(Sent(1, refusal, True), "", "")
    notes = [row["note"] or "" for row in ask_json("epochs", path)["epochs"]]
    assert sum("rollback refused" in note for note in notes) == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("rescale", "0"), "from 1 to 32768"),
        (("savepoint", "17"), "cannot be the name of a savepoint"),
        (("savepoint", "nope", "--drop"), "no savepoint named 'nope'"),
        (("rollback", "99"), "there is no epoch 99 yet"),
    ],
)
def test_wrong_commands_never_reach_the_inbox(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    path = make(tmp_path / "pond")
    store = millpond.open(path).store
    before = len(beyond(store, 0))
    found = ask(args[0], path, *args[1:])
    assert found.code == 2 and message in found.err
    assert len(beyond(store, 0)) == before


@pytest.mark.parametrize(
    "args", [("rescale", "2"), ("savepoint", "a"), ("rollback", "1"), ("clear", "errors")]
)
def test_a_folder_that_is_no_pond_gets_no_inbox(tmp_path: Path, args: tuple[str, ...]) -> None:
    path = str(tmp_path / "nothing")
    words = (*args, path) if args[0] == "clear" else (args[0], path, *args[1:])
    assert ask(*words).code != 0
    assert not (tmp_path / "nothing" / "inbox").exists()


def test_errors_are_fields_in_json(tmp_path: Path) -> None:
    found = ask("rescale", make(tmp_path / "pond"), "0", "-o", "json")
    assert found.code == 2 and found.out == ""
    fields = json.loads(found.err)
    assert fields["kind"] == "InvalidError" and fields["detail"] == "got 0"


def test_fork(tmp_path: Path) -> None:
    path, child = make(tmp_path / "pond"), str(tmp_path / "child")
    made = ask_json("fork", path, child, "--epoch", "start")
    assert made["parent_epoch"] == 1
    rows = ask_json("read", child, "by_shop")["rows"]
    assert {r["shop"]: r["total"] for r in rows} == {"a": 1, "b": 2}
    again = ask("fork", path, child)
    assert again.code == 3 and "there is a pond here already" in again.err


def test_error_rows_and_late_rows_are_cleared(tmp_path: Path) -> None:
    source = sales()
    with define(tmp_path / "pond", source, poll_ms=10) as pond:
        pond.sql("CREATE TABLE t (s text); CREATE MATERIALIZED VIEW n AS SELECT s::int AS n FROM t")
        pond.sql("INSERT INTO t VALUES ('x'); FLUSH")
        assert pond.errors().num_rows == 1
        pond.start()
        path = str(tmp_path / "pond")
        assert ask_json("clear", "errors", path, "by_shop")["status"] == "done"
        assert pond.errors().num_rows == 1
        assert "error rows of n dropped in epoch" in ask("clear", "errors", path, "n").out
        assert pond.errors().num_rows == 0
        assert ask_json("clear", "errors", path)["status"] == "done"
        assert ask_json("clear", "late", path)["status"] == "done"
        assert ask("clear", "errors", path, "nothing").code == 2
        assert ask("clear", "late", path, "nothing").code == 2
        pond.stop()
