"""The OpenAPI description, made from the table of endpoints."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millpond.server.http.endpoints import ENDPOINTS, Endpoint
from millpond.server.http.response_formats import JSON
from millpond.server.http.sql_endpoint import LIMITS
from millpond.sinks.json_rows import json_text
from millpond.version import __version__

PATH = "/openapi.json"
STATUS_TEXTS = {
    400: "The request is wrong: fix it.",
    401: "The login is missing or wrong.",
    403: "The user lacks the permission.",
    404: "There is no such view, table or key.",
    406: "The answer is in none of the formats of Accept: ask for another.",
    409: "Another writer won: read again and decide.",
    410: "The epoch is no longer retained: start over.",
    413: "The body is too large.",
    415: "The body has an unknown Content-Type: send another.",
    429: "Backpressure: repeat the request after Retry-After seconds.",
    500: "Stored data is wrong, or it is a bug.",
    503: "Something is unavailable: retry.",
}
_TEXT, _NUMBER, _FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
_MAYBE_TEXT, _MAYBE_NUMBER = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
_ROW = {"type": "object", "additionalProperties": True}
_COLUMNS = {"type": "array", "items": {"$ref": "#/components/schemas/Column"}}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


SCHEMAS: dict[str, dict[str, Any]] = {
    "Column": _object(("name", "type"), name=_TEXT, type=_TEXT),
    "Error": _object(
        ("error",),
        error=_object(
            ("kind", "message"),
            kind={
                "type": "string",
                "enum": ["InvalidError", "ConflictError", "UnavailableError", "DataError", "InternalError"],
            },
            message=_TEXT,
            detail=_MAYBE_TEXT,
            hint=_MAYBE_TEXT,
            step=_MAYBE_TEXT,
            epoch=_MAYBE_NUMBER,
            position={**_MAYBE_NUMBER, "description": "The place in the statement, from 1."},
        ),
    ),
    "Events": {"type": "string", "description": "Events snapshot, changes, progress and error."},
    "Health": _object(("status",), status=_TEXT, version=_TEXT),
    "Inserted": _object(
        ("table", "rows"), table=_TEXT, rows=_NUMBER, entry=_MAYBE_NUMBER, epoch=_MAYBE_NUMBER
    ),
    "Ready": _object(("status", "state"), status=_TEXT, state=_TEXT, epoch=_MAYBE_NUMBER, holder=_MAYBE_TEXT),
    "Rows": _object(
        ("columns", "rows"),
        status=_TEXT,
        epoch=_MAYBE_NUMBER,
        warnings={"type": "array", "items": _TEXT},
        columns=_COLUMNS,
        rows={"type": "array", "items": _ROW},
        view=_TEXT,
        next={**_MAYBE_TEXT, "description": "The address of the next page."},
    ),
    "SqlRequest": _object(
        ("sql",),
        sql=_TEXT,
        params={"description": "A list of values for $1, $2, …, or an object of them for $name."},
        epoch={"type": ["integer", "string"], "description": "Read at this epoch or savepoint."},
        limits={"type": "object", "properties": {name: _NUMBER for name in LIMITS}},
        dialect=_TEXT,
        wait={**_FLAG, "description": "Answer when an epoch has the changes; true by default."},
    ),
    "TableRows": {
        "description": "A row, a list of rows, or an object with the field rows.",
        "oneOf": [_ROW, {"type": "array", "items": _ROW}],
    },
    "Text": {"type": "string"},
    "View": _object(
        ("name", "kind", "key", "columns"),
        name=_TEXT,
        kind=_TEXT,
        key={"type": "array", "items": _TEXT},
        columns=_COLUMNS,
    ),
    "Views": _object(("views",), views={"type": "array", "items": {"$ref": "#/components/schemas/View"}}),
}


def description() -> dict[str, Any]:
    """The whole description, as data."""
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Millpond", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"basic": []}, {"bearer": []}, {}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "Done.", "content": _content(endpoint.answer, endpoint.answer_types)},
            **{
                str(status): {"description": STATUS_TEXTS[status], "content": _content("Error", (JSON,))}
                for status in endpoint.errors
            },
        },
    }
    if endpoint.parameters:
        found["parameters"] = [
            {
                "name": p.name,
                "in": p.place,
                "required": p.required,
                "description": p.help,
                "schema": {"type": p.kind},
            }
            for p in endpoint.parameters
        ]
    if endpoint.body is not None:
        found["requestBody"] = {"required": True, "content": _content(endpoint.body, endpoint.body_types)}
    if endpoint.is_open:
        found["security"] = []
    return found


def _content(schema: str, types: tuple[str, ...]) -> dict[str, Any]:
    """By media type: the schema where the body is JSON, text or bytes elsewhere."""
    named = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    return {kind: named if kind == JSON or kind.startswith("text/") else {} for kind in types}


async def openapi(request: Request) -> Response:
    return Response(json_text(description()) + "\n", 200, media_type=JSON)
