"""Statements of other streaming systems, written as ours before they run."""

from __future__ import annotations

from millpond.sql.dialects.flink import statements as flink
from millpond.sql.dialects.flink.syntax import Flink
from millpond.sql.dialects.known_objects import KnownObjects
from millpond.sql.dialects.risingwave import statements as risingwave
from millpond.sql.text.parse import SqlFragment, statements

_SYSTEMS = {"flink": flink.as_own_statements, "risingwave": risingwave.as_own_statements}
assert Flink.__name__.lower() in _SYSTEMS  # its class is how sqlglot knows the name


def own_statements(text: str, dialect: str, known: KnownObjects) -> list[SqlFragment]:
    """Split a text into statements; those of another system are written in one of our dialects."""
    found = statements(text, dialect)
    rewrite = _SYSTEMS.get(dialect)
    return found if rewrite is None else rewrite(found, known)
