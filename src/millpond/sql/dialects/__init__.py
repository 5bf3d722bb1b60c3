"""The meaning of SQL dialects: each is translated to DuckDB's SQL, once, where a statement is read."""
