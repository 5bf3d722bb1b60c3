"""Migrating and bootstrapping: one commit, all of it or nothing, and rows that do not fit are refused."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.control import lease
from millpond.engine.change import bootstrap as bootstrapping
from millpond.engine.change import state_rewriter
from millpond.errors import ConflictError, InvalidError
from millpond.ordering import Order
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from tests.unit.plan.keeping import Kept, keep

SCHEMA = pa.schema([("k", pa.int64())])
N = pa.field("n", pa.int64())
LAST = Kept("last")
TEXT = Kept("last", pa.schema([("n", pa.string())]))
WIDER = Kept("last", pa.schema([N, ("note", pa.string())]), (("note", "old"),))

Open = Callable[..., Pond]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Open the pond with some states, as a process with new code does; the one before is closed."""
    source = MemorySource(SCHEMA)
    ponds: list[Pond] = []

    def make(*states: Kept, **more: Any) -> Pond:
        for pond in ponds:
            pond.close()
        pond = millpond.open(tmp_path / "pond", engine="inline", **{"compact": False, **more})
        ponds.append(pond)
        keep(pond.stream("in", source), *states).view("out")
        pond.source = source  # type: ignore[attr-defined]
        return pond

    yield make
    for pond in ponds:
        pond.close()


def feed(pond: Pond, *keys: int) -> None:
    pond.source.push(pa.table({"k": pa.array(keys, pa.int64())}))  # type: ignore[attr-defined]
    pond.drain()


def held(pond: Pond, state: str = "last", **more: Any) -> dict[int, Any]:
    rows = pond.state("keep", state, **more).to_pylist()
    return {
        row["k"]: row["n"] if len(row) == 2 else {n: v for n, v in row.items() if n != "k"} for row in rows
    }


# ---------------------------------------------------------------- upgrades


def test_new_code_reads_old_state_with_defaults_and_writes_its_own(opened: Open) -> None:
    feed(opened(LAST), 1, 2, 2)
    pond = opened(WIDER)
    feed(pond, 2, 3)
    wanted = {1: {"n": 1, "note": "old"}, 2: {"n": 3, "note": "old"}, 3: {"n": 1, "note": "old"}}
    assert held(pond) == wanted
    pond.compact()
    assert held(pond) == wanted
    assert held(pond, epoch=1) == {1: 1, 2: 2}  # as the code of then saw it


def test_the_default_stays_the_first_one_whatever_later_code_says(opened: Open) -> None:
    feed(opened(LAST), 1)
    feed(opened(WIDER), 2)
    later = Kept("last", WIDER.columns, (("note", "new"),))
    pond = opened(later)
    feed(pond, 3)
    before = held(pond)
    assert before[1]["note"] == "old"
    pond.compact()
    assert held(pond) == before
    assert held(opened(later)) == before


def test_a_state_that_left_is_kept_and_never_merged(opened: Open) -> None:
    """The pond used to halt: merges of its runs were planned, and failed until it gave up."""
    pond = opened(LAST, Kept("more"))
    for n in range(4):
        feed(pond, n)
    pond = opened(LAST, compact=True, fan_in=2)
    for n in range(8):
        feed(pond, n)
    pond.compact()
    with pond._reader.pinned() as snapshot:
        assert len(snapshot.listing.runs("keep/last")) == 1
        assert len(snapshot.listing.runs("keep/more")) == 4
    pond = opened(LAST, Kept("more"))
    pond.drain()
    assert held(pond, "more") == {0: 1, 1: 1, 2: 1, 3: 1}
    pond.compact()
    assert held(pond, "more") == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_type_change_is_refused_before_anything_runs(opened: Open) -> None:
    feed(opened(LAST), 1)
    pond = opened(TEXT)
    epoch = pond.epoch
    with pytest.raises(InvalidError, match="column 'n' has another type"):
        pond.drain()
    assert pond.epoch == epoch
    feed(opened(LAST), 1)  # the old code still goes on


# ---------------------------------------------------------------- migrate


