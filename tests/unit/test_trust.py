"""Reading a pond runs nothing of what is in it; running stored code needs trust.

The pond here holds pickles that write a file when they are loaded, wherever a pond can hold user code: steps,
functions of SQL, sinks, sources known by module, untyped state, states of aggregates, and the inbox.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import millpond
from millpond import stored_code
from millpond.cli.app import app
from millpond.errors import DataError, InvalidError
from millpond.flow.stream import Stream
from millpond.operators.scan import Scan
from millpond.plan import codec
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sources.inbox_table import InboxTable
from millpond.state import inbox

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def strike(path: str, kind: str) -> Any:
    """What a hostile pickle calls."""
    with open(path, "a") as out:
        out.write(f"{kind}\n")
    return lambda *args, **named: None


class Evil:
    """Works as a function in the process that made it, and strikes where its pickle is loaded."""

    def __init__(self, path: str, kind: str, function: Callable[..., Any] | None = None) -> None:
        self.path, self.kind, self.function = path, kind, function

    def __call__(self, *args: Any) -> Any:
        assert self.function is not None
        return self.function(*args)

    def __reduce__(self) -> Any:
        return strike, (self.path, self.kind)


class EvilStep(Evil):
    def __call__(self, state: Any, v: int) -> Any:
        return super().__call__(state, v)


class EvilProcess(millpond.Process):
    seen = millpond.ValueState()
    count = millpond.ValueState(int, default=0)

    def __init__(self, path: str) -> None:
        self.path = path

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.value = Evil(self.path, "state")
        self.count.value += 1
        return {"k": row.k, "n": self.count.value}

    def __copy__(self) -> EvilProcess:
        return EvilProcess(self.path)

    def __reduce__(self) -> Any:
        return strike, (self.path, "process")


SOURCE = """
import pathlib
from dataclasses import dataclass
import pyarrow as pa
from millpond.sources.source import Poll, Advance

if STRIKES := pathlib.Path({path!r}).with_name("armed").exists():
    with open({path!r}, "a") as out:
        out.write("import\\n")


@dataclass(frozen=True)
class Feed:
    name: str = "x"
    append_only = True

    @property
    def schema(self):
        return pa.schema([("k", pa.string()), ("v", pa.int64())])

    def table(self, step):
        return None

    def poll(self, position, seen, max_rows):
        return Poll()

    def advance(self, position, admitted, rejects):
        return Advance(position)

    def read(self, split, columns):
        return iter(())
