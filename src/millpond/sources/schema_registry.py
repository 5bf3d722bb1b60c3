"""Schemas of a schema registry, by their ids.

A message begins with a zero byte and the id of its schema in four bytes.  The schema of an id never changes,
so a process asks for each once.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from struct import Struct

from millpond.errors import InvalidError
from millpond.masking import masked
from millpond.secret_references import resolved
from millpond.sources.unavailable import away

ANSWER_S = 5.0
HEADER = Struct(">BI")
_known: dict[tuple[str, int], str] = {}


class UnknownSchemaError(Exception):
    """A message names a schema that the registry does not have, or that cannot be used."""


def split_message(message: bytes) -> tuple[int, bytes]:
    """The id of the schema, and the rest of the message; ValueError if it does not begin like this.

    >>> split_message(b"\\0\\0\\0\\0\\7rest")
    (7, b'rest')
    """
    if len(message) < HEADER.size or message[0] != 0:
        raise ValueError("it does not begin with the id of a schema")
    return int(HEADER.unpack_from(message)[1]), message[HEADER.size :]


def schema_by_id(registry: str, number: int) -> str:
    """The text of a schema."""
    key = registry, number
    if key not in _known:
        found = _ask(registry, f"/schemas/ids/{number}")
        if found is None:
            raise UnknownSchemaError(f"the registry has no schema {number}")
        if found.get("references"):
            raise UnknownSchemaError(f"schema {number} refers to others, which is not supported")
        _known[key] = str(found["schema"])
    return _known[key]


def _ask(registry: str, path: str) -> dict[str, object] | None:
    parts = urllib.parse.urlsplit(resolved(registry, lambda value: urllib.parse.quote(value, safe="")))
    if parts.scheme not in ("http", "https"):
        raise InvalidError(
            f"not the address of a schema registry: {masked(registry)!r}", hint="http://host:8081"
        )
    host = parts.hostname or ""
    place = f"{host}:{parts.port}" if parts.port else host
    asked = urllib.request.Request(f"{parts.scheme}://{place}{parts.path.rstrip('/')}{path}")
    if parts.username is not None:
        user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        asked.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    try:
        with urllib.request.urlopen(asked, timeout=ANSWER_S) as answer:
            found: dict[str, object] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        if error.code in (401, 403):
            raise InvalidError(
                "the schema registry refuses the user", detail=f"{place} answered {error.code}"
            ) from None
        raise away("the schema registry does not answer", f"HTTP status {error.code} ({place})") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise away("the schema registry does not answer", f"{str(reason).lower()} ({place})") from None
