"""Serves a pond to clients of other protocols.

| file | what it holds |
|---|---|
| `settings.py` | what to serve, where and within which limits |
| `server.py` | starts and stops the listeners of one pond |
| `listener.py`, `listener_table.py` | what a protocol must offer, and which protocols there are |
| `serving.py`, `make_serving.py` | what every listener is given, and how it is made |
| `statements.py`, `client_session.py` | runs the statements of all clients in a bounded number of threads |
| `change_groups.py`, `point_reads.py` | changes executed together; rows read by key without planning |
| `thread_switching.py` | lets threads take turns more often |
| `connection_limits.py`, `audit.py` | bounds the connections of each user; records what clients do |
| `pipeline_starter.py` | starts the pipeline if a statement needs an epoch and no process runs the pond |
| `authentication.py`, `authorization.py`, `scram.py`, `tls.py` | who a client is, and what it may do |
| `http_credentials.py`, `readable_objects.py` | who a header names; what a client may read |
| `request_transactions.py` | a transaction over HTTP or Flight SQL lasts at most one request |
| `epoch_watch.py` | tells clients that wait about new epochs |
| `http/`, `flight/`, `metrics/` | HTTP, Arrow Flight SQL, and what Prometheus reads |
| `dashboard/` | the page at `/` of the HTTP server |
| `pgwire/`, `pg_catalog/` | the PostgreSQL protocol, and the catalog that its clients read |
| `processes/` | PostgreSQL clients are served by several processes |
"""
