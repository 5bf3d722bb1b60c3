"""`POST /v1/sql`: runs statements, with parameters, at an epoch, within limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millpond.errors import InvalidError, nearest
from millpond.server.client_session import ClientSession
from millpond.server.http.caller import answered, body_of, client_of, parsed_json, require_json
from millpond.server.http.response_formats import accepted, response_of
from millpond.server.request_transactions import one_request
from millpond.sql.result import Result
from millpond.sql.text.parse import statements

FIELDS = ("sql", "params", "epoch", "limits", "dialect", "wait")
LIMITS = {
    "rows": "select_rows_max",
    "ms": "select_ms_max",
    "memory_bytes": "select_memory_bytes_max",
    "spill_bytes": "select_spill_bytes_max",
}


async def run_sql(request: Request) -> Response:
    client = await client_of(request)
    media = accepted(request.headers.get("accept"))
    require_json(request)
    asked = parsed_json(await body_of(request))
    result: Result = await answered(request, client, lambda: _run(client, asked))
    return response_of(result, media)


def _run(client: ClientSession, asked: Any) -> Result:
    text, params = _checked(asked)
    if asked.get("epoch") is not None:
        text = at_epoch(text, asked["epoch"])
    limits = _limits(client, asked.get("limits") or {})
    with one_request(client):
        result = client.execute(text, params, dialect=asked.get("dialect", "postgres"), limits=limits)
    if asked.get("wait", True) and client.read_your_writes:
        with client.pool.lent() as session:
            epoch = client.wait_for_writes(session)  # the next request sees what this one changed
        result.epoch = epoch if result.epoch is None else result.epoch
    _ = result.rowcount
    return result


def _checked(asked: Any) -> tuple[str, Any]:
    if not isinstance(asked, dict) or not isinstance(asked.get("sql"), str):
        raise InvalidError("the body is an object with the field sql", hint='{"sql": "SELECT 1"}')
    for name in asked:
        if name not in FIELDS:
            raise InvalidError(
                f"no field named {name!r}", hint=nearest(name, FIELDS, f"fields are {', '.join(FIELDS)}")
            )
    for name, kind, said in (("dialect", str, "a text"), ("wait", bool, "true or false")):
        if name in asked and not isinstance(asked[name], kind):
            raise InvalidError(f"{name} must be {said}", detail=f"got {asked[name]!r}"[:100])
    params = asked.get("params")
    if params is not None and not isinstance(params, list | dict):
        raise InvalidError("params are a list of values or an object of them")
    return asked["sql"], params


def at_epoch(text: str, epoch: Any) -> str:
    """A query that reads everything at an epoch or a savepoint.

    >>> at_epoch("SELECT 1 -- all;", 7).splitlines()[-1]
    'AS OF EPOCH 7'
    """
    found = statements(text, "postgres")
    if len(found) != 1 or found[0].word(0) not in ("SELECT", "WITH", "FROM", "VALUES"):
        raise InvalidError("an epoch is for one SELECT", hint="write AS OF EPOCH into the text instead")
    if isinstance(epoch, bool) or not isinstance(epoch, int | str) or (isinstance(epoch, int) and epoch < 0):
        raise InvalidError("an epoch is a number or the name of a savepoint", detail=f"got {epoch!r}"[:100])
    return f"{found[0].sql}\n{as_of_clause(epoch)}"


def as_of_clause(epoch: int | str) -> str:
    """
    >>> as_of_clause(3), as_of_clause("before")
    ('AS OF EPOCH 3', 'AS OF SAVEPOINT "before"')
    """
    if isinstance(epoch, int):
        return f"AS OF EPOCH {epoch}"
    return f'AS OF SAVEPOINT "{epoch.replace(chr(34), chr(34) * 2)}"'


def _limits(client: ClientSession, asked: Mapping[str, Any]) -> dict[str, int]:
    """The limits of this request; it can only lower those of the server."""
    if not isinstance(asked, Mapping):
        raise InvalidError("limits are an object", hint=f"its fields are {', '.join(LIMITS)}")
    found: dict[str, int] = {}
    for name, value in asked.items():
        if name not in LIMITS:
            raise InvalidError(
                f"no limit named {name!r}", hint=nearest(name, LIMITS, f"limits are {', '.join(LIMITS)}")
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidError(f"limit {name!r} must be a whole number from 1", detail=f"got {value!r}"[:100])
        setting = LIMITS[name]
        most = client.limits.get(setting) or getattr(client.pool.pond.settings, setting)
        found[setting] = min(value, most) if most else value
    return found
