"""Writes deploy/grafana/millpond.json: the panels are a table here, the rest is what Grafana needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "deploy" / "grafana" / "millpond.json"
RATE = "[$__rate_interval]"
QUERY_BUCKETS = f"sum by (le, kind) (rate(millpond_query_seconds_bucket{RATE}))"
# title, unit, then (query, legend) pairs; panels of a row stand side by side
ROWS: list[tuple[str, list[tuple[str, str, list[tuple[str, str]]]]]] = [
    (
        "Pond",
        [
            ("Epoch", "none", [("millpond_epoch", "newest")]),
            ("Time since the last epoch", "s", [("millpond_epoch_age_seconds", "age")]),
            ("Who holds the pond", "none", [("millpond_lease_held == 1", "{{holder}}")]),
            ("Connections", "none", [("millpond_connections", "{{protocol}}")]),
        ],
    ),
    (
        "Epochs",
        [
            (
                "Time of an epoch",
                "s",
                [
                    (
                        f"histogram_quantile(0.5, sum by (le) (rate(millpond_epoch_seconds_bucket{RATE})))",
                        "p50",
                    ),
                    (
                        f"histogram_quantile(0.99, sum by (le) (rate(millpond_epoch_seconds_bucket{RATE})))",
                        "p99",
                    ),
                ],
            ),
            ("Time by phase", "s", [(f"rate(millpond_epoch_phase_seconds_total{RATE})", "{{phase}}")]),
            ("Time by level", "s", [(f"rate(millpond_level_seconds_total{RATE})", "level {{level}}")]),
            ("Task skew", "none", [("millpond_task_skew_ratio", "level {{level}}")]),
        ],
    ),
    (
        "Flow",
        [
            (
                "Rows per second by source",
                "rowsps",
                [(f"rate(millpond_source_rows_total{RATE})", "{{source}}")],
            ),
            (
                "Backlog",
                "short",
                [("millpond_backlog_rows", "{{source}}"), ("millpond_inbox_entries", "inbox entries")],
            ),
            ("Slowest steps", "s", [(f"topk(10, rate(millpond_step_seconds_total{RATE}))", "{{step}}")]),
            ("Sinks behind", "short", [("millpond_sink_behind_epochs", "{{sink}}")]),
        ],
    ),
    (
        "Event time",
        [
            (
                "Watermark behind the clock",
                "s",
                [("millpond_watermark_delay_seconds", "{{step}} {{source}}")],
            ),
            ("Watermark behind the newest row", "s", [("millpond_event_lag_seconds", "{{step}} {{source}}")]),
            (
                "Late, error and refused rows per second",
                "rowsps",
                [
                    (f"rate(millpond_late_rows_total{RATE})", "late {{step}}"),
                    (f"rate(millpond_error_rows_total{RATE})", "error {{step}}"),
                    (f"rate(millpond_dead_letter_rows_total{RATE})", "refused {{sink}}"),
                ],
            ),
        ],
    ),
    (
        "State",
        [
            ("Bytes of the largest tables", "bytes", [("topk(10, millpond_table_bytes)", "{{table}}")]),
            ("Runs", "short", [("sum(millpond_table_runs)", "runs")]),
            ("Compaction debt", "bytes", [("sum(millpond_compaction_debt_bytes)", "bytes to merge")]),
            (
                "Disk cache",
                "reqps",
                [
                    (f"rate(millpond_cache_requests_total{RATE})", "{{outcome}}"),
                    (f"rate(millpond_epoch_cache_requests_total{RATE})", "tasks: {{outcome}}"),
                ],
            ),
            ("Fetched by tasks", "Bps", [(f"rate(millpond_epoch_fetched_bytes_total{RATE})", "bytes")]),
        ],
    ),
    (
        "Statements",
        [
            (
                "Statements per second",
                "reqps",
                [(f"sum by (protocol, kind) (rate(millpond_queries_total{RATE}))", "{{protocol}} {{kind}}")],
            ),
            (
                "Errors per second",
                "reqps",
                [(f'sum by (outcome) (rate(millpond_queries_total{{outcome!="ok"}}{RATE}))', "{{outcome}}")],
            ),
            (
                "Time of a statement",
                "s",
                [
                    (
                        f"histogram_quantile(0.99, {QUERY_BUCKETS})",
                        "p99 {{kind}}",
                    )
                ],
            ),
        ],
    ),
]


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(
            {"type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []}
        )
        width = 24 // len(row)
        for place, (name, unit, queries) in enumerate(row):
            panels.append(_panel(name, unit, queries, {"x": place * width, "y": y + 1, "w": width, "h": 7}))
        y += 8
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "title": "Millpond",
        "uid": "millpond",
        "schemaVersion": 39,
        "tags": ["millpond"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": panels,
    }


def _panel(name: str, unit: str, queries: list[tuple[str, str]], place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "type": "timeseries",
        "title": name,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"datasource": source, "expr": text, "legendFormat": legend, "refId": chr(65 + n)}
            for n, (text, legend) in enumerate(queries)
        ],
    }


def main() -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(dashboard(), indent=2) + "\n")


if __name__ == "__main__":
    main()
