"""Streaming SQL: DuckDB binds and types a query, rules turn its plan into ours."""
