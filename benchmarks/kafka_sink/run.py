"""Rows from a topic to a topic, exactly once: rows a second and CPU of each contender, in turns.

Law: what was written is counted by a consumer of committed messages, and its sums are those of the input,
before a figure is shown.  The broker runs on the same cores for all of them, and its CPU is not counted.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.table import Table

from benchmarks import called, data, report
from benchmarks.kafka_sink.task import COLUMNS, Task
from benchmarks.nexmark import events, topics

CONTENDERS = {"millpond": "benchmarks.kafka_sink.on_millpond", "flink": "benchmarks.kafka_sink.on_flink"}
PARTITIONS = 2
LIMIT_S = 1800.0
BATCH = 100_000  # messages that are read at once

Sums = tuple[int, ...]


def run(
    number: int,
    against: Sequence[str],
    millpond: bool,
    cores: int,
    rounds: int,
    brokers: str,
    console: Console,
) -> None:
    wanted = events.of_size(number)
    folder = events.ensure(wanted)
    read = topics.ensure(wanted, folder, brokers).of("bid")
    rows = data.count(folder / "bid")
    expected = _sums(brokers, read)
    found: list[dict[str, Any]] = []
    names = [*(["millpond"] if millpond else []), *against]
    for turn in range(rounds):
        for name in names:
            write = f"kafka-sink-{name}-{turn}-{time.time_ns()}"
            _make(brokers, write)
            with tempfile.TemporaryDirectory(prefix="kafka-sink-") as place:
                task = Task(brokers, read, write, rows, cores, Path(place, "outcome.json"))
                called.call(CONTENDERS[name], task.arguments(), LIMIT_S)
                outcome = json.loads(task.out.read_text())
            written = _sums(brokers, write)
            if written != expected:
                raise RuntimeError(f"{name} wrote {written}, and the topic has {expected} (count, then sums)")
            found.append(outcome)
            console.print(f"{name}: {outcome['rows_per_second']:,.0f} rows/s")
    shown = Table("contender", "rows/s", "rows/CPU s", "peak MB", title=f"{rows:,} bids, topic to topic")
    for name in names:
        best = max((one for one in found if one["name"] == name), key=lambda one: one["rows_per_second"])
        cpu = best["rows_per_cpu_second"]
        rates = (f"{best['rows_per_second']:,.0f}", "" if cpu is None else f"{cpu:,.0f}")
        shown.add_row(name, *rates, f"{best['peak_rss_bytes'] / 1e6:,.0f}")
    console.print(shown)
    path = report.keep(
        "kafka-sink", {"events": asdict(wanted), "rows": rows, "cores": cores, "outcomes": found}
    )
    console.print(f"written: benchmarks/results/{path.name}")


def _make(brokers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


def _sums(brokers: str, topic: str) -> Sums:
    """How many messages are committed, and the sum of each column."""
    settings = {"bootstrap.servers": brokers, "group.id": "kafka-sink-check", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    count, sums, open_partitions = 0, [0] * len(COLUMNS), PARTITIONS
    while open_partitions:
        for message in consumer.consume(BATCH, 1.0):
            if message.error() is not None:
                open_partitions -= 1
                continue
            row = json.loads(message.value() or b"{}")
            count += 1
            sums = [total + row[name] for total, name in zip(sums, COLUMNS, strict=True)]
    consumer.close()
    return (count, *sums)
