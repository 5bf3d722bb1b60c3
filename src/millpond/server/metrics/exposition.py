"""Samples as the families of prometheus_client, which writes the format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import CollectorRegistry

from millpond.server.metrics.collector import PondCollector
from millpond.server.metrics.registry import METRICS
from millpond.server.metrics.samples import Samples


class PondRegistry(CollectorRegistry):
    """A registry with the metrics of one pond, for the encoders of prometheus_client."""

    def __init__(self, collector: PondCollector) -> None:
        super().__init__(auto_describe=False)
        self._collector = collector

    def collect(self) -> Iterator[Family]:
        yield from families(self._collector.samples())


def families(samples: Samples) -> Iterator[Family]:
    """The families, in the order of the registry; one without values is left out."""
    for metric in METRICS:
        if metric.kind == "histogram":
            histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, seen in sorted(samples.observations(metric.name).items()):
                histogram.add_metric(labels, buckets=seen.cumulative(), sum_value=seen.total)
            yield from [histogram] if histogram.samples else []
            continue
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
        for labels, value in sorted(samples.values(metric.name).items()):
            family.add_metric(labels, value)
        yield from [family] if family.samples else []
