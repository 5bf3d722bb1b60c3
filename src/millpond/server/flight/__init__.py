"""Arrow Flight SQL: bulk reads and writes for ADBC, pandas, Polars, DuckDB and the JDBC driver.

| file | what it holds |
|---|---|
| `messages.py` | the protobuf messages of Flight SQL |
| `flight_listener.py` | starts and stops the server |
| `flight_server.py` | the calls of Flight, dispatched by command |
| `catalog_commands.py`, `sql_info.py` | what clients ask about catalogs, tables, keys and the server |
| `prepared_statements.py` | statements with parameters that a client keeps |
| `record_batches.py` | results as batches that gRPC accepts |
| `ingestion.py` | rows in bulk into a table |
| `login_middleware.py`, `flight_errors.py` | who a client is; errors with our fields |
"""