def test_migrate_writes_state_anew_in_one_commit(opened: Open) -> None:
    feed(opened(LAST), 1, 2, 2)
    pond = opened(TEXT)
    epoch = pond.epoch
    assert pond.migrate("keep", lambda row: {"n": str(row["n"])}) == 2
    assert pond.epoch == epoch + 1
    assert held(pond) == {1: "1", 2: "2"}
    assert pond.head().kind == "takeover"
    assert pond.head().metrics["rewrote"] == ["keep/last"]
    feed(pond, 2, 3)
    assert held(pond) == {1: "1", 2: "3", 3: "1"}
    assert held(pond, epoch=epoch) == {1: 1, 2: 2}
    feed(opened(TEXT), 1)  # and again without migrating


def test_a_row_may_be_dropped_and_move_to_another_key(opened: Open) -> None:
    feed(opened(LAST), *range(100))
    pond = opened(LAST)
    assert pond.migrate("keep", lambda r: None if r["k"] % 2 else {"k": r["k"] + 1000, "n": 7}) == 50
    assert held(pond) == {k + 1000: 7 for k in range(0, 100, 2)}
    feed(pond, 1002)
    assert held(pond)[1002] == 8


def test_what_the_function_leaves_out_stays(opened: Open) -> None:
    feed(opened(WIDER), 1)
    pond = opened(Kept("last", pa.schema([*WIDER.columns, ("more", pa.int64())]), (("more", 5),)))
    pond.migrate("keep", lambda row: {"note": row["note"] + "er"})
    assert held(pond) == {1: {"n": 1, "note": "older", "more": 5}}


def test_whole_tables_may_be_migrated(opened: Open) -> None:
    feed(opened(LAST), *range(10))

    def doubled(table: pa.Table) -> pa.Table:
        more = pa.compute.multiply(table["n"], 2).cast(pa.string())
        return table.select(["k"]).append_column("n", more).slice(0, 9) if table.num_rows else table

    pond = opened(TEXT)
    assert pond.migrate("keep", doubled, state="last") == 9
    assert set(held(pond).values()) == {"2"}


def test_migrating_in_small_units_gives_the_same(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_rewriter.StateRewriter.__init__, "__defaults__", (2000,))
    feed(opened(LAST), *range(1000))
    pond = opened(TEXT)
    assert pond.migrate("keep", lambda row: {"n": str(row["n"])}) == 1000
    assert held(pond) == {k: "1" for k in range(1000)}
    assert len([r for r in pond.head().added if r.table == "keep/last"]) > 3
    pond = opened(TEXT)
    assert pond.migrate("keep", lambda row: {"k": -row["k"]}) == 1000
    assert held(pond) == {-k: "1" for k in range(1000)}


def test_a_state_with_an_order_is_migrated_by_its_rows(opened: Open) -> None:
    listed = Kept("list", pa.schema([("position", pa.int64()), N]), (), (Order("position"),))
    pond = opened(LAST)
    feed(pond, 1)
    rows = [{"k": k, "position": p, "n": 0} for k in (1, 2) for p in range(3)]
    pond = opened(LAST, listed)
    with pytest.raises(InvalidError, match="is new: there is nothing to migrate"):
        pond.migrate("keep", dict, state="list")
    assert pond.bootstrap("keep", "list", rows) == 6
    pond.migrate("keep", lambda r: None if r["position"] == 1 else {"n": r["position"]}, state="list")
    found = sorted(pond.state("keep", "list").to_pylist(), key=lambda r: (r["k"], r["position"]))
    assert found == [{"k": k, "position": p, "n": p} for k in (1, 2) for p in (0, 2)]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda row: {"n": row["n"]}, "got int 1, in row {'k': "),
        (lambda row: {"m": "1"}, None),
        (lambda row: 7, "gave int"),
        (lambda row: 1 // 0, "ZeroDivisionError"),
        (lambda row: {"k": "one", "n": ""}, "column 'k' is int64, got str 'one'"),
    ],
    ids=["another type", "unknown column", "no row", "raises", "another key type"],
)
def test_a_row_that_does_not_fit_is_refused_and_nothing_changes(
    opened: Open, function: Callable[[Any], Any], said: str | None
) -> None:
    feed(opened(LAST), 1, 2)
    pond = opened(TEXT)
    epoch = pond.epoch
    with pytest.raises(InvalidError) as caught:
        pond.migrate("keep", function)
    assert said is None or said in (caught.value.detail or "")
    assert caught.value.step == "keep"
    assert pond.epoch == epoch
    assert held(opened(LAST)) == {1: 1, 2: 1}


