"""SELECT: DuckDB over the rows of committed epochs."""
