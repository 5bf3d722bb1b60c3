"""compact and gc: they take the pond over for a moment, and never from a living pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.cli.upkeep import RunningError, retained, taken_over
from millpond.control import lease
from millpond.engine.task.worker import Worker
from millpond.errors import ConflictError
from millpond.plan.nodes import Plan, SinkNode
from millpond.serve.reader import Reader
from millpond.state import inbox
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from tests.unit.cli.ponds import ask, ask_json, define, make, sales
from tests.waiting import until


def totals(path: str, *args: str) -> dict[str, int]:
    return {r["shop"]: r["total"] for r in ask_json("read", path, "by_shop", *args)["rows"]}


def test_compact_merges_and_changes_no_view(tmp_path: Path) -> None:
    path = make(tmp_path / "pond")
    before = totals(path)
    done = ask_json("compact", path)
    assert (done["runs_before"], done["runs_after"]) == (2, 1)
    assert totals(path) == before
    assert totals(path, "-e", "start") == {"a": 1, "b": 2}
    (table,) = ask_json("show", path, str(done["epoch"]))["tables"]
    assert (table["runs"], table["rows"]) == (1, 2)
    assert ask("compact", path).out.strip() == "nothing to merge: 1 runs"


def test_gc_keeps_savepoints_and_the_newest(tmp_path: Path) -> None:
    path = make(tmp_path / "pond")
    ask_json("compact", path)
    untouched = ask_json("gc", path)
    assert untouched["manifests"] == 0 and untouched["floor"] == 0
    done = ask_json("gc", path, "--keep", "1")
    assert done["manifests"] > 0 and done["files"] == 1  # the delta of epoch 3 is in the merge
    kept = [r["epoch"] for r in ask_json("epochs", path)["epochs"]]
    assert kept == [1, done["floor"]]
    assert totals(path) == {"a": 11, "b": 2}
    assert totals(path, "-e", "start") == {"a": 1, "b": 2}
    assert ask("read", path, "by_shop", "-e", "2").code == 2


def test_a_dry_run_tells_and_deletes_nothing(tmp_path: Path) -> None:
    path = make(tmp_path / "pond")
    ask_json("compact", path)
    store = millpond.open(path).store
    before = store.list("")
    told = ask_json("gc", path, "--keep", "1", "--dry-run")
    assert told["status"] == "dry run" and told["files"] == 1 and told["bytes"] > 0
    assert all(name in before for name in told["names"])
    assert [n for n in store.list("") if not n.startswith("pins/")] == before
    assert "would delete" in ask("gc", path, "--dry-run").out
    done = ask_json("gc", path, "--keep", "1")
    # The take-over is an epoch of its own: one more manifest falls behind the newest.
    assert done["files"] == 1 and done["manifests"] == told["manifests"] + 1
    assert not any(name in store.list("") for name in told["names"])
    assert done["bytes"] > 0


def test_a_running_pipeline_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.cli.upkeep._refuse_running", refuse)
    source = sales()
    path = str(tmp_path / "pond")
    with define(tmp_path / "pond", source, poll_ms=10, fan_in=100) as pond:
        pond.start()
        for shop in "abc":
            source.push([{"shop": shop, "price": 1}])
            pond.flush()
        assert len(pond.head().recent) > 1
        done = ask_json("compact", path)
        assert done["status"] == "done" and done["running"]
        until(lambda: len(pond.head().recent) == 1)
        said = ask("gc", path, "--keep", "1")
        assert said.code == 0 and "the running pipeline began to collect in epoch" in said.out
        until(lambda: len(history.epochs(pond.store)) <= 2)
        assert totals(path) == {"a": 2, "b": 3, "c": 1}


def refuse(*args: object) -> None:
    raise RunningError("a pipeline is running on this pond")


def test_the_pipeline_goes_on_after_it(tmp_path: Path) -> None:
    path = make(tmp_path / "pond")
    ask_json("compact", path)
    ask_json("gc", path, "--keep", "1")
    source = sales()
    source.push([{"shop": "a", "price": 10}], [{"shop": "c", "price": 3}])
    with define(tmp_path / "pond", source) as pond:
        pond.drain()
    assert totals(path) == {"a": 11, "b": 2, "c": 3}


def test_nothing_is_admitted_meanwhile(tmp_path: Path) -> None:
    """The inbox waits for a real run: rows there are for the pipeline, not for the upkeep."""
    path = make(tmp_path / "pond")
    store = millpond.open(path).store
    inbox.append(store, "rescale", {"parallelism": 7})
    epoch = ask_json("compact", path)["epoch"]
    shown = ask_json("show", path, str(epoch))
    assert shown["positions"] == {"inbox": 1, "sales": 2}
    assert shown["parallelism"] == 1


def test_a_living_pipeline_is_left_alone(tmp_path: Path) -> None:
    path = make(tmp_path / "pond")
    reader = Reader(Worker(millpond.open(path).store))
    keeper = lease.Keeper(reader.store, 200)
    try:
        with pytest.raises(ConflictError, match="a pipeline is running"), taken_over(reader, lease_ms=500):
            pass
    finally:
        keeper.release()
    with taken_over(reader, lease_ms=500) as ours:
        assert ours.head.kind == "takeover"


def test_what_sinks_owe_is_kept() -> None:
    head = Manifest("p", 90, 1, "n", 0, cursors={"a": 80})
    plan = Plan()
    assert retained(head, plan, 5) == 4
    slow = plan.with_sink(SinkNode("a", "v", None))
    assert head.epoch + 1 - retained(head, slow, 5) == 80
    new = slow.with_sink(SinkNode("b", "v", None))
    assert head.epoch + 1 - retained(head, new, 5) == 0
    assert retained(head, slow, None) > 10**9


def test_a_collection_that_keeps_nothing_is_refused_by_the_pipeline(tmp_path: Path) -> None:
    source = sales()
    with define(tmp_path / "pond", source) as pond:
        pond.drain()
        inbox.append(pond.store, "gc", {"keep": 0}, start=0)
        pond.drain()
        assert pond.head().metrics["refused"] == "inbox 0: gc refused: it cannot keep 0 epochs"
        assert pond.head().floor == 0
