"""The Kafka source against a real broker: every committed message once, whatever happens in between."""

from __future__ import annotations

import datetime
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import windows
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.sources import kafka_client, kafka_reader
from millpond.sources.kafka import KafkaSource
from millpond.sources.text_format import JsonLines

from .topic import Topic

pytestmark = pytest.mark.e2e

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def source(topic: Topic, schema: Any = SCHEMA, **more: Any) -> KafkaSource:
    return KafkaSource(topic.brokers, topic.name, schema, **more)


def opened(place: Path, found: KafkaSource, **settings: Any) -> millpond.Pond:
    """A pond that shows every row, with how often it came."""
    pond = millpond.open(place, engine="inline", parallelism=2, **settings)
    rows = pond.stream("in", found)
    rows.key_by(*found.schema.names).aggregate(n="count(*)", id="g").view("g")
    return pond


def shown(pond: millpond.Pond) -> Counter[tuple[int, int]]:
    return Counter({(r["k"], r["v"]): r["n"] for r in pond.read("g").to_pylist()})


def rows(first: int, last: int) -> list[dict[str, int]]:
    return [{"k": n % 5, "v": n} for n in range(first, last)]


def pairs(*given: dict[str, int]) -> Counter[tuple[int, int]]:
    return Counter((row["k"], row["v"]) for row in given)


class Crash(BaseException):
    """The process ends here."""


