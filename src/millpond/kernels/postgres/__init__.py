"""Functions of PostgreSQL over Arrow columns, one file per family."""
