"""CREATE SINK with modes and guarantees, SHOW SINKS, SHOW CONNECTORS, ALTER SINK PAUSE and RESUME."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, checks=True) as made:
        made.sql("CREATE TABLE t (k text, n int)")
        made.sql("CREATE MATERIALIZED VIEW totals AS SELECT k, sum(n) AS n FROM t GROUP BY k")
        yield made


def lines(folder: Path) -> list[dict[str, object]]:
    files = sorted(folder.glob("**/*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_changelog_in_json(pond: Pond, tmp_path: Path) -> None:
    pond.sql(
        "CREATE SINK out FROM totals WITH (connector = 'files', path = :out, format = 'json', mode = 'changelog',"
        " guarantee = 'exactly_once')",
        params={"out": str(tmp_path / "out")},
    )
    pond.sql("INSERT INTO t VALUES ('a', 1)")
    pond.drain()
    pond.sql("INSERT INTO t VALUES ('a', 2)")
    pond.drain()
    assert [(row["k"], row["n"], row["_op"]) for row in lines(tmp_path / "out")] == [
        ("a", 1, "insert"),
        ("a", 1, "update_before"),
        ("a", 3, "update_after"),
    ]
    (sink,) = pond.sql("SHOW SINKS").fetchall()
    assert sink[:7] == ("out", "sink", "totals", "files", "changelog", "exactly_once", "current")
    assert "from view totals, changelog exactly_once" in pond.explain()


def test_partitions_and_gathering(pond: Pond, tmp_path: Path) -> None:
    pond.sql(
        "CREATE SINK out FROM totals WITH (connector = 'files', path = :out, format = 'json', mode = 'changelog',"
        " partition.by = 'k', every = '1h', snapshot = 'false')",
        params={"out": str(tmp_path / "out")},
    )
    pond.sql("INSERT INTO t VALUES ('a', 1), ('b', 1)")
    pond.drain()
    assert sorted(p.parent.name for p in (tmp_path / "out").glob("*/*.json")) == ["k=a", "k=b"]
    assert "every 3600 s, without a snapshot" in pond.explain()


@pytest.mark.parametrize(
    "options, message",
    [
        ("mode = 'append'", "its view retracts rows"),
        ("mode = 'upsert'", "has no mode 'upsert'"),
        ("mode = 'uspert'", "no mode is 'uspert'"),
        ("guarantee = 'once'", "no guarantee is 'once'"),
        ("format = 'xml'", "no format named 'xml'"),
        ("behind.max = 'x'", "is a number of epochs"),
        ("snapshot = 'x'", "is true or false"),
        ("every = 'x'", "not a duration"),
        ("store.key = '${vault:x}'", "no secret is found"),
    ],
)
def test_what_cannot_be_given_is_refused(options: str, message: str, pond: Pond) -> None:
    with pytest.raises(InvalidError, match=message):
        pond.sql(f"CREATE SINK out FROM totals WITH (connector = 'files', path = '/x', {options})")
    assert pond.sql("SHOW SINKS").fetchall() == []


def test_an_option_that_is_missing_is_named(pond: Pond) -> None:
    with pytest.raises(InvalidError, match="option 'table' is missing"):
        pond.sql("CREATE SINK out FROM totals WITH (connector = 'postgres', connection = 'host=x')")


def test_pause_and_resume_miss_nothing(pond: Pond, tmp_path: Path) -> None:
    pond.sql(
        "CREATE SINK out FROM totals WITH (connector = 'files', path = :out, format = 'json')",
        params={"out": str(tmp_path / "out")},
    )
    pond.sql("INSERT INTO t VALUES ('a', 1)")
    pond.drain()
    pond.sql("ALTER SINK out PAUSE")
    pond.sql("INSERT INTO t VALUES ('b', 1)")
    pond.drain()
    assert [row["k"] for row in lines(tmp_path / "out")] == ["a"]
    assert pond.sinks()[0].state == "paused"
    assert pond.sql("SHOW SINKS").fetchall()[0][1] == "paused sink"
    assert "(paused)" in pond.explain()
    pond.sql("ALTER SINK out RESUME")
    pond.drain()
    assert pond.sinks()[0].state == "current"
    assert [row["k"] for row in lines(tmp_path / "out")] == ["a", "b"]


def test_connectors_are_listed(pond: Pond) -> None:
    found = {(row[0], row[1]): row[2:] for row in pond.sql("SHOW CONNECTORS").fetchall()}
    assert found["files", "sink"][:2] == ("exactly_once", "changes, append, changelog")
    assert found["postgres", "sink"][1] == "upsert, append, changelog, complete"
    assert ("kafka", "source") in found


def test_connectors_of_tables_are_listed(pond: Pond) -> None:
    found = {(row[0], row[1]): row[4] for row in pond.sql("SHOW CONNECTORS").fetchall()}
    assert "decimal.handling.mode" in found["kafka", "table"]
    assert "table.name" in found["postgres-cdc", "table"]
    assert "decimal.handling.mode" not in found["kafka", "source"]


def test_secrets_are_masked_where_a_definition_is_shown(pond: Pond) -> None:
    pond.sql(
        "CREATE SINK pg FROM totals WITH (connector = 'postgres', table = 'x',"
        " connection = 'host=nowhere.invalid password=hunter2')"
    )
    shown = pond.sql("SHOW CREATE SINK pg").fetchall()[0][0]
    assert "hunter2" not in shown and "table = 'x'" in shown
    assert "hunter2" not in pond.explain()


KAFKA = "CREATE SINK out FROM totals WITH (connector = 'kafka', brokers = 'localhost:1', topic = 't'{}) {}"


@pytest.mark.parametrize(
    "options, form, message",
    [
        ("", "FORMAT PLAIN ENCODE JSON", "its view retracts rows"),
        ("", "FORMAT UPSERT ENCODE CSV", "a sink has no ENCODE CSV"),
        ("", "FORMAT CANAL ENCODE JSON", "a sink has no FORMAT CANAL"),
        ("", "FORMAT UPSERT ENCODE AVRO", "need a schema registry"),
        ("", "FORMAT UPSERT ENCODE PROTOBUF", "need a schema registry, or a descriptor"),
        ("", "FORMAT UPSERT ENCODE JSON KEY ENCODE XML", "a sink has no KEY ENCODE XML"),
        (", mode = 'changelog'", "FORMAT UPSERT ENCODE JSON", "FORMAT UPSERT is mode upsert, not changelog"),
        (", format = 'json'", "FORMAT UPSERT ENCODE JSON", "the format is given twice"),
        (", key.fields = 'n'", "FORMAT UPSERT ENCODE JSON", "must be the key of the upserts"),
        (", key.fields = 'n'", "FORMAT DEBEZIUM ENCODE JSON", "must be columns of the view's key"),
        (", key.fields = 'x'", "FORMAT DEBEZIUM ENCODE JSON", "has no column 'x'"),
        (", client.sasl.password = 'hunter2'", "", "is a secret"),
        (
            ", schema.registry = 'http://me:hunter2@host'",
            "FORMAT UPSERT ENCODE JSON",
            "must not contain a password",
        ),
        (", client.sasl.password = '${vault:x}'", "", "no secret is found"),
        (", transaction.timeout = '1ms'", "", "at least a second"),
        (", partitions = 'x'", "", "is a number"),
        (", mode = 'complete'", "", "has no mode 'complete'"),
        (", schema.registry = 'http://host'", "FORMAT DEBEZIUM ENCODE PROTOBUF", "JSON or Avro"),
    ],
)
def test_kafka_sinks_that_cannot_be(options: str, form: str, message: str, pond: Pond) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        pond.sql(KAFKA.format(options, form))
    assert "hunter2" not in str(caught.value)
    assert pond.sql("SHOW SINKS").fetchall() == []


def test_columns_that_avro_cannot_have_are_refused_at_once(pond: Pond) -> None:
    pond.sql('CREATE MATERIALIZED VIEW odd AS SELECT k, sum(n) AS "the sum" FROM t GROUP BY k')
    with pytest.raises(InvalidError, match="'the sum' cannot be a field of Avro"):
        pond.sql(
            "CREATE SINK out FROM odd WITH (connector = 'kafka', brokers = 'localhost:1', topic = 't')"
            " FORMAT UPSERT ENCODE AVRO (schema.registry = 'http://localhost:1')"
        )


def test_only_kafka_has_formats(pond: Pond) -> None:
    with pytest.raises(InvalidError, match="only Kafka sinks have a FORMAT"):
        pond.sql(
            "CREATE SINK out FROM totals WITH (connector = 'files', path = '/x') FORMAT PLAIN ENCODE JSON"
        )


def test_a_kafka_sink_is_shown(pond: Pond) -> None:
    pond.sql(KAFKA.format(", client.sasl.password = '${env:PASSWORD}'", "FORMAT DEBEZIUM ENCODE JSON"))
    (sink,) = pond.sql("SHOW SINKS").fetchall()
    assert sink[2:6] == ("totals", "kafka", "changelog", "exactly_once")
    (said,) = pond.sql("SHOW CREATE SINK out").fetchall()[0]
    assert "FORMAT DEBEZIUM ENCODE JSON" in said and "***" in said
    rows = {(row[0], row[1]): row for row in pond.sql("SHOW CONNECTORS").fetchall()}
    assert rows["kafka", "sink"][2:4] == ("exactly_once", "upsert, append, changelog")
    assert "topic.pattern" in rows["kafka", "source"][4]


def test_a_plain_secret_is_refused_with_what_to_write(tmp_path: Path) -> None:
    options = "connector = 'kafka', brokers = 'b:1', topic = 't', client.sasl.password = 'hunter2'"
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.sql("CREATE TABLE t (k int PRIMARY KEY)")
        with pytest.raises(InvalidError, match=r"'sasl\.password' is a secret") as found:
            pond.sql(f"CREATE SINK s FROM t WITH ({options})")
        assert "${env:NAME}" in str(found.value) and "hunter2" not in str(found.value)
