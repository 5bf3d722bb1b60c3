"""`GET /v1/views/{view}/changes`: the changes of a view as server-sent events.

Law: the id of an event is its epoch, and only the last event of an epoch has an id.  A client that reconnects
with `Last-Event-ID` = n gets everything after epoch n, and a delivery that broke off within an epoch is
repeated whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from millpond.cancellation import StatementCancelledError
from millpond.errors import InvalidError
from millpond.server.client_session import ClientSession
from millpond.server.epoch_watch import EpochWatch
from millpond.server.http.caller import client_of, whole_number
from millpond.server.http.http_errors import GoneError, as_millpond_error, error_body
from millpond.server.http.response_formats import row_texts
from millpond.server.http.view_endpoints import view_of
from millpond.server.statements import STOPPED
from millpond.sql.binding.types import quoted

HEARTBEAT_S = 10.0  # without changes, an event says how far the client is
EVENT_ROWS = 1_000  # rows of one event
Events = tuple[int, list[bytes]]  # the epoch up to which they are, and the events


async def follow_changes(request: Request) -> Response:
    client = await client_of(request)
    name = request.path_params["view"]
    since = _since(request)
    watch: EpochWatch = request.app.state.epoch_watch
    first = await client.in_thread(lambda: _events(client, name, since), streaming=True)
    stream = _stream(client, name, first, watch)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, 200, headers, "text/event-stream")


def _since(request: Request) -> int | None:
    text = request.headers.get("last-event-id")
    if text is None or text == "":
        return whole_number(request, "since", None)
    if not (text.isdecimal() and text.isascii()):
        raise InvalidError("Last-Event-ID must be an epoch", detail=f"got {text[:50]!r}")
    return int(text)


async def _stream(client: ClientSession, name: str, first: Events, watch: EpochWatch) -> AsyncIterator[bytes]:
    at, events = first
    yield b"retry: 1000\n\n"
    try:
        while True:
            for event in events:
                yield event
            newest = await watch.after(at, HEARTBEAT_S)
            if watch.stopped:
                raise StatementCancelledError(STOPPED)
            if newest <= at:
                events = [_event("progress", at, f'{{"epoch":{at}}}')]
                continue
            at, events = await client.in_thread(partial(_events, client, name, at), streaming=True)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        yield _event("error", None, error_body(as_millpond_error(error)))


def _events(client: ClientSession, name: str, since: int | None) -> Events:
    """The events after an epoch; without one, all rows of the view first."""
    pond = client.pool.pond
    with client.pool.lent() as session:
        found = view_of(session.catalog, name)
    head = pond.head()
    if since is not None and since > head.epoch:
        raise InvalidError(f"there is no epoch {since} yet", detail=f"the newest epoch is {head.epoch}")
    if since is not None and since < head.floor:
        raise GoneError(
            f"the changes after epoch {since} are no longer kept",
            detail=f"the oldest epoch that can be read is {head.floor}",
            hint="reconnect without Last-Event-ID: the first event has all rows",
            epoch=since,
        )
    after = "" if since is None else f" SINCE EPOCH {since}"
    result = client.execute(f"SUBSCRIBE TO {quoted(found.name)}{after}")
    at, events = (head.epoch if since is None else since), []
    for number, table in enumerate(result.tables(follow=False)):
        if not table.num_rows:
            if since is None and number == 0:
                events.append(_event("snapshot", at, f'{{"epoch":{at},"rows":[]}}'))
            continue
        epoch = table.column("epoch")[0].as_py()
        kind = "snapshot" if since is None and number == 0 else "changes"
        events += _epoch_events(kind, epoch, table.drop_columns(["epoch"]), result.types[1:])
        at = epoch
    return max(at, head.epoch), events


def _epoch_events(kind: str, epoch: int, table: pa.Table, types: list[str]) -> list[bytes]:
    texts = [text for part in row_texts(table, table.column_names, types) for text in part]
    pieces = [texts[n : n + EVENT_ROWS] for n in range(0, len(texts), EVENT_ROWS)]
    return [
        _event(
            kind,
            epoch if number == len(pieces) else None,
            f'{{"epoch":{epoch},"part":{number},"parts":{len(pieces)},"rows":[{",".join(rows)}]}}',
        )
        for number, rows in enumerate(pieces, 1)
    ]


def _event(kind: str, epoch: int | None, data: str) -> bytes:
    """
    >>> _event("progress", 3, '{"epoch":3}')
    b'id: 3\\nevent: progress\\ndata: {"epoch":3}\\n\\n'
    """
    id = "" if epoch is None else f"id: {epoch}\n"
    return f"{id}event: {kind}\ndata: {data}\n\n".encode()
