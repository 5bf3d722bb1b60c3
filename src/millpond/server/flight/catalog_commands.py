"""What a client asks about catalogs, schemas, tables and keys: a pond is one catalog with one schema.

Law: a client sees the tables and views that it may read.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from millpond.plan.objects import SqlObject
from millpond.server.client_session import ClientSession
from millpond.server.flight.sql_info import sql_info, xdbc_types
from millpond.server.readable_objects import key_columns, readable_objects
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.types import quoted
from millpond.sql.session import SqlSession
from millpond.sql.text import schema_names
from millpond.sql.text.schema_names import without_schema

DB_SCHEMA = "public"
TABLE_TYPES = {"table": "TABLE", "materialized view": "MATERIALIZED VIEW", "view": "VIEW"}

CATALOGS = pa.schema([pa.field("catalog_name", pa.string(), False)])
DB_SCHEMAS = pa.schema(
    [pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), False)]
)
TABLE_TYPE_NAMES = pa.schema([pa.field("table_type", pa.string(), False)])
TABLES = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), False),
        pa.field("table_type", pa.string(), False),
    ]
)
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), False))
PRIMARY_KEYS = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), False),
        pa.field("column_name", pa.string(), False),
        pa.field("key_sequence", pa.int32(), False),
        pa.field("key_name", pa.string()),
    ]
)
FOREIGN_KEYS = pa.schema(
    [
        pa.field("pk_catalog_name", pa.string()),
        pa.field("pk_db_schema_name", pa.string()),
        pa.field("pk_table_name", pa.string(), False),
        pa.field("pk_column_name", pa.string(), False),
        pa.field("fk_catalog_name", pa.string()),
        pa.field("fk_db_schema_name", pa.string()),
        pa.field("fk_table_name", pa.string(), False),
        pa.field("fk_column_name", pa.string(), False),
        pa.field("key_sequence", pa.int32(), False),
        pa.field("fk_key_name", pa.string()),
        pa.field("pk_key_name", pa.string()),
        pa.field("update_rule", pa.uint8(), False),
        pa.field("delete_rule", pa.uint8(), False),
    ]
)

SCHEMAS = {
    "CommandGetCatalogs": CATALOGS,
    "CommandGetDbSchemas": DB_SCHEMAS,
    "CommandGetTableTypes": TABLE_TYPE_NAMES,
    "CommandGetPrimaryKeys": PRIMARY_KEYS,
    "CommandGetExportedKeys": FOREIGN_KEYS,
    "CommandGetImportedKeys": FOREIGN_KEYS,
    "CommandGetCrossReference": FOREIGN_KEYS,
}
COMMANDS = frozenset([*SCHEMAS, "CommandGetTables", "CommandGetSqlInfo", "CommandGetXdbcTypeInfo"])


def schema_of(name: str, command: Any) -> pa.Schema:
    if name == "CommandGetTables":
        return TABLES_WITH_SCHEMA if command.include_schema else TABLES
    if name == "CommandGetSqlInfo":
        return sql_info([0]).schema
    return xdbc_types(None).schema if name == "CommandGetXdbcTypeInfo" else SCHEMAS[name]


def rows_of(name: str, command: Any, client: ClientSession) -> pa.Table:
    """The answer to a command."""
    pond = client.pool.settings.name
    match name:
        case "CommandGetSqlInfo":
            return sql_info(command.info)
        case "CommandGetXdbcTypeInfo":
            return xdbc_types(command.data_type if command.HasField("data_type") else None)
        case "CommandGetCatalogs":
            return pa.Table.from_pylist([{"catalog_name": pond}], schema=CATALOGS)
        case "CommandGetTableTypes":
            return pa.table([pa.array(TABLE_TYPES.values())], schema=TABLE_TYPE_NAMES)
        case "CommandGetDbSchemas":
            with client.pool.lent() as session:
                schemas = [DB_SCHEMA, *sorted(session.catalog.schemas.values())]
            rows = [
                {"catalog_name": pond, "db_schema_name": schema}
                for schema in schemas
                if _is_here(command, pond, schema)
            ]
            return pa.Table.from_pylist(rows, schema=DB_SCHEMAS)
        case "CommandGetTables":
            return _tables(command, client, pond)
        case "CommandGetPrimaryKeys":
            return _primary_keys(command, client, pond)
    return SCHEMAS[name].empty_table()


def _tables(command: Any, client: ClientSession, pond: str) -> pa.Table:
    schema = schema_of("CommandGetTables", command)
    rows = []
    with client.pool.lent() as session:
        schemas = session.catalog.schemas
        for found in readable_objects(client, session, TABLE_TYPES):
            of, name = (
                schema_names.schema_of(found.name, schemas) or DB_SCHEMA,
                without_schema(found.name, schemas),
            )
            wanted = _is_wanted(found, command.table_types) and _is_here(command, pond, of)
            if not wanted or not _fits(name, command, "table_name_filter_pattern"):
                continue
            row: dict[str, Any] = {
                "catalog_name": pond,
                "db_schema_name": of,
                "table_name": name,
            }
            row["table_type"] = TABLE_TYPES[found.kind]
            if command.include_schema:
                row["table_schema"] = arrow_schema(session, found).serialize().to_pybytes()
            rows.append(row)
    return pa.Table.from_pylist(rows, schema=schema)


def _primary_keys(command: Any, client: ClientSession, pond: str) -> pa.Table:
    with client.pool.lent() as session:
        catalog: Catalog = session.catalog
        asked = command.db_schema if command.HasField("db_schema") else DB_SCHEMA
        schemas = catalog.schemas
        stored = catalog.names((asked,)).stored(asked, command.table)
        found = [o for o in readable_objects(client, session, TABLE_TYPES) if o.name == stored]
        rows = [
            {
                "catalog_name": pond,
                "db_schema_name": schema_names.schema_of(o.name, schemas) or DB_SCHEMA,
                "table_name": without_schema(o.name, schemas),
                "column_name": column,
                "key_sequence": number,
                "key_name": None,
            }
            for o in found
            for number, (column, _) in enumerate(key_columns(catalog, o), 1)
        ]
    return pa.Table.from_pylist(rows, schema=PRIMARY_KEYS)


def arrow_schema(session: SqlSession, found: SqlObject) -> pa.Schema:
    """The columns of a table or view as a SELECT returns them."""
    nothing = ", ".join(f"CAST(NULL AS {c.type}) AS {quoted(c.name)}" for c in found.columns)
    made = session.run(f"SELECT {nothing} WHERE false", dialect="duckdb").arrow().schema
    required = {c.name for c in found.columns if c.required}
    return pa.schema([f.with_nullable(f.name not in required) for f in made])


def _is_wanted(found: SqlObject, types: Collection[str]) -> bool:
    return not types or TABLE_TYPES[found.kind] in types


def _is_here(command: Any, pond: str, schema: str) -> bool:
    if command.HasField("catalog") and command.catalog not in ("", pond):
        return False
    return _fits(schema, command, "db_schema_filter_pattern")


def _fits(name: str, command: Any, field: str) -> bool:
    return not command.HasField(field) or like(name, getattr(command, field))


def like(name: str, pattern: str) -> bool:
    """Does a name match a pattern with % and _?

    >>> like("orders", "ord%"), like("orders", "order"), like("a_b", "a\\\\_b")
    (True, False, True)
    """
    texts = {"%": ".*", "_": "."}
    parts = re.findall(r"\\.|.", pattern, re.S)  # a backslash escapes the character after it
    made = "".join(texts.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(made, name, re.S) is not None
