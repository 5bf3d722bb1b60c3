"""Bound plans as typed nodes: what DuckDB's binder made of a query, read once from its JSON."""
