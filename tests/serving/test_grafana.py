"""The queries of deploy/grafana/millpond.json, on a real Prometheus that scrapes a server."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import millpond
from millpond.server.metrics.registry import BY_NAME
from scripts.grafana_dashboard import TARGET, dashboard
from tests.waiting import until

# Only ponds with late, error or refused rows, watermarks or a remote store have these.
MAY_BE_EMPTY = (
    "late_rows",
    "error_rows",
    "dead_letter",
    "watermark",
    "event_lag",
    "cache_requests",
    "fetched_bytes",
    "sink_behind",
)


def queries() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def test_the_file_is_current_and_names_known_metrics() -> None:
    assert json.loads(TARGET.read_text()) == dashboard(), "run python scripts/grafana_dashboard.py"
    for query in queries():
        named = set(re.findall(r"millpond_\w+", query))
        assert {name.removesuffix("_bucket") for name in named} <= set(BY_NAME), query


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[httpx.Client, millpond.Pond]]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(
            "CREATE TABLE t (a int); CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a"
        )
        with pond.serve(http_port=0) as server:
            config = tmp_path / "prometheus.yml"
            target = server.urls["http"].partition("//")[2]
            config.write_text(
                "global: {scrape_interval: 1s}\n"
                f"scrape_configs: [{{job_name: millpond, static_configs: [{{targets: ['{target}']}}]}}]\n"
            )
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
            process = subprocess.Popen(
                [*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL
            )
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                    yield client, pond
            finally:
                process.terminate()
                process.wait(30)


@pytest.mark.slow
def test_every_query_has_an_answer(prometheus: tuple[httpx.Client, millpond.Pond]) -> None:
    client, pond = prometheus

    def ask(query: str) -> list[object]:
        try:
            answer = client.get("/api/v1/query", params={"query": query})
        except httpx.TransportError:
            return []
        if answer.status_code == 503:
            return []
        assert answer.status_code == 200, f"{query}: {answer.text}"
        found: list[object] = answer.json()["data"]["result"]
        return found

    def scraped() -> bool:
        pond.insert("t", {"a": 1})
        pond.flush()
        pond.sql("SELECT 1")
        return len(ask("count_over_time(millpond_epochs_total[1m]) > 3")) > 0

    until(scraped, 60)
    for query in queries():
        found = ask(query.replace("$__rate_interval", "1m"))
        if not any(word in query for word in (*MAY_BE_EMPTY, "queries_total", "query_seconds")):
            assert found, query
