"""Lowering: from DuckDB's bound plan to steps of a Millpond plan."""
