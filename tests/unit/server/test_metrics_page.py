"""docs/serving/metrics.md has the table of the registry."""

from __future__ import annotations

from pathlib import Path

from millpond.server.metrics.registry import METRICS, markdown

PAGE = Path(__file__).parents[3] / "docs" / "serving" / "metrics.md"
BEGIN, END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text()
    found = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert found == markdown(), "run python scripts/metrics_page.py"


def test_names_follow_the_conventions_of_prometheus() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.help.endswith("."), metric.name
        assert bool(metric.buckets) == (metric.kind == "histogram")
