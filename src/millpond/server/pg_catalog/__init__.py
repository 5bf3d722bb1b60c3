"""pg_catalog and information_schema: what PostgreSQL clients ask to find tables, views, columns and keys.

The relations have the columns of a real PostgreSQL 15 (`relations.json`, written by
`scripts/pg_catalog_data.py`), and DuckDB answers queries over them; no query is recognized by its text.

| file | what it does |
|---|---|
| `catalog_queries.py` | decides which queries are about the catalog, and answers them |
| `catalog_rewrite.py` | turns PostgreSQL's SQL about the catalog into DuckDB's |
| `catalog_database.py` | a DuckDB database with the relations of one program |
| `catalog_rows.py` | the rows of the relations, from the tables and views of a pond |
| `catalog_functions.py` | the functions that such queries call, as macros |
"""
