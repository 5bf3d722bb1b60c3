"""PostgreSQL, the default dialect: its operators, functions and orders mean what its documentation says."""
