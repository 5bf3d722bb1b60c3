"""Flink's connectors as ours."""

from __future__ import annotations

from millpond.sql.dialects.connector_table import ConnectorTable

_FORMATS = {"json": "json", "csv": "csv", "avro": "avro", "parquet": "parquet", "orc": "orc"}
_KAFKA = {
    "topic": "topic",
    "properties.bootstrap.servers": "brokers",
    "properties.*": "",
    "format": "format",
    "value.format": "format",
}
_ONLY_ONCE = "'source.monitor-interval' = '1 s': a pond follows the folder, and Flink reads it once without"
SOURCES = {
    "kafka": ConnectorTable(
        "kafka",
        {
            **_KAFKA,
            "topic-pattern": "topic.pattern",
            "scan.startup.mode": "start",
        },
        frozenset({"scan.topic-partition-discovery.interval", "json.ignore-parse-errors"}),
        {"scan.startup.timestamp-millis": "write start = '2024-01-01T00:00:00Z' in the default dialect"},
        {
            "start": {"earliest-offset": "earliest", "latest-offset": "latest"},
            "format": {
                "json": "json",
                "csv": "csv",
                "avro": "avro",
                "debezium-json": "json",
                "debezium-avro-confluent": "avro",
            },
        },
    ),
    "upsert-kafka": ConnectorTable(
        "kafka", _KAFKA, frozenset({"key.format"}), {}, {"format": {"json": "json", "avro": "avro"}}
    ),
    "filesystem": ConnectorTable(
        "files",
        {"path": "path", "format": "format"},
        frozenset({"source.monitor-interval"}),
        {"source.path.regex-pattern": "write pattern = '*.json' in CREATE SOURCE of the default dialect"},
        {"format": _FORMATS},
    ),
    "postgres-cdc": ConnectorTable(
        "postgres-cdc",
        {
            "hostname": "hostname",
            "port": "port",
            "username": "username",
            "password": "password",
            "database-name": "database.name",
            "schema-name": "schema.name",
            "table-name": "table.name",
            "slot.name": "slot.name",
        },
        frozenset({"scan.incremental.snapshot.enabled", "decoding.plugin.name"}),
    ),
}
SINKS = {
    "kafka": ConnectorTable(
        "kafka",
        {**_KAFKA, "sink.delivery-guarantee": "guarantee"},
        frozenset({"scan.startup.mode", "sink.transactional-id-prefix", "sink.parallelism"}),
        {},
        {
            "format": {"json": "json", "avro": "avro"},
            "guarantee": {"exactly-once": "exactly_once", "at-least-once": "at_least_once"},
        },
    ),
    "upsert-kafka": ConnectorTable(
        "kafka",
        {**_KAFKA, "key.format": "key.format"},
        frozenset({"sink.parallelism"}),
        {},
        {"format": {"json": "json", "avro": "avro"}, "key.format": {"json": "json", "avro": "avro"}},
    ),
    "filesystem": ConnectorTable(
        "files",
        {"path": "path", "format": "format"},
        frozenset({"sink.parallelism", "source.monitor-interval"}),
        {},
        {"format": {"parquet": "parquet", "json": "json", "csv": "csv"}},
    ),
    "jdbc": ConnectorTable(
        "jdbc",
        {"url": "url", "table-name": "table", "username": "user", "password": "password", "driver": "driver"},
        frozenset({"sink.parallelism", "sink.buffer-flush.interval", "sink.buffer-flush.max-rows"}),
    ),
}
INSTEAD = {
    "datagen": "connector 'nexmark' of CREATE SOURCE makes events, in the default dialect; or INSERT rows",
    "nexmark": "CREATE SOURCE bid WITH (connector = 'nexmark', type = 'bid') in the default dialect",
    "print": "SUBSCRIBE TO view shows the changes of a view",
    "blackhole": "leave it out: CREATE MATERIALIZED VIEW computes without a sink",
    "jdbc": "a table of a database can be followed with 'postgres-cdc'",
}
NEEDED = {
    (
        "kafka",
        "scan.startup.mode",
    ): "'scan.startup.mode' = 'earliest-offset': Flink's default asks Kafka for the "
    "offsets of a group, and a pond stores its own",
    ("filesystem", "source.monitor-interval"): _ONLY_ONCE,
}