"""


def append_only(pond: Pond, name: str) -> Stream:
    """A table that a stream begins with: the pond keeps its rows, so a reopened pond goes on without a source."""
    source = InboxTable(SCHEMA, append_only=True)
    return Stream(pond._builder, pond._builder.add(name, Scan(source, source.schema, True), (), name))


@dataclass
class Pit:
    """The pond, and what has struck since it was armed."""

    folder: Path
    marker: Path

    def struck(self) -> list[str]:
        return self.marker.read_text().split() if self.marker.exists() else []

    def open(self, **options: Any) -> Pond:
        return millpond.open(self.folder, engine="inline", durable=False, **options)


@pytest.fixture(scope="module")
def dug(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pit]:
    """The pond that each test gets a copy of."""
    place = tmp_path_factory.mktemp("dug")
    marker = place / "struck"
    (place / "evil_feed.py").write_text(SOURCE.format(path=str(marker)))
    sys.path.insert(0, str(place))
    feed = __import__("evil_feed")
    path = str(marker)
    made = Pit(place / "pond", marker)
    with made.open() as pond:
        rows = append_only(pond, "rows_in").select("k", "v")
        pond.stream("feed", feed.Feed()).view("fed")
        rows.map(Evil(path, "map", lambda row: {"k": row.k, "v": row.v + 1}), SCHEMA, id="plus").view("plus")
        rows.filter(Evil(path, "filter", lambda row: True), id="kept").view("kept")
        rows.key_by("k").reduce(Evil(path, "reduce", lambda a, b: {"v": a.v + b.v}), id="folded").view(
            "folded"
        )
        rows.key_by("k").process(EvilProcess(path), {"k": str, "n": int}, id="evil").view("processed")
        pond.table("t", SCHEMA, key="k")
        pond.drain()
        pond.function("twice", Evil(path, "udf", lambda v: v * 2), arguments={"v": int}, returns=int)
        pond.function(
            "total",
            init=Evil(path, "init", lambda: Evil(path, "aggregate state")),
            accumulate=EvilStep(path, "accumulate", lambda state, v: None),
            finish=Evil(path, "finish", lambda state: 7),
            arguments=[int],
            returns=int,
        )
        pond.sql("CREATE MATERIALIZED VIEW doubled AS SELECT k, twice(v) AS v FROM t")
        pond.sql("CREATE MATERIALIZED VIEW sums AS SELECT k, total(v) AS s FROM kept GROUP BY k")
        with pond.changing():
            pond.stream_of("t").view("told").sink(
                "out", CallbackSink(Evil(path, "sink", lambda id, delta: None))
            )
        pond.insert("rows_in", [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
        pond.insert("t", [{"k": "a", "v": 1}])
        pond.savepoint("before")
        pond.drain()
        pond.insert("t", [{"k": "b", "v": 5}])
        pond.drain()
    with made.open() as waiting:  # entries that wait, one of them no rows at all
        waiting.insert("t", [{"k": "c", "v": 9}])
        inbox.append(waiting.store, "rows", {"table": "t", "rows": 1}, pickle.dumps(Evil(path, "inbox")))
    (place / "armed").touch()
    yield made
    sys.path.remove(str(place))


@pytest.fixture
def pit(dug: Pit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pit]:
    shutil.copytree(dug.folder, tmp_path / "pond")
    dug.marker.unlink(missing_ok=True)
    sys.modules.pop("evil_feed", None)
    monkeypatch.setattr(stored_code, "_own", set())  # as in another process
    yield Pit(tmp_path / "pond", dug.marker)
    sys.modules.pop("evil_feed", None)


READS: dict[str, Callable[[Pond, Path], Any]] = {
    "views": lambda p, to: p.views(),
    "read": lambda p, to: [p.read(v) for v in p.views()],
    "read then": lambda p, to: [p.read(v, epoch="before") for v in ("plus", "t", "doubled")],
    "lookup": lambda p, to: p.lookup("t", "a"),
    "diff": lambda p, to: [p.diff(v, "before", p.epoch) for v in ("plus", "doubled", "processed")],
    "changes": lambda p, to: list(p.changes("doubled", 0)) + list(p.changes("processed")),
    "explain": lambda p, to: p.explain() + p.explain("mermaid"),
    "plan": lambda p, to: repr(p.plan),
    "states": lambda p, to: p.states(),
    "state": lambda p, to: [
        p.state("evil", "seen"),
        p.state("evil", "count"),
        p.state("evil", "seen", epoch="before"),
    ],
    "typed rows": lambda p, to: p.state_rows("evil", "count"),
    "export": lambda p, to: p.export("evil", "seen", to / "seen.parquet"),
    "errors": lambda p, to: [p.errors(), p.errors("plus")],
    "epochs": lambda p, to: p.epochs(),
    "savepoints": lambda p, to: p.savepoints(),
    "head": lambda p, to: (p.head(), p.epoch, p.backlog_rows, p.progress),
    "at": lambda p, to: [p.at("before").read("plus"), p.at().state("evil", "seen"), p.at().explain()],
    "stream_of": lambda p, to: p.stream_of("plus"),
    "backup": lambda p, to: p.backup(to / "backup"),
    "select": lambda p, to: p.sql("SELECT * FROM plus JOIN doubled USING (k)").fetchall(),
    "select 1": lambda p, to: p.sql("SELECT 1").fetchall(),
    "as of": lambda p, to: p.sql("SELECT * FROM sums AS OF SAVEPOINT before").fetchall(),
    "show": lambda p, to: [
        p.sql(f"SHOW {what}").fetchall()
        for what in [
            "TABLES",
            "SOURCES",
            "VIEWS",
            "SINKS",
            "INDEXES",
            "LATE",
            "OBJECTS",
            "EPOCHS",
            "SAVEPOINTS",
            "JOBS",
            "FUNCTIONS",
        ]
    ],
    "show create": lambda p, to: p.sql("SHOW CREATE MATERIALIZED VIEW doubled").fetchall(),
    "describe": lambda p, to: p.sql("DESCRIBE sums").fetchall(),
    "explain sql": lambda p, to: [
        p.sql("EXPLAIN doubled").fetchall(),
        p.sql("EXPLAIN SELECT * FROM t").fetchall(),
    ],
    "explain analyze": lambda p, to: p.sql("EXPLAIN ANALYZE doubled").fetchall(),
    "subscribe": lambda p, to: p.sql("SUBSCRIBE doubled SINCE EPOCH 0").fetchall(),
    "insert": lambda p, to: p.insert("t", [{"k": "d", "v": 1}]),
    "delete": lambda p, to: p.delete("t", [{"k": "a", "v": 1}]),
    "insert sql": lambda p, to: p.sql("INSERT INTO t VALUES ('e', 2)"),
}


@pytest.mark.parametrize("what", READS)
def test_reading_runs_nothing(pit: Pit, tmp_path: Path, what: str) -> None:
    with pit.open() as pond:
        READS[what](pond, tmp_path)
    assert pit.struck() == []


COMMANDS = [
    "epochs POND",
    "show POND 4",
    "views POND",
    "read POND plus",
    "read POND doubled --epoch before",
    "errors POND",
    "explain POND",
    "state ls POND",
    "state get POND evil seen",
    "state get POND evil seen a",
    "state diff POND evil seen before HEAD",
    "state export POND evil seen OUT",
    "sql POND -c 'SELECT * FROM plus'",
    "sql POND -c 'SHOW OBJECTS'",
    "sql POND -c 'EXPLAIN doubled'",
    "sql POND -c 'DESCRIBE sums'",
    "savepoint POND now --wait 0",
    "rescale POND 2 --wait 0",
    "backup POND DIR",
    "gc POND",
    "compact POND",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_that_look_run_nothing(pit: Pit, tmp_path: Path, line: str) -> None:
    import shlex

    with pit.open() as pond:
        head = str(pond.epoch)
    words = {
        "POND": str(pit.folder),
        "DIR": str(tmp_path / "backup"),
        "OUT": str(tmp_path / "out.parquet"),
        "HEAD": head,
    }
    done = CliRunner().invoke(app, [words.get(word, word) for word in shlex.split(line)])
    assert done.exit_code in (0, 4), done.output  # 4: nobody runs it, so a command waits
    assert pit.struck() == []


# -- running ----------------------------------------------------------------------------


def test_running_loads_the_code_of_a_pond_of_ours(pit: Pit) -> None:
    """What shows that the pit is armed."""
    with pit.open() as pond:
        pond.drain()
    assert {"map", "filter", "reduce", "process", "sink", "import", "init"} <= set(pit.struck())


def test_asking_for_values_unpickles_them(pit: Pit) -> None:
    with pit.open() as pond:
        pond.state("evil", "seen", unpickle=True)
    assert pit.struck() == ["state", "state"]


RUNS: dict[str, Callable[[Pond, Path], Any]] = {
    "drain": lambda p, to: p.drain(),
    "start": lambda p, to: p.start(),
    "run": lambda p, to: p.run(),
    "compact": lambda p, to: p.compact(),
    "flush": lambda p, to: p.flush(),
    "replay": lambda p, to: p.replay("before"),
    "unpickle": lambda p, to: p.state("evil", "seen", unpickle=True),
    "state_rows": lambda p, to: p.state_rows("evil", "seen"),
    "moment": lambda p, to: p.at("before").state_rows("evil", "seen"),
    "fork": lambda p, to: p.fork(to / "fork"),
    "call": lambda p, to: p.sql("SELECT sleeper(v) FROM t").fetchall(),
    "migrate": lambda p, to: p.migrate("evil", lambda row: row, state="seen"),
    "define": lambda p, to: p.sql("CREATE MATERIALIZED VIEW more AS SELECT count(*) AS n FROM t"),
}


@pytest.fixture
def unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans may be edited in place: whoever means harm names them by their new digest, and the manifest after it."""
    monkeypatch.setattr("millpond.engine.task.worker.read_plan", lambda store, name: store.get(name))


