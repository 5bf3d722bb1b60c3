"""One rule for each kind of node in DuckDB's bound plan; `rule_table.py` lists them."""
