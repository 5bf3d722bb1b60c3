"""`GET /v1/views…`: lists views, reads one page by page, and looks up a key.

Law: a view is read by a SELECT of the client's session, so one place decides who may read what.
Pages of one listing are of one epoch: the link to the next page names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from millpond.errors import InvalidError, nearest
from millpond.plan.objects import SqlObject
from millpond.server.client_session import ClientSession
from millpond.server.http.caller import answered, client_of, whole_number
from millpond.server.http.http_errors import NotFoundError
from millpond.server.http.response_formats import JSON, accepted, response_of
from millpond.server.http.sql_endpoint import as_of_clause
from millpond.server.readable_objects import key_columns, readable_objects
from millpond.sinks.json_rows import json_text
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.types import quoted
from millpond.sql.result import Result

KINDS = ("table", "materialized view", "view")
PAGE_ROWS, PAGE_ROWS_MAX = 100, 100_000
RESERVED = ("limit", "offset", "epoch")


async def list_views(request: Request) -> Response:
    client = await client_of(request)
    found = await client.in_thread(lambda: _listed(client))
    return Response(json_text({"views": found}) + "\n", 200, media_type=JSON)


def _listed(client: ClientSession) -> list[dict[str, Any]]:
    with client.pool.lent() as session:
        catalog = session.catalog
        return [described(catalog, found) for found in readable_objects(client, session, KINDS)]


def described(catalog: Catalog, found: SqlObject) -> dict[str, Any]:
    return {
        "name": found.name,
        "kind": found.kind,
        "key": [name for name, _ in key_columns(catalog, found)],
        "columns": [{"name": c.name, "type": c.type} for c in found.columns],
    }


async def read_view(request: Request) -> Response:
    client = await client_of(request)
    media = accepted(request.headers.get("accept"))
    limit = whole_number(request, "limit", PAGE_ROWS, 1) or PAGE_ROWS
    if limit > PAGE_ROWS_MAX:
        raise InvalidError(f"limit is at most {PAGE_ROWS_MAX}", hint="ask for the next page, or use /v1/sql")
    offset = whole_number(request, "offset", 0) or 0
    name = request.path_params["view"]
    wanted = [(k, v) for k, v in request.query_params.multi_items() if k not in RESERVED]
    epoch = epoch_param(request)

    def run() -> tuple[Result, str | None]:
        return _page(client, name, wanted, epoch, limit, offset)

    result, following = await answered(request, client, run)
    response = response_of(result, media, {"view": name, "next": following})
    if following is not None:
        response.headers["Link"] = f'<{following}>; rel="next"'
    return response


def _page(
    client: ClientSession,
    name: str,
    wanted: Sequence[tuple[str, str]],
    epoch: int | str | None,
    limit: int,
    offset: int,
) -> tuple[Result, str | None]:
    with client.pool.lent() as session:
        catalog = session.catalog
        found = view_of(catalog, name)
        order = [n for n, _ in key_columns(catalog, found)] or _sortable(found)
        conditions, params = _conditions(found, wanted)
        text = f"SELECT * FROM {quoted(found.name)}{conditions}"
        if order:
            text += f" ORDER BY {', '.join(quoted(n) for n in order)}"
        text += f" LIMIT {limit + 1} OFFSET {offset}"
    if epoch is not None:
        text += f"\n{as_of_clause(epoch)}"
    result = client.execute(text, params)
    table = result.arrow()
    page = Result.of_rows(result.columns, result.types, table.slice(0, limit), result.epoch)
    if table.num_rows <= limit:
        return page, None
    query = [*wanted, ("epoch", str(result.epoch)), ("limit", str(limit)), ("offset", str(offset + limit))]
    return page, f"/v1/views/{quote_path(name)}?{urlencode(query)}"


def _conditions(found: SqlObject, wanted: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """A WHERE clause that compares columns with texts, each cast to the type of its column."""
    columns = {c.name.lower(): c for c in found.columns}
    parts, params = [], []
    for name, value in wanted:
        column = columns.get(name.lower())
        if column is None:
            raise InvalidError(
                f"view {found.name!r} has no column {name!r}",
                detail=f"columns are {', '.join(c.name for c in found.columns)}",
                hint=nearest(name, [c.name for c in found.columns]),
            )
        params.append(value)
        parts.append(f"{quoted(column.name)} = CAST(${len(params)} AS {column.type})")
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), params


def _sortable(found: SqlObject) -> list[str]:
    return [c.name for c in found.columns if not c.type.upper().startswith("MAP")]


async def look_up(request: Request) -> Response:
    client = await client_of(request)
    media = accepted(request.headers.get("accept"))
    name, key = request.path_params["view"], request.path_params["key"]
    epoch = epoch_param(request)
    result: Result = await answered(request, client, lambda: _row(client, name, key.split("/"), epoch))
    return response_of(result, media, {"view": name})


def _row(client: ClientSession, name: str, key: Sequence[str], epoch: int | str | None) -> Result:
    with client.pool.lent() as session:
        found = view_of(session.catalog, name)
        columns = key_columns(session.catalog, found)
    if not columns:
        raise InvalidError(
            f"view {found.name!r} has no key", hint=f"filter it: /v1/views/{found.name}?column=value"
        )
    if len(key) != len(columns):
        shown = "/".join(f"{{{n}}}" for n, _ in columns)
        raise InvalidError(
            f"the key of view {found.name!r} has {len(columns)} column{'s' * (len(columns) != 1)}",
            detail=f"got {len(key)} values",
            hint=f"/v1/views/{found.name}/{shown}",
        )
    params = [key_value(n, kind, text) for (n, kind), text in zip(columns, key, strict=True)]
    conditions = " AND ".join(f"{quoted(n)} = ${i}" for i, (n, _) in enumerate(columns, 1))
    text = f"SELECT * FROM {quoted(found.name)} WHERE {conditions}"
    if epoch is not None:
        text += f"\n{as_of_clause(epoch)}"
    result = client.execute(text, params)
    if result.rowcount == 0:
        raise NotFoundError(f"view {found.name!r} has no row with key {'/'.join(key)!r}", epoch=result.epoch)
    return result


def key_value(name: str, kind: pa.DataType, text: str) -> Any:
    """A value of a path in the type of its key column.

    >>> key_value("id", pa.int64(), "42"), key_value("who", pa.string(), "42")
    (42, '42')
    """
    try:
        return pa.scalar(text, pa.string()).cast(kind).as_py()
    except (pa.ArrowException, ValueError) as error:
        raise InvalidError(
            f"{text[:50]!r} is no value of the key column {name!r}", detail=f"it is {kind}: {error}"
        ) from error


def view_of(catalog: Catalog, name: str) -> SqlObject:
    found = catalog.find(name)
    if found is None or found.kind not in KINDS:
        known = [o.name for o in catalog.objects.values() if o.kind in KINDS]
        raise NotFoundError(f"no view named {name!r}", hint=nearest(name, known))
    return found


def epoch_param(request: Request) -> int | str | None:
    """An epoch of the query string: a number or the name of a savepoint."""
    text = request.query_params.get("epoch")
    if text is None or text == "":
        return None
    return int(text) if text.isdecimal() and text.isascii() else text


def quote_path(name: str) -> str:
    return quote(name, safe="")
