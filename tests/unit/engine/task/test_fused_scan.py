"""Where the rows of a scan are cut into pieces makes no difference (law 3), to late and bad rows neither."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import tuning
from millpond.engine.task.items import fused_scan
from millpond.errors import InternalError
from millpond.operators.aggregate import Aggregate
from millpond.operators.top_n import TopN
from millpond.sources.files import FileSource

BEGAN = datetime(2026, 1, 1)
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("us")), ("wide", pa.string())])


def put(folder: Path, name: str, rows: list[tuple[int, str, int | None]]) -> None:
    """Rows of (number, text, second)."""
    found = [
        {"n": n, "s": s, "t": None if at is None else BEGAN + timedelta(seconds=at), "wide": f"{n}{s}" * 3}
        for n, s, at in rows
    ]
    pq.write_table(pa.Table.from_pylist(found, schema=SCHEMA), folder / name, row_group_size=3)


def outcome(place: Path, folder: Path, first: list[Any], second: list[Any]) -> dict[str, Any]:
    """All that two epochs over the same files lead to."""
    folder.mkdir()
    with millpond.open(place, engine="inline", parallelism=2) as pond:
        rows = pond.stream("in", FileSource(str(folder), schema=SCHEMA), event_time="t", delay="10s")
        some = rows.filter("s <> 'b'", id="some").select("n", "t", m="s::int", id="mapped")
        some.filter("m % 2 = 1", id="odd").select("n", m="m + 1", id="next").view("odd")
        there = some.filter("m IS NOT NULL", id="there")
        there.key_by("m").aggregate(c="count(*)", s="sum(n)", at="max(t)", id="by_m").view("by_m")
        rows.select("n", id="plain").view("plain")
        rows.select("n", "s", id="ranked").key_by("s").top_n(2, "n desc", id="top").view("top")
        for number, files in enumerate((first, second)):
            for place_in, content in enumerate(files):
                put(folder, f"{number}-{place_in}.parquet", content)
            pond.drain()
        views = {name: _bag(pond.read(name)) for name in ("odd", "by_m", "plain", "top")}
        counts = {name: n for name, n in pond.head().counts.items()}
        return {
            **views,
            "late": _bag(pond.late("in.watermark")),
            "errors": _bag(pond.errors()),
            "counts": counts,
        }


def _bag(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def test_pieces_come_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [[(i, "abc123"[i % 6], i) for i in range(k, k + 7)] for k in range(0, 35, 7)]
    late = [(100 + i, "7", 40 - 9 * i) for i in range(5)]  # some behind the bound
    second = [[(200 + i, "35b"[i % 3], 60 + i) for i in range(7)], late, [(300, "9", None), (301, "8", 61)]]
    at_once = outcome(tmp_path / "once", tmp_path / "a", first, second)
    runs = 0
    original = fused_scan.grouped

    def noted(splits: Any) -> Any:
        nonlocal runs
        runs += 1
        return original(splits)

    sent: list[tuple[int, int]] = []
    thin = TopN.thin

    def thinned(self: TopN, binding: Any, index: int, part: pa.Table) -> pa.Table:
        found = thin(self, binding, index, part)
        sent.append((part.num_rows, found.num_rows))
        return found

    united: list[int] = []
    unite = Aggregate.united

    def noted_too(self: Aggregate, binding: Any, index: int, parts: pa.Table) -> pa.Table:
        united.append(parts.num_rows)
        return unite(self, binding, index, parts)

    monkeypatch.setattr(Aggregate, "united", noted_too)
    monkeypatch.setattr(TopN, "thin", thinned)
    monkeypatch.setattr(fused_scan, "grouped", noted)
    monkeypatch.setattr(tuning, "FUSED_SCAN_ROWS_MIN", 1)
    for rows, shrinks in ((1, False), (5, False), (1, True), (8, True), (30, True)):
        monkeypatch.setattr(tuning, "FUSED_SCAN_BATCH_ROWS", rows)
        monkeypatch.setattr(Aggregate, "shrinks", lambda *_, shrinks=shrinks: shrinks)
        before = len(united)
        found = outcome(tmp_path / f"pieces-{rows}{shrinks}", tmp_path / f"b{rows}{shrinks}", first, second)
        assert found == at_once
        assert (len(united) > before) == shrinks
    assert any(after < before for before, after in sent), "what cannot be ranked is not kept"
    assert runs and at_once["late"] and at_once["errors"] and at_once["odd"]
    assert all(row[3] == f"{row[0]}{row[1]}" * 3 for row in at_once["late"]), "late rows are kept whole"


def test_all_pieces_of_an_epoch_come_at_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FUSED_SCAN_ROWS_MIN", 1)
    monkeypatch.setattr(tuning, "FUSED_SCAN_BATCH_ROWS", 1)
    seen: set[str] = set()
    add = fused_scan.Batches.add
    monkeypatch.setattr(
        fused_scan.Batches, "add", lambda self, node, result: seen.add(node.step) or add(self, node, result)
    )
    (tmp_path / "in").mkdir()
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True) as pond:
        rows = pond.stream("bids", FileSource(str(tmp_path / "in"), schema=SCHEMA))
        rows.select("n", id="plain").view("plain")
        pond.sql("""CREATE MATERIALIZED VIEW windows AS SELECT n % 2 AS k, count(*) AS c, window_start
            FROM TUMBLE(bids, proctime(), INTERVAL '1 second') GROUP BY k, window_start""")
        for number in range(4):
            put(tmp_path / "in", f"{number}.parquet", [(i, "a", i) for i in range(10)])
        pond.drain()
        assert [(k, c) for k, c, _ in pond.sql("FROM windows ORDER BY k").fetchall()] == [(0, 20), (1, 20)]
    assert any("stamp" in step or "proctime" in step for step in seen), seen


@pytest.mark.parametrize(("operator", "method"), [(Aggregate, "shrunk"), (TopN, "thin")])
def test_a_reader_that_fails_at_a_piece_is_the_one_to_blame(
    operator: type, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> pa.Table:
        raise ValueError("not this piece")

    monkeypatch.setattr(tuning, "FUSED_SCAN_ROWS_MIN", 1)
    monkeypatch.setattr(operator, method, fails)
    monkeypatch.setattr(Aggregate, "shrinks", lambda *_: True)
    (tmp_path / "in").mkdir()
    put(tmp_path / "in", "0.parquet", [(i, "a", i) for i in range(10)])
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2) as pond:
        rows = pond.stream("in", FileSource(str(tmp_path / "in"), schema=SCHEMA))
        keyed = rows.filter("n >= 0", id="some").key_by("s")
        if operator is TopN:
            keyed.top_n(2, "n desc", id="reader").view("top")
        else:
            keyed.aggregate(c="count(*)", id="reader").view("counts")
        with pytest.raises(InternalError, match="step 'reader' failed"):
            pond.drain()


def test_small_splits_go_together() -> None:
    from millpond.sources.source import Split

    splits = [(n, Split({}, rows, 0)) for n, rows in enumerate([60_000, 10, 20, 49_970, 7])]
    assert [[n for n, _ in group] for group in fused_scan.grouped(splits)] == [[0], [1, 2, 3], [4]]