def test_two_rows_of_one_identity_are_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(opened(LAST), *range(500))
    with pytest.raises(InvalidError, match="two rows for state 'last' have one identity") as caught:
        opened(LAST).migrate("keep", lambda row: {"k": 7})
    assert "{'k': 7}" in (caught.value.detail or "")
    # Also where they come from units that are far apart.
    monkeypatch.setattr(state_rewriter.StateRewriter.__init__, "__defaults__", (2000,))
    with pytest.raises(InvalidError, match="have one identity"):
        opened(LAST).migrate("keep", lambda row: {"k": row["k"] // 2})
    assert len(held(opened(LAST))) == 500


def test_a_step_or_state_that_is_not_there_is_a_clear_error(opened: Open) -> None:
    pond = opened(LAST)
    feed(pond, 1)
    for call, said in [
        (lambda: pond.migrate("kept", dict), "no step named 'kept'"),
        (lambda: pond.migrate("in", dict), "keeps no state of its user's"),
        (lambda: pond.migrate("keep", dict, state="lost"), "has no state 'lost'"),
        (lambda: pond.migrate("keep"), "needs a step and a function"),
        (lambda: pond.migrate("keep", {"last": 7}), "cannot be migrated by int"),  # type: ignore[dict-item]
        (lambda: pond.bootstrap("keep", "timers", []), "timers cannot be written from outside"),
        (lambda: pond.state("keep", "lost"), "has no state 'lost'"),
        (lambda: pond.state("kept", "last"), "no step named 'kept'"),
    ]:
        with pytest.raises(InvalidError, match=said):
            call()
    with pytest.raises(InvalidError, match="there is no pond here yet"):
        millpond.open(Path(pond.store.uri.removeprefix("file://")) / "x", engine="inline").migrate("a", dict)


def test_several_states_in_one_commit(opened: Open) -> None:
    more = Kept("more", TEXT.columns)
    feed(opened(LAST, Kept("more")), 1)
    pond = opened(TEXT, more)
    epoch = pond.epoch
    with pytest.raises(InvalidError, match="state 'more' of step 'keep' cannot continue"):
        pond.migrate("keep", lambda row: {"n": "1"}, state="last")
    assert pond.migrate({"keep": {"last": lambda r: {"n": "a1"[1:]}, "more": lambda r: {"n": "2"}}}) == 2
    assert (held(pond), held(pond, "more")) == ({1: "1"}, {1: "2"})
    assert pond.epoch == epoch + 1


def test_refused_while_another_pond_of_this_process_holds_it(opened: Open) -> None:
    feed(opened(LAST), 1)
    other = opened(LAST)
    other.drain()
    mine = millpond.open(Path(other.store.uri.removeprefix("file://")), engine="inline")
    with pytest.raises(ConflictError, match="held by another Pond object"):
        mine.migrate("keep", lambda row: row)
    mine.close()


def test_refused_while_another_process_writes(opened: Open) -> None:
    pond = opened(LAST)
    feed(pond, 1)
    pond.stop()
    store = pond.store
    pond.close()
    mine = millpond.open(Path(store.uri.removeprefix("file://")), engine="inline")
    elsewhere = threading.Event()

    def renew() -> None:
        number = 1000
        while not elsewhere.wait(0.02):
            number = lease.beat(store, number, "elsewhere:1")

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        while (last := lease.latest(store)) is None or last.over:
            pass
        with pytest.raises(ConflictError, match="is being written by another process"):
            mine.migrate("keep", lambda row: row)
    finally:
        elsewhere.set()
        thread.join()
    mine.close()


def test_refused_while_this_process_runs_it(opened: Open) -> None:
    pond = opened(LAST)
    feed(pond, 1)
    pond.start()
    with pytest.raises(InvalidError, match="needs it at rest"):
        pond.migrate("keep", lambda row: row)
    pond.stop()
    assert pond.migrate("keep", lambda row: {"n": 5}) == 1
    assert held(pond) == {1: 5}


def test_a_pond_that_goes_on_meanwhile_stays_as_it_is(opened: Open, tmp_path: Path) -> None:
    feed(opened(LAST), 1)
    pond = opened(TEXT)

    def meanwhile(row: Mapping[str, Any]) -> Mapping[str, Any]:
        other = millpond.open(tmp_path / "pond", engine="inline")
        keep(other.stream("in", pond.source), LAST).view("out")  # type: ignore[attr-defined]
        other.drain()
        other.close()
        return {"n": "1"}

    with pytest.raises(ConflictError, match="went on while its state was written anew"):
        pond.migrate("keep", meanwhile)
    assert held(pond) == {1: 1}


@pytest.mark.parametrize("put", ["runs/", "manifests/"])
def test_a_crash_leaves_everything_old(opened: Open, monkeypatch: pytest.MonkeyPatch, put: str) -> None:
    feed(opened(LAST), *range(50))
    pond = opened(TEXT)
    real = type(pond.store).put_new

    class Crash(BaseException):
        pass

    def dying(self: Any, name: str, data: Any) -> Any:
        if name.startswith(put):
            raise Crash
        return real(self, name, data)

    monkeypatch.setattr(type(pond.store), "put_new", dying)
    with pytest.raises(Crash):
        pond.migrate("keep", lambda row: {"n": "1"})
    monkeypatch.undo()
    assert held(opened(LAST)) == dict.fromkeys(range(50), 1)
    pond = opened(TEXT)
    assert pond.migrate("keep", lambda row: {"n": "1"}) == 50


class Died(BaseException):
    pass


def dies_at(monkeypatch: pytest.MonkeyPatch, kind: type, number: int) -> list[str]:
    """Let the process die instead of its n-th call of the store; the calls so far."""
    calls: list[str] = []
    for method in ("put_new", "get", "map", "list", "delete"):
        real = getattr(kind, method)

        def call(self: Any, *args: Any, _real: Any = real, _name: str = method, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread():  # the lease is renewed beside it
                calls.append(_name)
                if len(calls) > number:
                    raise Died
            return _real(self, *args, **named)

        monkeypatch.setattr(kind, method, call)
    return calls


def test_dying_at_any_call_of_the_store_leaves_all_or_nothing(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond = opened(LAST)
    feed(pond, *range(40))
    source = pond.source  # type: ignore[attr-defined]
    pond.close()
    old, new = dict.fromkeys(range(40), 1), {k + 1: "1" for k in range(40)}
    outcomes, finished, number = [], False, 0
    while not finished:
        place = tmp_path / f"died-{number}"
        shutil.copytree(tmp_path / "pond", place)
        pond = millpond.open(place, engine="inline", compact=False)
        keep(pond.stream("in", source), TEXT).view("out")
        with monkeypatch.context() as patch:
            dies_at(patch, type(pond.store), number)
            try:
                pond.migrate("keep", lambda row: {"k": row["k"] + 1, "n": str(row["n"])})
                finished = True
            except Died:
                pass
        if finished:
            pond.close()
        after = millpond.open(place, engine="inline", compact=False)
        found = held(after)
        assert found in (old, new), number
        keep(after.stream("in", source), LAST if found == old else TEXT).view("out")
        after.drain()
        assert held(after) == found
        outcomes.append(found == new)
        after.close()
        shutil.rmtree(place)
        number += 1
    assert number > 10
    assert outcomes == sorted(outcomes)
    assert outcomes[-1]


def test_rolling_back_over_a_migration_is_refused(opened: Open) -> None:
    feed(opened(LAST), 1)
    pond = opened(TEXT)
    epoch = pond.epoch
    pond.migrate("keep", lambda row: {"n": str(row["n"])})
    feed(pond, 1)
    with pytest.raises(InvalidError, match=f"this pipeline cannot go on from epoch {epoch}") as caught:
        pond.rollback(epoch)
    assert "int64 in the pond, string in this pipeline" in (caught.value.detail or "")
    # From a process that does not look, the coordinator refuses it.
    pond._inbox.command("rollback", {"epoch": epoch})
    assert "cannot continue" in pond.head().metrics["refused"]
    pond.rollback(epoch + 1)
    assert held(pond) == {1: "1"}


def test_rolling_back_over_an_added_column_is_fine(opened: Open) -> None:
    pond = opened(LAST)
    feed(pond, 1)
    epoch = pond.epoch
    pond = opened(WIDER)
    feed(pond, 1, 2)
    pond.rollback(epoch)
    assert held(pond) == {1: {"n": 1, "note": "old"}}


def test_the_change_of_a_rewritten_table_is_its_difference(opened: Open) -> None:
    feed(opened(LAST), 1, 2)
    pond = opened(LAST)
    pond.migrate("keep", lambda row: {"n": 9} if row["k"] == 1 else None)
    with pond._reader.pinned() as snapshot:
        spec = pond._reader._specs_of(snapshot.manifest)["keep/last"]
        found = snapshot.changes(spec, spec.schema.names).to_pylist()
    assert sorted((r["k"], r["n"], r["_w"]) for r in found) == [(1, 1, -1), (1, 9, 1), (2, 1, -1)]


def test_a_fork_is_migrated_alone(opened: Open, tmp_path: Path) -> None:
    pond = opened(LAST)
    feed(pond, 1, 2)
    pond.fork(tmp_path / "fork")
    fork = millpond.open(tmp_path / "fork", engine="inline")
    keep(fork.stream("in", pond.source), TEXT).view("out")  # type: ignore[attr-defined]
    assert fork.migrate("keep", lambda row: {"n": f"{row['n']}!"[:-1]}) == 2
    assert held(fork) == {1: "1", 2: "1"}
    feed(pond, 1)
    assert held(pond) == {1: 2, 2: 1}
    fork.drain()
    assert held(fork) == {1: "2", 2: "1"}
    fork.close()


# ---------------------------------------------------------------- bootstrap


def test_bootstrap_a_pond_that_is_not_there_yet(opened: Open) -> None:
    pond = opened(LAST)
    assert pond.bootstrap("keep", "last", [{"k": 1, "n": 41}, {"k": 9, "n": 5}]) == 2
    assert pond.epoch == 1
    feed(pond, 1)
    assert held(pond) == {1: 42, 9: 5}


def test_bootstrap_from_another_pond_at_an_epoch(opened: Open, tmp_path: Path) -> None:
    other = millpond.open(tmp_path / "other", engine="inline")
    source = MemorySource(SCHEMA)
    other.stream("in", source).key_by("k").aggregate(n="count(*)").view("counts")
    source.push(pa.table({"k": [1, 1, 2]}))
    epoch = other.drain()
    source.push(pa.table({"k": [3]}))
    other.drain()
    pond = opened(LAST)
    assert pond.bootstrap("keep", "last", other.read("counts", epoch=epoch)) == 2
    other.close()
    assert held(pond) == {1: 2, 2: 1}


def test_a_state_with_rows_is_replaced_only_if_told_so(opened: Open) -> None:
    pond = opened(LAST)
    feed(pond, 1, 2)
    with pytest.raises(InvalidError, match="state 'last' of step 'keep' has rows already") as caught:
        pond.bootstrap("keep", "last", [])
    assert "replace=True" in (caught.value.hint or "")
    assert pond.bootstrap("keep", "last", pa.table({"k": [5], "n": [6]}), replace=True) == 1
    assert held(pond) == {5: 6}
    assert pond.bootstrap("keep", "last", [], replace=True) == 0
    assert held(pond) == {}
    assert pond.bootstrap("keep", "last", [{"k": 1, "n": 1}]) == 1  # there are no rows now


def test_bootstrap_in_pieces(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrapping, "PYTHON_ROWS", 7)
    monkeypatch.setattr(bootstrapping, "ARROW_ROWS", 7)
    pond = opened(LAST)
    assert pond.bootstrap("keep", "last", ({"k": k, "n": k} for k in range(100))) == 100
    assert held(pond) == {k: k for k in range(100)}
    added = [r for r in pond.head().added if r.table == "keep/last"]
    assert len(added) == 1  # merged, and the pieces are gone
    assert len(pond.store.list("runs/")) == 1
    with pytest.raises(InvalidError, match="have one identity") as caught:
        pond.bootstrap("keep", "last", ({"k": k % 99, "n": k} for k in range(100)), replace=True)
    assert "{'k': 0}" in (caught.value.detail or "")
    reader = pa.Table.from_pylist([{"k": k, "n": 0} for k in range(50)]).to_reader(max_chunksize=20)
    assert pond.bootstrap("keep", "last", reader, replace=True) == 50
    assert len(held(pond)) == 50


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"k": 1, "n": "x"}], "column 'n' is int64, got str 'x', in row {'k': 1, 'n': 'x'}"),
        ([{"n": 1}], "it lacks the key column 'k', in row {'n': 1}"),
        ([{"k": 1, "m": 1}], "columns are k, n"),
        ([7], "a row is a dict, got int 7"),
        (pa.table({"k": [1], "n": ["x"]}), "column 'n' is int64, got string"),
        (pa.table({"n": [1]}), "they lack the key column 'k'"),
        (pa.table({"k": pa.array([1, 2**63], pa.uint64()), "n": [1, 1]}), "in row {'k': 9223372036854775808"),
        ({"k": 1}, None),
    ],
)
def test_rows_that_do_not_fit_are_refused(opened: Open, rows: Any, said: str | None) -> None:
    pond = opened(LAST)
    with pytest.raises(InvalidError) as caught:
        pond.bootstrap("keep", "last", rows)
    assert said is None or said in (caught.value.detail or "")
    assert held(pond) == {}


