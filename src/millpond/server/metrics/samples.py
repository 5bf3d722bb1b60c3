"""Collected values, by metric and labels.

Law: a value is accepted only for a metric of the registry and with exactly its labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.errors import InternalError
from millpond.server.metrics.registry import BY_NAME, Metric

Labels = tuple[str, ...]


@dataclass
class Observations:
    """The observations of a histogram: how many were at most each bound, and beyond the last."""

    buckets: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.buckets) + 1)

    def add(self, value: float) -> None:
        """
        >>> seen = Observations((0.1, 1.0))
        >>> for value in (0.05, 0.1, 7):
        ...     seen.add(value)
        >>> seen.cumulative()
        [('0.1', 2), ('1.0', 2), ('+Inf', 3)]
        """
        self.counts[bisect_left(self.buckets, value)] += 1
        self.total += value

    def copied(self) -> Observations:
        return Observations(self.buckets, list(self.counts), self.total)

    def added(self, other: Observations) -> Observations:
        counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        return Observations(self.buckets, counts, self.total + other.total)

    def cumulative(self) -> list[tuple[str, int]]:
        found, sum_so_far = [], 0
        for bound, count in zip((*self.buckets, None), self.counts, strict=True):
            sum_so_far += count
            found.append(("+Inf" if bound is None else str(bound), sum_so_far))
        return found


class Samples:
    """Values of any metrics; adding to a counter accumulates, setting a gauge replaces."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Observations]] = {}

    def set(self, name: str, value: float, *labels: str) -> None:
        _known(name, labels)
        self._values.setdefault(name, {})[labels] = float(value)

    def add(self, name: str, value: float, *labels: str) -> None:
        _known(name, labels)
        found = self._values.setdefault(name, {})
        found[labels] = found.get(labels, 0.0) + value

    def observe(self, name: str, value: float, *labels: str) -> None:
        metric = _known(name, labels)
        found = self._histograms.setdefault(name, {})
        seen = found.get(labels)
        if seen is None:
            seen = found[labels] = Observations(metric.buckets)
        seen.add(value)

    def value(self, name: str, *labels: str) -> float | None:
        return self._values.get(name, {}).get(labels)

    def copied(self) -> Samples:
        found = Samples()
        found._values = {name: dict(values) for name, values in self._values.items()}
        found._histograms = {
            name: {labels: seen.copied() for labels, seen in values.items()}
            for name, values in self._histograms.items()
        }
        return found

    def merged(self, other: Samples) -> Samples:
        """All values of two sets of samples with different metrics."""
        found = self.copied()
        for name, values in other._values.items():
            found._values.setdefault(name, {}).update(values)
        found._histograms.update(other.copied()._histograms)
        return found

    def added(self, other: Samples) -> Samples:
        """The sums of two sets of samples.

        >>> one, two = Samples(), Samples()
        >>> one.add("millpond_connections", 2, "pg")
        >>> two.add("millpond_connections", 3, "pg")
        >>> one.added(two).value("millpond_connections", "pg")
        5.0
        """
        found = self.copied()
        for name, values in other._values.items():
            for labels, value in values.items():
                found.add(name, value, *labels)
        for name, histograms in other._histograms.items():
            for labels, seen in histograms.items():
                known = found._histograms.setdefault(name, {}).get(labels)
                found._histograms[name][labels] = seen.copied() if known is None else known.added(seen)
        return found

    def counters(self) -> Samples:
        """What only ever grows: without gauges."""
        found = self.copied()
        found._values = {
            name: values for name, values in found._values.items() if BY_NAME[name].kind != "gauge"
        }
        return found

    def to_json(self) -> dict[str, Any]:
        """For another process: `of_json` reads it."""
        return {
            "values": [
                [name, list(labels), value]
                for name, values in self._values.items()
                for labels, value in values.items()
            ],
            "histograms": [
                [name, list(labels), seen.counts, seen.total]
                for name, values in self._histograms.items()
                for labels, seen in values.items()
            ],
        }

    @classmethod
    def of_json(cls, sent: Mapping[str, Any]) -> Samples:
        """
        >>> samples = Samples()
        >>> samples.observe("millpond_query_seconds", 0.1, "pg", "SELECT")
        >>> Samples.of_json(samples.to_json()).to_json() == samples.to_json()
        True
        """
        found = cls()
        for name, labels, value in sent["values"]:
            found.set(name, value, *labels)
        for name, labels, counts, total in sent["histograms"]:
            buckets = _known(name, tuple(labels)).buckets
            found._histograms.setdefault(name, {})[tuple(labels)] = Observations(buckets, list(counts), total)
        return found

    def values(self, name: str) -> dict[Labels, float]:
        return self._values.get(name, {})

    def observations(self, name: str) -> dict[Labels, Observations]:
        return self._histograms.get(name, {})


def _known(name: str, labels: Labels) -> Metric:
    metric = BY_NAME.get(name)
    if metric is None or len(labels) != len(metric.labels):
        wanted = None if metric is None else metric.labels
        raise InternalError(
            f"no metric {name!r} with these labels", detail=f"got {labels}, the registry has {wanted}"
        )
    return metric
