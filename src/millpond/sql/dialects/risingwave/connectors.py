"""RisingWave's connectors as ours."""

from __future__ import annotations

from millpond.sql.dialects.connector_table import ConnectorTable, start_at_ms

_SINK = {"primary_key": "key", "type": "mode", "snapshot": "snapshot"}
_TYPES = {"append-only": "append", "upsert": "upsert", "debezium": "changelog"}
FORCED = "leave it out: it drops retractions, and the target would keep rows that are gone"
_S3 = {
    "s3.endpoint": "store.endpoint",
    "s3.region": "store.region",
    "s3.access.key": "store.access_key_id",
    "s3.secret.key": "store.secret_access_key",
}
_SINK_REFUSED = {"force_append_only": FORCED}
_KAFKA = {
    "topic": "topic",
    "properties.bootstrap.server": "brokers",
    "properties.bootstrap.servers": "brokers",
    "kafka.brokers": "brokers",
    "kafka.topic": "topic",
    "properties.*": "",
}


def _messages(kind: str) -> dict[str, str]:
    """Without FORMAT, `type` says what messages are.

    >>> _messages("debezium")
    {'mode': 'changelog', 'envelope': 'debezium'}
    """
    if kind not in _TYPES:
        raise ValueError(kind)
    return {"mode": _TYPES[kind], **({"envelope": "debezium"} if kind == "debezium" else {})}


SOURCES = {
    "kafka": ConnectorTable(
        "kafka",
        {**_KAFKA, "scan.startup.mode": "start", "kafka.scan.startup.mode": "start"},
        frozenset({"group.id.prefix", "source_rate_limit"}),
        {},
        {"start": {"earliest": "earliest", "latest": "latest"}},
        {"scan.startup.timestamp.millis": start_at_ms},
    ),
    "postgres-cdc": ConnectorTable(
        "postgres-cdc",
        {
            name: name
            for name in (
                *("hostname", "port", "username", "password", "database.name", "schema.name", "table.name"),
                *("slot.name", "publication.name", "tables"),
            )
        },
        frozenset({"publication.create.enable", "transactional"}),
    ),
    "nexmark": ConnectorTable(
        "nexmark",
        {"nexmark.table.type": "type", "nexmark.event.num": "events", "type": "type", "events": "events"},
        frozenset({"nexmark.split.num", "nexmark.max.chunk.size"}),
        {"nexmark.min.event.gap.in.ns": "write rate = '1000', events of a second, in the default dialect"},
        {"type": {"bid": "bid", "auction": "auction", "person": "person"}},
    ),
    "posix_fs": ConnectorTable("files", {"posix_fs.root": "path", "match_pattern": "pattern"}),
}
SINKS = {
    "kafka": ConnectorTable(
        "kafka",
        {**_KAFKA, "primary_key": "key", "snapshot": "snapshot"},
        frozenset({"sink_decouple"}),
        _SINK_REFUSED,
        {},
        {"type": _messages},
    ),
    "jdbc": ConnectorTable(
        "jdbc",
        {**_SINK, "jdbc.url": "url", "table.name": "table", "user": "user", "password": "password"},
        frozenset(),
        _SINK_REFUSED,
        {"mode": _TYPES},
    ),
    "deltalake": ConnectorTable(
        "delta", {**_SINK, "location": "path", **_S3}, frozenset(), _SINK_REFUSED, {"mode": _TYPES}
    ),
    "fs": ConnectorTable("files", {**_SINK, "fs.path": "path"}, frozenset(), _SINK_REFUSED, {"mode": _TYPES}),
}
INSTEAD = {
    "datagen": "connector = 'nexmark' makes events; or INSERT rows",
    "blackhole": "leave the sink out: a materialized view computes without one",
    "s3": "connector = 'files' with path = 's3://bucket/folder', in the default dialect",
    "mysql-cdc": "connector = 'kafka' with FORMAT DEBEZIUM follows what Debezium writes",
    "postgres": "connector = 'jdbc', or connector = 'postgres' with connection = '…' in the default dialect",
}
