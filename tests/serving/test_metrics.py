"""`/metrics`: what promtool says, where values come from, and that they move."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import millpond
from millpond.server.metrics.activity import ServerActivity
from millpond.server.metrics.collector import PondCollector
from millpond.server.metrics.registry import BY_NAME
from millpond.sinks.callback import CallbackSink
from millpond.sources.memory import MemorySource
from tests.waiting import until


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[sample.name, labels] = sample.value
    return found


@pytest.fixture
def pond() -> millpond.Pond:
    made = millpond.open("memory://", engine="inline")
    made.sql("CREATE TABLE orders (id int PRIMARY KEY, who text, at timestamp)")
    made.sql("CREATE MATERIALIZED VIEW totals AS SELECT who, count(*) AS n FROM orders GROUP BY who")
    return made


def test_promtool_and_a_moving_pond(pond: millpond.Pond) -> None:
    clicks = MemorySource({"page": str})
    delivered: list[object] = []
    with pond.changing():
        sink = CallbackSink(lambda id, changes: delivered.append(changes))
        pond.stream("clicks", clicks).view("all_clicks").sink("out", sink)
    with pond.serve(http_port=0) as server:
        url = server.urls["http"]
        before = values(httpx.get(f"{url}/metrics", timeout=60).text)
        clicks.push([{"page": "home"}, {"page": "cart"}])
        pond.start()
        until(lambda: delivered)
        for n in range(3):
            sent = httpx.post(f"{url}/v1/tables/orders?wait=true", json={"id": n, "who": "ann"}, timeout=60)
            assert sent.status_code == 200, sent.text
        httpx.post(f"{url}/v1/sql", json={"sql": "SELECT nope"}, timeout=60)
        text = httpx.get(f"{url}/metrics", timeout=60).text
    after = values(text)
    assert after["millpond_epoch", ()] > before["millpond_epoch", ()]
    assert after["millpond_source_rows_total", ("source=orders",)] == 3
    assert after["millpond_epochs_total", ("kind=epoch",)] >= 3
    for phase in ("admit", "run", "commit"):
        assert after["millpond_epoch_phase_seconds_total", (f"phase={phase}",)] > 0
    assert after["millpond_queries_total", ("kind=SELECT", "outcome=InvalidError", "protocol=http")] == 1
    assert after["millpond_query_seconds_count", ("kind=SELECT", "protocol=http")] == 1
    assert after["millpond_connections_total", ("protocol=http",)] >= 1
    assert after["millpond_state", ("state=running",)] == 1
    assert after["millpond_scrape_error", ()] == 0
    assert ("millpond_sink_behind_epochs", ("sink=out",)) in after
    assert after["millpond_sink_rows_total", ("sink=out",)] == 2
    assert after["millpond_epoch_phase_seconds_total", ("phase=deliver",)] > 0
    assert after["millpond_source_rows_total", ("source=clicks",)] == 2
    names = {name for name, _ in after}
    for part in ("_bucket", "_count", "_sum"):
        names = {name.removesuffix(part) if name.removesuffix(part) in BY_NAME else name for name in names}
    assert names <= set(BY_NAME)
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0 and not checked.stderr, checked.stderr


def test_a_server_without_the_pipeline_has_the_same_values(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as running:
        running.sql("CREATE TABLE t (a int); FLUSH")
        other = PondCollector(millpond.open(tmp_path / "pond", engine="inline"), ServerActivity())
        other.samples()  # totals begin here
        for n in range(4):
            running.insert("t", [{"a": n}, {"a": n}])
            running.drain()
        seen = other.samples()
        assert seen.value("millpond_source_rows_total", "t") == 8
        assert seen.value("millpond_epoch_rows_total") == 8
        assert seen.value("millpond_epoch") == running.epoch
        assert seen.value("millpond_table_rows", "t.rows/rows") == 4, "equal rows are stored once"
        assert seen.value("millpond_inbox_entries") == 0
        running.insert("t", {"a": 9})
        assert other.samples().value("millpond_inbox_entries") == 1


def test_a_pond_that_cannot_be_read_does_not_fail_a_scrape(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as running:
        running.sql("CREATE TABLE t (a int); FLUSH")
    reader = millpond.open(tmp_path / "pond", engine="inline")
    for manifest in (tmp_path / "pond" / "manifests").iterdir():
        manifest.write_bytes(b"damaged")
    seen = PondCollector(reader, ServerActivity()).samples()
    assert seen.value("millpond_scrape_error") == 1


def test_a_pond_without_epochs() -> None:
    seen = PondCollector(millpond.open("memory://", engine="inline"), ServerActivity()).samples()
    assert seen.value("millpond_state", "new") == 1 and seen.value("millpond_epoch") is None
