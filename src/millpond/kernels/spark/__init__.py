"""Functions of Spark over Arrow columns, one file per family."""
