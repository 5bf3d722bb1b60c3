"""Texts that stay encoded up to an exchange: nobody who looks at values can tell (laws 1 and 3)."""

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
from millpond.engine.task import frames, partitioning, wire
from millpond.engine.task.items.fused_scan import FusedScan
from millpond.engine.task.optimizer import optimize
from millpond.engine.task.task_plan import unoptimized
from millpond.plan.levels import cut
from millpond.sources.files import FileSource
from millpond.sources.parquet_format import ENCODED

BEGAN = datetime(2026, 1, 1)
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int64()),
        ("s", pa.string()),
        ("word", pa.string()),
        ("t", pa.timestamp("us")),
    ]
)
ROWS = 400


def put(folder: Path, name: str, first: int, words: int, *, late: bool = False) -> None:
    """Rows with so many different words, some of them none."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [
        {
            "k": i % 7,
            "n": i,
            "s": f"s{i % 3}",
            "word": None if i % 11 == 0 else f"the word {i % words}",
            "t": None if i % 97 == 5 else BEGAN + timedelta(seconds=-50 if late and i % 5 == 0 else i),
        }
        for i in range(first, first + ROWS)
    ]
    pq.write_table(pa.Table.from_pylist(found, schema=SCHEMA), folder / name)


def defined(pond: millpond.Pond, folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        source = FileSource(str(folder / name), schema=SCHEMA)
        pond.stream(name, source, event_time="t", delay="10s")
    pond.sql("""CREATE MATERIALIZED VIEW best AS SELECT k, n, s, word FROM (
        SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC) AS r FROM a WHERE s <> 's2') AS q WHERE r <= 3""")
    pond.sql("""CREATE MATERIALIZED VIEW pairs AS SELECT b.n, b.word, q.word AS other, q.s
        FROM b JOIN b AS q ON b.n = q.n + 1""")


def outcome(place: Path, folder: Path) -> dict[str, Any]:
    with millpond.open(place, engine="inline", parallelism=2, checks=True) as pond:
        defined(pond, folder)
        for number, words in enumerate((5, 5, ROWS, 3)):
            for name in ("a", "b"):
                put(folder / name, f"{number}.parquet", number * ROWS, words, late=number == 3)
            if number != 1:  # two files in an epoch, one of them with words that differ
                pond.drain()
        views = {name: bag(pond.read(name)) for name in ("best", "pairs")}
        late = {name: bag(pond.late(f"{name}.watermark")) for name in ("a", "b")}
        return {**views, "late": late, "errors": bag(pond.errors())}


def bag(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def test_views_late_rows_and_errors_are_those_of_plain_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = outcome(tmp_path / "plain", tmp_path / "1")
    monkeypatch.setattr(tuning, "FUSED_SCAN_ROWS_MIN", 1)
    monkeypatch.setattr(tuning, "FUSED_SCAN_BATCH_ROWS", 1)
    monkeypatch.setattr(tuning, "NARROW_ROWS_MIN", 1)
    given: Counter[str] = Counter()
    narrow = wire.narrow

    def noted(table: pa.Table) -> pa.Table:
        given.update(field.name for field in table.schema if field.type == ENCODED)
        sent = narrow(table)
        given.update(f"{field.name} sent" for field in sent.schema if field.type == ENCODED)
        return sent

    monkeypatch.setattr(frames.wire, "narrow", noted)
    assert outcome(tmp_path / "encoded", tmp_path / "2") == wanted
    assert given["word"] and given["word sent"], "texts that come again stay encoded"
    assert wanted["best"] and wanted["pairs"] and wanted["late"]["a"] and wanted["errors"]


def test_texts_that_a_step_looks_at_are_plain(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        defined(pond, tmp_path)

        def texts(scan: str) -> frozenset[str]:
            items = optimize(unoptimized(pond.plan, cut(pond.plan), 0))
            (found,) = [i for i in items if isinstance(i, FusedScan) and i.scan.step == scan]
            return found.encoded

        assert texts("a") == {"word"}, "a filter looks at s"
        assert texts("b") == {"s", "word"}
        pond.sql("CREATE MATERIALIZED VIEW counted AS SELECT word, count(*) AS c FROM b GROUP BY word")
        assert texts("b") == frozenset(), "an aggregate may look at anything"
        pond.sql("DROP MATERIALIZED VIEW counted")
        pond.sql("CREATE MATERIALIZED VIEW ordered AS SELECT * FROM b ORDER BY word LIMIT 3")
        assert texts("b") == frozenset(), "a hash of whole rows is a look at all of them"


def test_a_file_gives_texts_as_they_lie_in_it(tmp_path: Path) -> None:
    put(tmp_path / "in", "0.parquet", 0, 5)
    put(tmp_path / "in", "1.parquet", 0, ROWS)
    large = pq.read_table(tmp_path / "in" / "0.parquet").cast(
        pa.schema([f.with_type(pa.large_string()) if f.type == pa.string() else f for f in SCHEMA])
    )
    pq.write_table(large, tmp_path / "in" / "2.parquet")
    source = FileSource(str(tmp_path / "in"), schema=SCHEMA)
    kinds = []
    for split in source.poll(None, None, 10**6).splits:
        (plain,) = source.read(split, ("n", "word"))
        (found,) = source.read_encoded(split, ("n", "word"), {"word", "s"})
        assert plain.schema.field("word").type == pa.string()
        assert found["word"].cast(pa.string()).to_pylist() == plain["word"].to_pylist()
        kinds.append(found.schema.field("word").type)
    assert kinds == [ENCODED, pa.string(), ENCODED]


@pytest.mark.parametrize(("texts", "stays"), [(10, True), (1500, False)])
def test_a_dictionary_travels_where_it_is_smaller(texts: int, stays: bool) -> None:
    values = pa.array([f"text {i}" for i in range(texts)])
    chunks = [
        pa.DictionaryArray.from_arrays(
            pa.array([None if i % 9 == 0 else i % texts for i in range(n)], pa.int32()), v
        )
        for n, v in ((700, values), (800, values), (500, pa.array(values.to_pylist()[::-1])))
    ]
    table = pa.table({"word": pa.chunked_array(chunks), "n": range(2000)})
    sent = wire.narrow(table)
    assert pa.types.is_dictionary(sent.schema.field("word").type) == stays
    assert wire.widen(sent).schema.field("word") == pa.field("word", pa.string())
    back = [
        frames.decode_table(memoryview(b"".join(map(bytes, p)))) for p in frames.encode_table(table, 9000)
    ]
    assert pa.concat_tables(back).to_pylist() == table.to_pylist()
    few = wire.narrow(table.slice(0, 10))
    assert few.schema.field("word").type == pa.string()


def test_rows_of_both_kinds_are_put_together_as_plain_ones() -> None:
    plain = pa.table({"word": ["a", None], "n": [1, 2]})
    encoded = pa.table({"word": pa.array(["b", "a"]).dictionary_encode(), "n": [3, 4]})
    both = partitioning.concat([plain, encoded])
    assert both.schema == plain.schema and both["word"].to_pylist() == ["a", None, "b", "a"]
    assert partitioning.concat([encoded, encoded]).schema == encoded.schema
