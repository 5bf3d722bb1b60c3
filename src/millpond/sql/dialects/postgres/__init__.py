"""PostgreSQL, the default dialect: operators, functions and orders mean what PostgreSQL's documentation says."""
