"""What a person can do from the dashboard that is no SQL statement: rollback, rescale and fork.

Law: every action asks the authorizer first, and is recorded like a statement.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from millpond.errors import InvalidError, nearest
from millpond.pond import Pond
from millpond.server.authorization import NotAllowedError
from millpond.server.client_session import ClientSession

Fields = Mapping[str, Any]


def _rollback(pond: Pond, fields: Fields) -> str:
    epoch = _epoch(fields)
    pond.rollback(epoch, force=fields.get("force") is True)
    return f"rolled back to epoch {epoch}"


def _rescale(pond: Pond, fields: Fields) -> str:
    count = fields.get("parallelism")
    if isinstance(count, bool) or not isinstance(count, int):
        raise InvalidError("parallelism must be a whole number", detail=f"got {count!r}"[:100])
    pond.rescale(count)
    return f"the next epochs run {count} tasks"


def _savepoint(pond: Pond, fields: Fields) -> str:
    name = _text(fields, "name")
    pond.savepoint(name)
    return f"savepoint {name} is epoch {pond.savepoints()[name]}"


def _drop_savepoint(pond: Pond, fields: Fields) -> str:
    name = _text(fields, "name")
    pond.drop_savepoint(name)
    return f"savepoint {name} was dropped"


def _fork(pond: Pond, fields: Fields) -> str:
    path, epoch = _text(fields, "path"), fields.get("epoch")
    at = pond.fork(path, epoch=None if epoch is None else _epoch(fields))
    return f"{path} is a fork of epoch {at}"


ACTIONS: Mapping[str, Callable[[Pond, Fields], str]] = {
    "rollback": _rollback,
    "rescale": _rescale,
    "savepoint": _savepoint,
    "drop_savepoint": _drop_savepoint,
    "fork": _fork,
}
PERMISSIONS = {name: "savepoint" if name == "drop_savepoint" else name for name in ACTIONS}


def allowed(client: ClientSession) -> dict[str, bool]:
    """Which actions the user may do."""
    found = {}
    for name, permission in PERMISSIONS.items():
        try:
            client.pool.authorizer.check_action(client.user, permission)
            found[name] = True
        except NotAllowedError:
            found[name] = False
    return found


def act(client: ClientSession, name: str, fields: Any) -> str:
    """Do an action for a user, and say what was done."""
    if name not in ACTIONS:
        raise InvalidError(f"no action named {name[:100]!r}", hint=nearest(name, ACTIONS))
    if not isinstance(fields, Mapping):
        raise InvalidError("the body is an object with the fields of the action")
    failed: Exception | None = None
    started = time.perf_counter()
    try:
        client.pool.authorizer.check_action(client.user, PERMISSIONS[name])
        client.pool.pipeline.ensure()
        return ACTIONS[name](client.pool.pond, fields)
    except Exception as error:
        failed = error
        raise
    finally:
        shown = json.dumps({k: v for k, v in fields.items() if v is not None}, default=str)
        client.pool.audit.ran(
            client.who, name.upper(), f"{name} {shown}", failed, time.perf_counter() - started
        )


def _epoch(fields: Fields) -> int | str:
    epoch = fields.get("epoch")
    if isinstance(epoch, bool) or not isinstance(epoch, int | str):
        raise InvalidError("epoch must be a number or the name of a savepoint", detail=f"got {epoch!r}"[:100])
    return epoch


def _text(fields: Fields, name: str) -> str:
    found = fields.get(name)
    if not isinstance(found, str) or not found.strip():
        raise InvalidError(f"{name} must be a text", detail=f"got {found!r}"[:100])
    return found.strip()
