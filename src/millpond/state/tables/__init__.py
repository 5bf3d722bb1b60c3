"""State tables: the live runs of a table read as one."""
