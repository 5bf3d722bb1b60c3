"""`POST /v1/tables/{table}`: adds rows to a table.

Law: the rows are durable when it answers.  A request with an `Idempotency-Key` may be repeated after a
failure and counts once.  Under backpressure it answers 429 and takes nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from millpond.errors import InvalidError, nearest
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlObject
from millpond.server.client_session import ClientSession
from millpond.server.http.caller import body_of, client_of, content_type
from millpond.server.http.http_errors import BackpressureError, NotFoundError
from millpond.server.http.request_rows import rows_format, rows_in
from millpond.server.http.response_formats import JSON
from millpond.sinks.json_rows import json_text
from millpond.sql.binding.types import quoted
from millpond.sql.session import SqlSession
from millpond.state import inbox

KEY_CHARACTERS_MAX = 255
LIST_EVERY = 64  # requests after which the number of waiting entries is counted anew


class InboxGauge:
    """How many inbox entries wait for an epoch: counted when they may be many, estimated otherwise."""

    def __init__(self) -> None:
        self._asked = 0
        self._newest = -1

    def wrote(self, entry: int) -> None:
        self._newest = max(self._newest, entry)

    def waiting(self, client: ClientSession) -> int:
        pond = client.pool.pond
        executed = inbox.next_entry(pond.head())
        if self._asked % LIST_EVERY == 0:  # other processes write, too
            self._newest = max([self._newest, *inbox.numbers(pond.store)[-1:]])
        self._asked += 1
        return max(0, self._newest + 1 - executed)


async def insert_rows(request: Request) -> Response:
    client = await client_of(request)
    name = request.path_params["table"]
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        raise InvalidError(f"an Idempotency-Key has 1 to {KEY_CHARACTERS_MAX} characters")
    wait = request.query_params.get("wait", "false")
    if wait not in ("true", "false"):
        raise InvalidError("wait is true or false", detail=f"got {wait[:50]!r}")
    media = rows_format(content_type(request))
    gauge: InboxGauge = request.app.state.inbox_gauge
    await asyncio.shield(client.in_thread(lambda: _admit(client, name, gauge)))  # before the body is read
    raw = await body_of(request)
    answer = await client.in_thread(lambda: _insert(client, name, raw, media, key, gauge, wait == "true"))
    return Response(json_text(answer) + "\n", 200, media_type=JSON)


def _admit(client: ClientSession, name: str, gauge: InboxGauge) -> None:
    """Refuse rows of a user without permission, and under backpressure."""
    client.pool.authorizer.check_action(client.user, "insert", name)
    most = client.pool.settings.inbox_entries_max
    if client.pool.pond.status.epoch is None:
        return
    waiting = gauge.waiting(client)
    if waiting >= most:
        raise BackpressureError(
            "the pond takes no more rows at present",
            detail=f"{waiting} inbox entries wait for an epoch, the limit is {most}",
            hint="send the same request again after the seconds in Retry-After, or send more rows at a time",
        )


def _insert(
    client: ClientSession,
    name: str,
    raw: bytes,
    media: str,
    key: str | None,
    gauge: InboxGauge,
    wait: bool,
) -> dict[str, Any]:
    pond = client.pool.pond
    with client.pool.lent() as session:
        found = session.catalog.find(name)
        if found is None or found.kind != "table" or found.scan is None:
            known = [o.name for o in session.catalog.objects.values() if o.kind == "table"]
            raise NotFoundError(f"no table named {name!r}", hint=nearest(name, known))
        rows = rows_in(raw, media, table_schema(session.plan, found), found.name)
        rows = with_defaults(session, found, rows)
        if not rows.num_rows:
            return {"table": found.name, "rows": 0, "entry": None, "epoch": None}
        request = None if key is None else f"{client.user.name}/{key}"
        entry = pond.insert(found.name, rows, request=request)
        gauge.wrote(entry)
        client.pool.pipeline.ensure()
        epoch = None
        if wait:
            session.host.wait_executed(entry)
            epoch = session.host.epoch_of(entry)
    return {"table": found.name, "rows": rows.num_rows, "entry": entry, "epoch": epoch}


def table_schema(plan: Plan, found: SqlObject) -> pa.Schema:
    """The columns that rows of a table may have, under the names that users see."""
    columns = plan.nodes[found.scan or ""].binding.shape.schema
    shown = [c for c in found.columns if c.generated is None and c.stored_name in columns.names]
    return pa.schema([columns.field(c.stored_name).with_name(c.name) for c in shown])


def with_defaults(session: SqlSession, found: SqlObject, rows: pa.Table) -> pa.Table:
    """The rows with the columns that they lack: the default of the column, or NULL."""
    schema = table_schema(session.plan, found)
    missing = [c for c in found.columns if c.name in schema.names and c.name not in rows.column_names]
    defaults = [c for c in missing if c.default is not None]
    if defaults:
        listed = ", ".join(f"CAST(({c.default}) AS {c.type}) AS {quoted(c.name)}" for c in defaults)
        given = session.run(f"SELECT {listed} FROM range({rows.num_rows})", dialect="duckdb").arrow()
    for column in missing:
        kind = schema.field(column.name).type
        values = (
            pa.nulls(rows.num_rows, kind) if column.default is None else given.column(column.name).cast(kind)
        )
        rows = rows.append_column(column.name, values)
    return rows