@pytest.fixture
def foreign(pit: Pit, unverified: None, monkeypatch: pytest.MonkeyPatch) -> Pit:
    """The same pond, seen by somebody whom it does not belong to."""
    _sleeper(pit)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(pit.folder).st_uid + 1)
    monkeypatch.delenv("SUDO_UID", raising=False)
    return pit


def _sleeper(pit: Pit) -> None:
    """A function that only the catalog knows: nobody has loaded it in this process."""
    for file in (pit.folder / "catalog").iterdir():
        file.write_bytes(file.read_bytes().replace(b"twice", b"sleeper"))


@pytest.mark.parametrize("what", RUNS)
def test_running_a_pond_of_somebody_else_is_refused(foreign: Pit, tmp_path: Path, what: str) -> None:
    with foreign.open() as pond, pytest.raises(InvalidError) as caught:
        RUNS[what](pond, tmp_path)
    assert "belongs to" in (caught.value.detail or "")
    assert "trust=True" in (caught.value.hint or "") and "--trust" in (caught.value.hint or "")
    assert foreign.struck() == []


@pytest.mark.parametrize(
    "line", ["replay POND before", "state get POND evil seen --unpickle", "fork POND OUT"]
)
def test_commands_refuse_it_as_well(foreign: Pit, tmp_path: Path, line: str) -> None:
    words = {"POND": str(foreign.folder), "OUT": str(tmp_path / "fork")}
    done = CliRunner().invoke(app, [words.get(word, word) for word in line.split()])
    assert done.exit_code == 2 and "--trust" in done.output
    assert foreign.struck() == []


