"""pg_catalog and information_schema: what tables, views, columns and keys a pond has, as PostgreSQL says it.

The relations have the columns of a real PostgreSQL 15 (`relations.json`, written by
`scripts/pg_catalog_data.py`), and DuckDB answers queries over them; no query is recognized by its text.

| file | what it does |
|---|---|
| `catalog_reads.py` | answers a SELECT of a session that reads the catalog |
| `catalog_rewrite.py` | turns PostgreSQL's SQL about the catalog into DuckDB's |
| `catalog_database.py` | a DuckDB database with the relations of one program |
| `catalog_rows.py` | the rows of the relations, from the tables and views of a pond |
| `catalog_functions.py` | the functions that such queries call, as macros |
| `known_arrays.py` | array types that sqlglot cannot read |
| `server_settings.py`, `server_version.py` | the settings and the version that clients ask for |
| `pg_types.py` | the types of PostgreSQL, and which of them shows each logical type |
"""