def test_types_that_hold_the_same_values_fit(opened: Open) -> None:
    pond = opened(Kept("last", pa.schema([N, ("x", pa.float64())])))
    rows = pa.table({"k": pa.array([1], pa.int16()), "n": pa.array([2], pa.uint8()), "x": pa.array([3])})
    pond.bootstrap("keep", "last", rows)
    assert held(pond) == {1: {"n": 2, "x": 3.0}}


# ---------------------------------------------------------------- untyped state


PICKLED = pa.field("model", pa.binary()).with_metadata({b"millpond": b"pickle"})


class Exploding:
    def __reduce__(self) -> Any:
        raise AssertionError("nobody asked to unpickle this")


def test_untyped_values_are_unpickled_only_when_asked(opened: Open) -> None:
    pond = opened(Kept("last", pa.schema([N, PICKLED])))
    pond.bootstrap("keep", "last", [{"k": 1, "n": 1, "model": {"w": [1.5]}}, {"k": 2, "n": 1, "model": None}])
    raw = {r["k"]: r["model"] for r in pond.state("keep", "last").to_pylist()}
    assert pickle.loads(raw[1]) == {"w": [1.5]}
    assert raw[2] is None
    shown = pond.state("keep", "last", unpickle=True)
    assert {r["k"]: r["model"] for r in shown.to_pylist()} == {1: "{'w': [1.5]}", 2: None}
    assert {r["k"]: r["model"] for r in pond.state_rows("keep", "last")} == {1: {"w": [1.5]}, 2: None}
    pond.migrate("keep", lambda row: {"model": [row["model"]]})
    assert {r["k"]: r["model"] for r in pond.state_rows("keep", "last")} == {1: [{"w": [1.5]}], 2: [None]}


