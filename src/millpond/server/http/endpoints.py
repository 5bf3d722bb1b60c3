"""Every route of the HTTP API, in one table.

Law: a route exists if and only if it is listed here.  The app and the OpenAPI description are made from this
table, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from millpond.server.http.changes_endpoint import follow_changes
from millpond.server.http.response_formats import ARROW, CSV, JSON, MEDIA_TYPES, NDJSON
from millpond.server.http.sql_endpoint import run_sql
from millpond.server.http.state_endpoints import health, metrics, ready
from millpond.server.http.table_endpoint import insert_rows
from millpond.server.http.view_endpoints import list_views, look_up, read_view

Handler = Callable[[Request], Awaitable[Response]]
Place = Literal["path", "query", "header"]


@dataclass(frozen=True)
class EndpointParameter:
    """A parameter of a route; `kind` is its type in JSON Schema."""

    name: str
    place: Place
    kind: str
    help: str
    required: bool = False


@dataclass(frozen=True)
class Endpoint:
    """A route; `path` is in the notation of OpenAPI, `answers` are the names of schemas by status."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    summary: str
    parameters: tuple[EndpointParameter, ...] = ()
    body: str | None = None  # the schema of a JSON body
    body_types: tuple[str, ...] = (JSON,)
    answer: str = "Rows"
    answer_types: tuple[str, ...] = (JSON,)
    errors: tuple[int, ...] = (400, 401, 403, 500, 503)
    is_open: bool = False  # without logging in

    @property
    def route_path(self) -> str:
        """The path in the notation of Starlette: a key may have several parts."""
        return self.path.replace("{key}", "{key:path}")


VIEW = EndpointParameter("view", "path", "string", "The name of a view or table.", True)
EPOCH = EndpointParameter("epoch", "query", "string", "Read at this epoch, or at this savepoint.")

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/sql",
        run_sql,
        "Run SQL statements; the answer is the result of the last one.",
        body="SqlRequest",
        answer_types=MEDIA_TYPES,
        errors=(400, 401, 403, 406, 409, 413, 415, 500, 503),
    ),
    Endpoint(
        "GET", "/v1/views", list_views, "List tables and views with their columns and keys.", answer="Views"
    ),
    Endpoint(
        "GET",
        "/v1/views/{view}/changes",
        follow_changes,
        "Follow the changes of a view as server-sent events; the id of an event is its epoch.",
        (
            VIEW,
            EndpointParameter("Last-Event-ID", "header", "integer", "Resume after this epoch."),
            EndpointParameter("since", "query", "integer", "Begin after this epoch, without all rows."),
        ),
        answer="Events",
        answer_types=("text/event-stream",),
        errors=(400, 401, 403, 404, 410, 500, 503),
    ),
    Endpoint(
        "GET",
        "/v1/views/{view}",
        read_view,
        "Read a view page by page; any other parameter of the query string compares a column.",
        (
            VIEW,
            EPOCH,
            EndpointParameter("limit", "query", "integer", "Rows of a page; 100 by default."),
            EndpointParameter("offset", "query", "integer", "Rows before the page."),
        ),
        answer_types=MEDIA_TYPES,
        errors=(400, 401, 403, 404, 406, 500, 503),
    ),
    Endpoint(
        "GET",
        "/v1/views/{view}/{key}",
        look_up,
        "Look up the row of a key; the columns of a longer key are separated by slashes.",
        (
            VIEW,
            EndpointParameter("key", "path", "string", "The value of the key.", True),
            EPOCH,
        ),
        answer_types=MEDIA_TYPES,
        errors=(400, 401, 403, 404, 406, 500, 503),
    ),
    Endpoint(
        "POST",
        "/v1/tables/{table}",
        insert_rows,
        "Add rows to a table; they are durable when it answers.",
        (
            EndpointParameter("table", "path", "string", "The name of a table.", True),
            EndpointParameter(
                "Idempotency-Key", "header", "string", "A repeated request with the same key counts once."
            ),
            EndpointParameter("wait", "query", "boolean", "Answer when an epoch has the rows."),
        ),
        body="TableRows",
        body_types=(JSON, NDJSON, CSV, ARROW),
        answer="Inserted",
        errors=(400, 401, 403, 404, 409, 413, 415, 429, 500, 503),
    ),
    Endpoint("GET", "/health", health, "Does the process answer?", answer="Health", errors=(), is_open=True),
    Endpoint("GET", "/ready", ready, "Can the pond be read?", answer="Ready", errors=(503,), is_open=True),
    Endpoint(
        "GET",
        "/metrics",
        metrics,
        "Metrics for Prometheus.",
        answer="Text",
        answer_types=("text/plain",),
        errors=(401, 500),
    ),
)
