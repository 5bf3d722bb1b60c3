"""HTTP: SQL, views, tables, changes as server-sent events, metrics, health and the OpenAPI description.

| file | what it holds |
|---|---|
| `endpoints.py` | every route in one table, from which the app and `openapi.py` are made |
| `app.py`, `http_listener.py` | the Starlette app, with its guards, and its server |
| `sql_endpoint.py`, `view_endpoints.py`, `table_endpoint.py`, `changes_endpoint.py` | the handlers |
| `state_endpoints.py` | health, readiness and metrics |
| `guards.py` | what every request and response passes |
| `response_formats.py`, `request_rows.py` | rows as JSON, NDJSON, CSV and Arrow, out and in |
| `http_errors.py` | the one shape of an error |
| `caller.py` | who a request comes from, and its body within the limits |
"""