# ---------------------------------------------------------------- looking and exporting


def test_states_are_listed_with_their_sizes(opened: Open) -> None:
    pond = opened(LAST, Kept("more"))
    feed(pond, 1, 2)
    found = {(i.step, i.state): i.rows for i in pond.states()}
    assert found[("keep", "last")] == found[("keep", "more")] == 2
    assert all(i.bytes > 0 for i in pond.states() if i.rows)


def test_export_writes_one_file_whole(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.serve import state_inspection as states

    pond = opened(LAST)
    feed(pond, *range(500))
    epoch = pond.epoch
    feed(pond, 1)
    monkeypatch.setattr(states, "UNIT_BYTES", 1000)
    path = tmp_path / "last.parquet"
    assert pond.export("keep", "last", path, epoch=epoch) == 500
    found = pq.read_table(path)
    assert {r["k"]: r["n"] for r in found.to_pylist()} == dict.fromkeys(range(500), 1)
    assert pq.ParquetFile(path).num_row_groups > 3
    assert found.schema.metadata[b"millpond.epoch"] == str(epoch).encode()
    assert [p.name for p in tmp_path.iterdir() if p.name != "pond"] == ["last.parquet"]
    other = opened(LAST, Kept("copy"))
    assert other.bootstrap("keep", "copy", found) == 500  # there and back


def test_an_export_that_fails_leaves_nothing(opened: Open, tmp_path: Path) -> None:
    pond = opened(LAST)
    feed(pond, 1)
    (tmp_path / "here").mkdir()
    with pytest.raises(millpond.MillpondError, match="needs the path of a file"):
        pond.export("keep", "last", tmp_path / "here")
    with pytest.raises(millpond.MillpondError, match="cannot be written"):
        pond.export("keep", "last", tmp_path / "nowhere" / "x.parquet")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here", "pond"]