def test_trust_lets_it_run(foreign: Pit) -> None:
    with foreign.open(trust=True) as pond:
        pond.state("evil", "seen", unpickle=True)
        pond.drain()
    assert {"state", "map", "process"} <= set(foreign.struck())


def test_sudo_may_run_what_belongs_to_the_caller(pit: Pit, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.stat(pit.folder).st_uid
    stat = os.stat

    def owned_by_another(path: Any, *args: Any, **named: Any) -> Any:
        found = stat(path, *args, **named)
        return os.stat_result((*found[:4], owner + 4711, *found[5:]))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("millpond.state.trust.os.stat", owned_by_another)
    monkeypatch.setenv("SUDO_UID", str(owner + 4712))
    with pit.open() as pond, pytest.raises(InvalidError, match="not known to be yours"):
        pond.state_rows("evil", "seen")
    monkeypatch.setenv("SUDO_UID", str(owner + 4711))
    with pit.open() as pond:
        pond.state_rows("evil", "seen")


def test_code_that_this_process_defines_runs_in_a_pond_of_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)

    def define(pond: Pond) -> None:
        rows = append_only(pond, "rows_in")
        rows.map(lambda row: {"v": row.v * 2}, {"v": int}, id="doubled").view("doubled")

    for times in (1, 2):
        with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
            define(pond)
            pond.insert("rows_in", [{"k": "a", "v": times}])
            pond.drain()
            assert sorted(pond.read("doubled")["v"].to_pylist()) == [2, 4][:times]


def test_sql_without_python_needs_no_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql("CREATE TABLE t (k text); CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t")
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql("INSERT INTO t VALUES ('a'); FLUSH")
        assert pond.sql("SELECT n FROM n").fetchall() == [(1,)]


