"""Every byte of a pond, flipped one at a time: refused with a DataError, or without effect on what is read.

First by kind of file, with the code that reads that kind and for every byte. Then through the public API, all
views, states, epochs and the execution of the inbox; for some bytes of every file, and all of them if slow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.control import lease
from millpond.engine.coordinator import commits
from millpond.errors import DataError
from millpond.plan import codec
from millpond.pond import Pond
from millpond.settings import Settings
from millpond.state import inbox
from millpond.state.manifest.history import find_manifest
from millpond.state.manifest.manifest import decode_page, epoch_of, fold
from millpond.state.manifest.pins import pin, pins
from millpond.state.plan_file import read_plan
from millpond.state.runs.packed import PackedFile
from millpond.state.store.memory_store import MemoryStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A small pond with every kind of file, and entries that wait in its inbox."""
    path = tmp_path_factory.mktemp("flips") / "p"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits, "fold", functools.partial(fold, fold_at=2))  # so that there are pages
        with millpond.open(path, engine="inline", durable=False) as pond:
            pond.sql("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
            pond.sql(
                "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n, sum(k) AS s FROM t WHERE k < 7 GROUP BY v"
            )
            for k in (1, 2, 3):
                pond.sql("INSERT INTO t VALUES (?, 'x'); FLUSH", params=[k])
            pond.savepoint("s")
            pin(pond.store, pond.epoch, None, why="fork elsewhere")
    with millpond.open(path, engine="inline", durable=False, lease_ms=20) as pond:
        pond.insert("t", [{"k": 5, "v": "waits"}])
        pond.sql("UPDATE t SET v = 'later' WHERE k = 1")
    found = {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    kinds = {name.split("/")[0] for name in found}
    assert kinds == {"manifests", "pages", "runs", "catalog", "inbox", "pins", "lease"}
    return found


def stored(files: Files) -> MemoryStore:
    store = MemoryStore()
    store._files.update(files)
    return store


def flips(raw: bytes, places: range | None = None) -> Iterator[tuple[int, bytes]]:
    for place in range(len(raw)) if places is None else places:
        yield place, raw[:place] + bytes([raw[place] ^ (1 << place % 8)]) + raw[place + 1 :]


# -- by kind of file ------------------------------------------------------------------------


def read_run(store: MemoryStore, name: str) -> Any:
    file = PackedFile.open(name, pa.py_buffer(store.get(name)))
    found = []
    for place, entry in enumerate(file.entries):
        segment = file.segment(place)
        columns = sorted({*segment.verified(), *entry.constants} - {"_h"})
        values = {c: segment.slice(c, 0, segment.rows).to_pylist() for c in columns}
        found.append((entry.table, entry.bucket, segment.hashes(0, segment.rows).tolist(), values))
    return found


def read_lease(store: MemoryStore, name: str) -> Any:
    """A hint: a damaged one is nobody's, and therefore waited for until it is silent."""
    found = lease.latest(store)
    assert found is not None
    if found.holder == "a process whose lease cannot be read" and not found.over:
        raise DataError(found.holder)
    return found


READERS: dict[str, Callable[[MemoryStore, str], Any]] = {
    "manifests": lambda store, name: find_manifest(store, epoch_of(name)),
    "pages": lambda store, name: decode_page(store.get(name), name=name),
    "runs": lambda store, name: read_plan(store, name) if "-p-0-" in name else read_run(store, name),
    "catalog": lambda store, name: codec.dumps(codec.loads(read_plan(store, name))),
    "inbox": lambda store, name: inbox.read(store, int(name.removeprefix("inbox/"))),
    "pins": lambda store, name: pins(store),
    "lease": read_lease,
}


@pytest.mark.parametrize("kind", READERS)
def test_no_flipped_byte_of_a_file_is_believed(files: Files, kind: str) -> None:
    refused = ignored = 0
    for name in [n for n in files if n.startswith(f"{kind}/")]:
        alone = stored({name: files[name]})
        right = READERS[kind](alone, name)
        for place, raw in flips(files[name]):
            alone._files[name] = raw
            try:
                found = READERS[kind](alone, name)
            except DataError:
                refused += 1
                continue
            assert found == right, f"{name}: byte {place} changes what is read"
            ignored += 1
    assert refused > 50
    assert ignored == 0 or kind == "runs", "only the padding of runs is not read"
    assert ignored < 0.35 * refused


# -- through the public API -----------------------------------------------------------------


def everything(store: MemoryStore) -> Any:
    """All that can be read, then what the waiting entries do."""
    settings = Settings(lease_ms=20, durable=False)
    with Pond(store, engine="inline", settings=settings) as pond:
        epochs = [e.epoch for e in pond.epochs(None)]
        found: list[Any] = [
            [sorted(map(str, pond.read(view, epoch=e).to_pylist())) for view in ("t", "m")]
            for e in epochs[3:]
        ]
        found.append(sorted(map(str, pond.diff("m", epochs[3], epochs[-1]).to_pylist())))
        found.append(pond.lookup("t", 2).to_pylist())
        found.append(pond.errors().to_pylist())
        found.append([(s.step, s.rows) for s in pond.states()])
        found.append(pond.savepoints())
        found.append(pond.explain())
        found.append(pond.sql("SHOW JOBS").fetchall())
        pond.drain()
        found.append([sorted(map(str, pond.read(view).to_pylist())) for view in ("t", "m")])
        found.append(pond.errors().to_pylist())
    return found


def flip_through_the_api(files: Files, places: Callable[[bytes], range]) -> tuple[int, int]:
    right = everything(stored(files))
    assert "later" in str(right[-2]) and "waits" in str(right[-2])
    refused = ignored = 0
    for name, whole in sorted(files.items()):
        for place, raw in flips(whole, places(whole)):
            try:
                found = everything(stored({**files, name: raw}))
            except DataError:
                refused += 1
                continue
            assert found == right, f"{name}: byte {place} changes what is read"
            ignored += 1
    return refused, ignored


def test_no_flipped_byte_changes_what_a_pond_shows_or_does(files: Files) -> None:
    refused, ignored = flip_through_the_api(
        files, lambda raw: range(len(raw) // 9, len(raw), max(1, len(raw) // 3))
    )
    assert refused > ignored / 4


@pytest.mark.slow
def test_no_flipped_byte_at_all_changes_what_a_pond_shows_or_does(files: Files) -> None:
    refused, ignored = flip_through_the_api(files, lambda raw: range(len(raw)))
    assert refused > ignored / 4


def test_a_damaged_pin_keeps_everything(files: Files, tmp_path: Path) -> None:
    name = next(n for n in files if n.startswith("pins/"))
    store = stored({**files, name: files[name].replace(b"fork", b"park")})
    with pytest.raises(DataError, match=f"pin {name} cannot be read"):
        pins(store)


def test_a_damaged_pin_stops_collections_and_nothing_else(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    name = next(n for n in files if n.startswith("pins/"))
    settings = Settings(lease_ms=20, durable=False, retain_epochs=1)
    for raw, kept in ((files[name], False), (files[name].replace(b"fork", b"park"), True)):
        store = stored({**files, name: raw})
        with Pond(store, engine="inline", settings=settings) as pond:
            pond.drain()
            inbox.append(store, "gc", {"keep": 1}, start=int(pond.head().positions["inbox"]))
            pond.sql("INSERT INTO t VALUES (9, 'x'); FLUSH")
            pond.compact()
            assert pond.read("t").num_rows == 5
            assert pond.epoch > 8
        assert ("manifests/0000000000000001" in store.list("manifests/")) == kept
        assert ("nothing is collected" in caplog.text) == kept
