"""RisingWave's SQL: PostgreSQL's, with statements and options of its own."""