def test_every_message_once_over_crashes(
    make_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws 1 and 2: after every epoch the view is the batch over the offsets of its manifest."""
    topic = make_topic(3)
    sent: dict[int, list[dict[str, int]]] = {0: [], 1: [], 2: []}
    chance = random.Random(7)
    left = [0]  # messages or polls until the crash

    def fragile(real: Any) -> Any:
        def called(*args: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return real(*args)

        return called

    monkeypatch.setattr(kafka_client, "look", fragile(kafka_client.look))
    monkeypatch.setattr(JsonLines, "parse", fragile(JsonLines.parse))
    crashes, epochs = 0, 0

    def check(pond: millpond.Pond) -> None:
        nonlocal epochs
        epochs += 1
        parts = (pond.head().positions.get("in") or {"partitions": {}})["partitions"]
        read = [row for p, (_, reached) in parts.items() for row in sent[int(p)][:reached]]
        assert shown(pond) == pairs(*read)

    for number in range(9):
        for partition, before in sent.items():
            start = 1000 * partition + len(before)
            fresh = rows(start, start + chance.randrange(40))
            topic.send(fresh, partition)
            before += fresh
        left[0] = 0 if number == 8 else chance.randrange(5, 25)
        with opened(tmp_path / "pond", source(topic), epoch_rows_max=25) as pond:
            pond.on_epoch(lambda _, pond=pond: check(pond))
            try:
                pond.drain()
            except Crash:
                crashes += 1
    assert shown(pond) == pairs(*(row for part in sent.values() for row in part))
    assert crashes > 3 and epochs > 10


def drained_to(pond: millpond.Pond, offset: int) -> Counter[tuple[int, int]]:
    """What is shown when partition 0 was read up to an offset: markers come a moment after a commit."""
    deadline = time.monotonic() + 60
    while True:
        pond.drain()
        reached = pond.head().positions["in"]["partitions"]["0"][1]
        if reached == offset or time.monotonic() > deadline:
            assert reached == offset
            return shown(pond)


def test_transactions(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    writer, other = topic.transactional(), topic.transactional()

    def write(by: Any, *given: dict[str, int]) -> None:
        for row in given:
            by.produce(topic.name, b'{"k": %d, "v": %d}' % (row["k"], row["v"]), partition=0)
        by.flush(20)

    with opened(tmp_path / "pond", source(topic)) as pond:
        writer.begin_transaction()
        write(writer, *rows(0, 5))
        assert not drained_to(pond, 0), "nobody knows yet whether these will stand"
        writer.commit_transaction()
        assert drained_to(pond, 5 + 1) == pairs(*rows(0, 5)), "and a marker"
        writer.begin_transaction()
        write(writer, *rows(5, 9))
        writer.abort_transaction()
        began = time.monotonic()
        assert drained_to(pond, 6 + 4 + 1) == pairs(*rows(0, 5))
        assert time.monotonic() - began < 25, "offsets without messages are not waited for"
        # One that is open stands before another that is settled: both have to wait.
        writer.begin_transaction()
        write(writer, *rows(9, 11))
        other.begin_transaction()
        write(other, *rows(11, 13))
        other.commit_transaction()
        assert drained_to(pond, 11) == pairs(*rows(0, 5))
        writer.abort_transaction()
        assert drained_to(pond, 11 + 2 + 3 + 1) == pairs(*rows(0, 5), *rows(11, 13))


def test_bad_messages_are_error_rows_and_the_others_come(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    bad = [b"{", b'{"k": "x"}', b"[1]", b"", None, b'{"k": 1} {"k": 2}', b"\xff"]
    topic.send([{"k": 1, "v": 1}, *bad, b'{\n "k": 2,\r\n "v": 2, "more": [1]\n}', b'  {"k": 3}  '])
    schema = {**dict.fromkeys(("k", "v", "kafka_offset"), int), "kafka_partition": int}
    with opened(tmp_path / "pond", source(topic, schema)) as pond:
        pond.drain()
        found = [(r["k"], r["v"], r["kafka_offset"]) for r in pond.read("g").to_pylist()]
        assert sorted(found) == [(1, 1, 0), (2, 2, 8), (3, None, 9)]
        errors = pond.errors().to_pylist()
        assert len(errors) == len(bad)
        told = {e["reason"].split(": ")[0] for e in errors}
        assert told == {f"{topic.name}, partition 0, offset {n + 1}" for n in range(len(bad))}


def test_columns_about_the_message(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    topic.send([{"k": 1}], 1, key=b"a", timestamp=1_700_000_000_123)
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("kafka_key", pa.string()),
            ("kafka_partition", pa.int32()),
            ("kafka_timestamp", pa.timestamp("us")),
        ]
    )
    with opened(tmp_path / "pond", source(topic, schema)) as pond:
        pond.drain()
        (row,) = pond.read("g").to_pylist()
    assert (row["kafka_key"], row["kafka_partition"]) == ("a", 1)
    assert row["kafka_timestamp"].isoformat() == "2023-11-14T22:13:20.123000"


@pytest.mark.parametrize(("start", "expected"), [("earliest", 6), ("latest", 2), ("2016-01-01", 4)])
def test_where_a_pond_starts(make_topic: Any, tmp_path: Path, start: str, expected: int) -> None:
    topic = make_topic(2)
    topic.send(rows(0, 2), 0, timestamp=1_400_000_000_000)
    topic.send(rows(2, 4), 0, timestamp=1_500_000_000_000)
    with opened(tmp_path / "pond", source(topic, start=start)) as pond:
        pond.drain()
    topic.send(rows(4, 6), 1, timestamp=1_600_000_000_000)
    with opened(tmp_path / "pond", source(topic, start=start)) as pond:
        pond.drain()
        assert shown(pond) == pairs(*rows(6 - expected, 6))


def test_new_partitions_are_read_from_their_beginning(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    with opened(tmp_path / "pond", source(topic, start="latest")) as pond:
        pond.drain()
        topic.grow(3)
        topic.producer.list_topics(topic.name, 20)
        topic.send(rows(0, 3), 2)
        pond.drain()
        assert shown(pond) == pairs(*rows(0, 3))


def test_deleted_offsets_are_an_error_not_a_gap(make_topic: Any, tmp_path: Path) -> None:
    """Law 9."""
    topic = make_topic(1)
    topic.send(rows(0, 10))
    with opened(tmp_path / "pond", source(topic)) as pond:
        pond.drain()
    topic.send(rows(10, 30))
    topic.delete_before(0, 20)
    with (
        opened(tmp_path / "pond", source(topic)) as pond,
        pytest.raises(DataError, match="deleted before they were read") as caught,
    ):
        pond.drain()
    assert "from offset 10" in str(caught.value) and "is 20" in str(caught.value)
    assert "retention.ms" in str(caught.value)


def test_a_task_that_finds_its_offsets_deleted_says_so(make_topic: Any) -> None:
    topic = make_topic(1)
    topic.send(rows(0, 10))
    found = source(topic)
    *_, split = found.poll(None, None, 100).splits
    topic.delete_before(0, 10)
    with pytest.raises(DataError, match="deleted before they were read"):
        list(found.read(split, ["k"]))


def test_a_topic_made_anew_is_noticed(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    topic.send(rows(0, 3))
    with opened(tmp_path / "pond", source(topic)) as pond:
        pond.drain()
    for _ in range(50):
        try:
            topic = topic.make_anew(1)
            break
        except Exception:  # the name is free a moment later
            time.sleep(0.1)
    topic.send(rows(0, 9))
    with (
        opened(tmp_path / "pond", source(topic)) as pond,
        pytest.raises(DataError, match="was deleted and created again"),
    ):
        pond.drain()


def test_a_later_view_reads_what_was_read(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    topic.send(rows(0, 7), 0)
    topic.send(rows(7, 9), 1)
    pond = millpond.open(tmp_path / "pond", engine="inline")
    with pond:
        made = f"""CREATE SOURCE s (k BIGINT, v BIGINT) WITH (connector = 'kafka', brokers = '{topic.brokers}',
            topic = '{topic.name}', client.socket.keepalive.enable = 'true')"""
        pond.sql(made)
        pond.sql("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s")
        pond.drain()
        topic.send(rows(9, 12), 1)
        pond.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS total FROM s")
        pond.drain()
        assert pond.sql("SELECT n, total FROM n, total").fetchall() == [(12, sum(range(12)))]
        assert pond.sql("SHOW SOURCES").fetchall()[0][0] == "s"
        assert "s: Scan" in pond.explain()
        with pytest.raises(InvalidError, match="no option 'tpic'"):
            pond.sql(made.replace("SOURCE s", "SOURCE t").replace("client.socket.keepalive.enable", "tpic"))
        with pytest.raises(UnavailableError, match="there is no topic 'nowhere'"):
            pond.sql(made.replace("SOURCE s", "SOURCE t").replace(topic.name, "nowhere"))


def test_what_compaction_took_is_not_read_again(make_topic: Any) -> None:
    topic = make_topic(1, **{"cleanup.policy": "compact"})
    topic.send(rows(0, 3), key=b"a")
    found = source(topic)
    position = found.advance(None, found.poll(None, None, 100).splits, ()).position
    with pytest.raises(InvalidError, match="no longer has all messages"):
        list(found.history(position, None, 100))


def test_a_cluster_that_is_away_is_asked_again(
    make_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1)
    topic.send(rows(0, 3))
    monkeypatch.setattr(kafka_client, "ANSWER_S", 0.3)
    away = KafkaSource("127.0.0.1:1", topic.name, SCHEMA)
    with pytest.raises(UnavailableError, match="does not answer"):
        away.poll(None, None, 100)
    asked: list[int] = []
    real = kafka_client.look

    def sometimes(cluster: Any, name: str) -> Any:
        asked.append(1)
        return real(cluster if len(asked) > 2 else kafka_client.Cluster("127.0.0.1:1"), name)

    monkeypatch.setattr(kafka_client, "look", sometimes)
    monkeypatch.setattr(kafka_client, "ANSWER_S", 2.0)
    with opened(tmp_path / "pond", source(topic)) as pond:
        pond.drain()
        assert shown(pond) == pairs(*rows(0, 3))
    assert len(asked) > 3


def test_a_reader_does_not_rest_while_messages_wait(make_topic: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(kafka_reader, "_AHEAD_KB", 64)
    topic = make_topic(1)
    topic.send([b"x" * (512 << 10)] * 40)  # forty times more than it fetches ahead, at least
    reader = kafka_reader.PartitionReader(kafka_client.Cluster(topic.brokers))
    began = time.monotonic()
    try:
        assert sum(len(found) for found in reader.messages(topic.name, 0, 0, 40)) == 40
    finally:
        reader.close()
    assert time.monotonic() - began < 10  # it was a second for each time that the queue was full


def test_admission_keeps_partitions_in_step(make_topic: Any) -> None:
    """Whatever prefix is admitted, no partition is ahead of another by more than a round."""
    from millpond.control.admission import admit

    topic = make_topic(2)
    many = [{"k": 0, "v": n} for n in range(6000)]
    for partition in (0, 1):
        topic.send(many, partition)
    found = source(topic)
    begin, *splits = found.poll(None, None, 20_000).splits
    assert len(splits) > 2
    position = found.advance(None, [begin], ()).position
    for budget in range(0, 13_000, 500):
        taken = admit({"in": splits}, budget, 1 << 30)["in"]
        parts = found.advance(position, taken, ()).position["partitions"]
        assert parts["0"] == parts["1"]


def test_a_partition_that_is_too_far_ahead_is_not_read(make_topic: Any, tmp_path: Path) -> None:
    """With `max_drift` the others go on, and over a restart it waits as well (law 8: nothing is lost)."""
    topic = make_topic(2)
    schema = pa.schema([("at", pa.timestamp("s"))])
    start = datetime.datetime(2024, 1, 1)

    def send(partition: int, *seconds: int) -> None:
        times = [(start + datetime.timedelta(seconds=s)).isoformat() for s in seconds]
        topic.send([{"at": at} for at in times], partition)

    def drained() -> list[int]:
        with millpond.open(tmp_path / "pond", engine="inline", parallelism=2) as pond:
            found = pond.stream("in", source(topic, schema), event_time="at", delay="0s", max_drift="1m")
            found.view("v")
            pond.drain()
            assert pond.late("in.watermark").num_rows == 0
            return sorted(int((at - start).total_seconds()) for at in pond.read("v").column("at").to_pylist())

    send(0, 100)
    send(1, 10)
    assert drained() == [10, 100]
    send(0, 101, 102)
    assert drained() == [10, 100], "partition 0 is 90 s ahead"
    send(1, 20)
    assert drained() == [10, 20, 100], "80 s"
    send(1, 41)
    assert drained() == [10, 20, 41, 100, 101, 102]


def test_a_topic_of_heartbeats_moves_the_watermark_of_another(make_topic: Any, tmp_path: Path) -> None:
    """All orders of a backlog are read before a heartbeat counts, and over a restart it still does (law 8)."""
    orders, beats = make_topic(2), make_topic(1)
    schema = pa.schema([("at", pa.timestamp("s"))])
    start = datetime.datetime(2024, 1, 1)

    def send(topic: Topic, partition: int, *seconds: int) -> None:
        times = [(start + datetime.timedelta(seconds=s)).isoformat() for s in seconds]
        topic.send([{"at": at} for at in times], partition)

    def closed() -> list[int]:
        with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, epoch_rows_max=10) as pond:
            said = pond.stream("beats", source(beats, schema), event_time="at")
            found = pond.stream("in", source(orders, schema), event_time="at", delay="1h", heartbeats=said)
            found.key_by().window(windows.tumbling("1m"), on_close=True).aggregate(n="count(*)").view("v")
            pond.drain()
            assert pond.late("in.watermark").num_rows == 0
            return sorted(pond.read("v").column("n").to_pylist())

    send(orders, 0, *range(0, 60, 2))
    send(orders, 1, *range(1, 60, 2))
    send(beats, 0, 60)
    assert closed() == [60]
    send(orders, 0, 61)
    assert closed() == [60]
    send(beats, 0, 120)
    assert closed() == [1, 60]
