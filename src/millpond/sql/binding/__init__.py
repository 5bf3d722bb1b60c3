"""Binding: DuckDB resolves names and types over Millpond's relations."""
