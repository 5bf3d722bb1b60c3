"""The types that casts of a parsed query name."""

from __future__ import annotations

from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.pg_catalog.pg_types import pg_type

_SYNONYMS = {
    "INT": "INTEGER", "INT4": "INTEGER", "INT2": "SMALLINT", "INT8": "BIGINT", "BOOL": "BOOLEAN",
    "TEXT": "VARCHAR", "NUMERIC": "DECIMAL(38,9)", "DECIMAL": "DECIMAL(38,9)", "FLOAT8": "DOUBLE",
    "FLOAT4": "FLOAT", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE", "BYTEA": "BLOB", "JSONB": "JSON",
    "TIMETZ": "TIME WITH TIME ZONE",
}  # fmt: skip


def written_type(kind: Tree) -> str:
    """The type that a cast names, as PostgreSQL shows it."""
    name = str(kind.get("type_name") or kind["qualified_name"]["path"][-1])
    if name == "list":
        return f"{written_type(kind['children'][0])}[]"
    return pg_type(_SYNONYMS.get(name.upper(), name.upper()))
