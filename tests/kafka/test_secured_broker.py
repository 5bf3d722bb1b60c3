"""Sources and sinks at a broker that demands TLS and a password; neither appears anywhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import millpond
from benchmarks.maven import MissingError
from millpond.errors import UnavailableError
from tests.kafka.secured_broker import PASSWORD, SecuredBroker, secured_broker

pytestmark = [pytest.mark.e2e, pytest.mark.slow]  # it starts a broker of its own

MECHANISMS = ["PLAIN", "SCRAM-SHA-256"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    try:
        with secured_broker(tmp_path_factory.mktemp("secured")) as found:
            yield found
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)


def made_topic(secured: SecuredBroker) -> str:
    name = f"t{time.time_ns()}"
    admin = AdminClient({**secured.client("PLAIN"), "bootstrap.servers": secured.address, "log_level": 0})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    return name


def options(secured: SecuredBroker, topic: str, mechanism: str, **other: str) -> str:
    client = {**secured.client(mechanism), "sasl.password": "${env:KAFKA_PASSWORD}", **other}
    settings = "".join(f", properties.{name} = '{value}'" for name, value in client.items())
    return (
        f"connector = 'kafka', properties.bootstrap.server = '{secured.address}', topic = '{topic}'{settings}"
    )


def committed(secured: SecuredBroker, topic: str, count: int) -> list[Any]:
    """The committed messages of a topic, read by a consumer of its own."""
    settings = {"bootstrap.servers": secured.address, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, **secured.client("PLAIN"), "log_level": 0})
    consumer.subscribe([topic])
    found: list[Any] = []
    end = time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(json.loads(message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_source_and_a_sink_log_in(secured: SecuredBroker, mechanism: str, tmp_path: Path) -> None:
    given, wanted = made_topic(secured), made_topic(secured)
    settings = {**secured.client(mechanism), "bootstrap.servers": secured.address, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    for n in range(20):
        producer.produce(given, json.dumps({"k": n % 2, "n": n}).encode(), partition=n % 2)
    assert producer.flush(20) == 0
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.sql(f"""
            CREATE SOURCE rows (k bigint, n bigint) WITH ({options(secured, given, mechanism)})
                FORMAT PLAIN ENCODE JSON;
            CREATE MATERIALIZED VIEW totals AS SELECT k, sum(n) AS n FROM rows GROUP BY k;
            CREATE SINK out FROM totals WITH ({options(secured, wanted, mechanism)}) FORMAT UPSERT ENCODE JSON;
        """)
        pond.drain()
        assert sorted(pond.sql("SELECT k, n FROM totals").fetchall()) == [(0, 90), (1, 100)]
        shown = f"{pond.explain()} {pond.sql('SHOW CREATE rows').fetchall()} {pond.plan!r}"
        assert PASSWORD not in shown
    found = committed(secured, wanted, 2)
    assert sorted((row["k"], row["n"]) for row in found) == [(0, 90), (1, 100)]
    held = [path for path in (tmp_path / "pond").rglob("*") if path.is_file()]
    assert held and not [path for path in held if PASSWORD.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sasl.username": "nobody"}, "invalid username or password"),
        ({"ssl.ca.location": "other"}, "certificate"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "source 'rows' is unavailable"),
    ],
)
def test_who_may_not_enter_is_told_why(
    secured: SecuredBroker,
    wrong: dict[str, str],
    said: str,
    tmp_path: Path,
) -> None:
    topic = made_topic(secured)
    wrong = {k: str(secured.other_authority) if v == "other" else v for k, v in wrong.items()}
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        with pytest.raises(UnavailableError) as caught:
            pond.sql(
                f"CREATE SOURCE rows (k bigint) WITH ({options(secured, topic, 'PLAIN', **wrong)})"
                " FORMAT PLAIN ENCODE JSON;"
                "CREATE MATERIALIZED VIEW v AS SELECT k FROM rows"
            )
            pond.drain()
        assert said in str(caught.value).lower()
        assert PASSWORD not in str(caught.value)