def test_an_object_store_needs_trust_for_code_that_is_not_ours(
    pit: Pit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millpond.state.store.local_store import LocalStore

    monkeypatch.setattr(LocalStore, "uri", property(lambda self: "s3://bucket/pond"))
    with pit.open() as pond, pytest.raises(InvalidError, match="not known to be yours") as caught:
        pond.drain()
    assert "object store" in (caught.value.detail or "")
    assert pit.struck() == []


# -- catalogs of format 1, and damaged ones -------------------------------------------------


def test_format_1_runs_nothing_either(tmp_path: Path) -> None:
    import base64

    marker = tmp_path / "struck"
    evil = {"$pickle": base64.b64encode(pickle.dumps(Evil(str(marker), "v1"))).decode()}
    (tmp_path / "evil_v1.py").write_text(f"open({str(marker)!r}, 'a').write('import')")
    sys.path.insert(0, str(tmp_path))
    try:
        for value in (
            evil,
            {"$class": "evil_v1:Anything", "fields": {"x": evil}},
            {"$class": "os:system", "fields": {"command": f"touch {marker}"}},
            {"$map": [[evil, evil]]},
            {
                "$class": "millpond.sinks.callback:CallbackSink",
                "fields": {"pickled": {"$bytes": evil["$pickle"]}},
            },
        ):
            found = codec.read(json.dumps(value).encode())
            assert repr(found)
            assert found == codec.read(codec.dumps(found))
        with pytest.raises(DataError):
            codec.read(json.dumps({"$class": "millpond.cli.app:main", "fields": {}}).encode())
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("evil_v1", None)
    assert not marker.exists()


# -- SQL that is stored ------------------------------------------------------------------------

OUTSIDE = [
    "SELECT * FROM read_text('SECRET')",
    "SELECT * FROM read_csv('SECRET')",
    "SELECT * FROM 'SECRET'",
    "SELECT * FROM glob('/*')",
    "COPY (SELECT 1) TO 'TARGET'",
    "EXPORT DATABASE 'TARGET'",
    "ATTACH 'TARGET' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET threads = 64",
    "SELECT 1; COPY (SELECT 1) TO 'TARGET'",
]


@pytest.mark.parametrize("text", OUTSIDE)
def test_no_sql_reaches_files_or_settings(tmp_path: Path, text: str) -> None:
    """Neither what somebody types, nor what a catalog holds, in any database that runs texts."""
    from millpond.kernels import duck
    from millpond.sql.reads.scratch import CachedScratch, Scratch
    from millpond.sql.text.duckdb_parser import parser

    secret, target = tmp_path / "secret.csv", tmp_path / "target"
    secret.write_text("word\nhidden\n")
    text = text.replace("SECRET", str(secret)).replace("TARGET", str(target))
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql("CREATE TABLE t (k text); FLUSH")
        with pytest.raises(millpond.MillpondError):
            pond.sql(text).fetchall()
        binder: Any = pond.session.catalog.binder
        closed = [duck.binder(), duck._connect(), parser(), Scratch()._con, CachedScratch()._con, binder._con]
    for connection in closed:
        with pytest.raises(
            Exception, match=r"disabled|locked|not allowed|[Cc]annot|does not exist|Permission"
        ):
            connection.execute(text).fetchall()
    assert not target.exists()


def test_the_stored_text_of_a_view_cannot_read_files(tmp_path: Path, unverified: None) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("word\nhidden\n")
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql("CREATE TABLE t (k text); CREATE VIEW harmless AS SELECT k FROM t WHERE k = 'marked'; FLUSH")
    (file,) = [f for f in (tmp_path / "pond" / "catalog").iterdir() if b"marked" in f.read_bytes()]
    whole = json.loads(file.read_bytes())

    def planted(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: planted(v) for k, v in value.items()}
        if isinstance(value, list):
            return [planted(v) for v in value]
        return f"SELECT content AS k FROM read_text('{secret}')" if "marked" in str(value) else value

    file.write_text(json.dumps(planted(whole), separators=(",", ":"), sort_keys=True))
    with (
        millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond,
        pytest.raises(millpond.MillpondError) as caught,
    ):
        pond.sql("SELECT * FROM harmless").fetchall()
    assert "hidden" not in str(caught.value)
