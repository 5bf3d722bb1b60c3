"""What PostgreSQL clients ask the catalog: `catalog_queries.py` decides which queries are about it.

`sql/pg_catalog/` has the relations and answers.
"""
