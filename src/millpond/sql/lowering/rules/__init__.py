"""One rule for each kind of node in DuckDB's bound plan; `registry` lists them."""
