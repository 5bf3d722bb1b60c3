"""The JDBC driver of PostgreSQL, which must be in a Spark session when it starts."""

from __future__ import annotations

from pathlib import Path

from benchmarks.maven import MissingError, dependencies


def jdbc_jars() -> list[Path]:
    """Its jars, fetched on first use; none where they cannot be fetched."""
    try:
        return sorted(dependencies("postgresql-jdbc", "org.postgresql:postgresql:42.7.7").glob("*.jar"))
    except MissingError:
        return []
