"""Reads and registers schemas of a schema registry.

A message begins with a zero byte and the id of its schema in four bytes.  The schema of an id never changes,
so a process asks for each once.
Registering a schema again returns the id that it has.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from struct import Struct
from typing import Any

from millpond.errors import InvalidError
from millpond.masking import masked
from millpond.secret_references import resolved
from millpond.sources.schema_references import inlined
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
        _known[key] = _with_references(registry, found)
    return _known[key]


def _with_references(registry: str, found: dict[str, Any]) -> str:
    """The text of an Avro schema that contains the schemas to which it refers."""
    text, references = str(found["schema"]), found.get("references") or []
    if not references or found.get("schemaType", "AVRO") != "AVRO":
        return text
    named: dict[str, str] = {}
    for one in references:
        name, subject, version = (one[part] for part in ("name", "subject", "version"))
        other = _ask(registry, f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}")
        if other is None:
            raise UnknownSchemaError(
                f"the registry has no version {version} of {subject!r}, which {name!r} is"
            )
        named[name] = _with_references(registry, other)
    return inlined(text, named)


def register(registry: str, subject: str, schema: str, kind: str) -> int:
    """Register a schema under a subject; returns its id, which is the same when it is registered again."""
    asked = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
    found = _ask(registry, f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", asked)
    if found is None:
        raise InvalidError(f"the schema registry cannot register the schema of {subject!r}")
    return int(found["id"])


def latest(registry: str, subject: str) -> str | None:
    """The newest schema of a subject; None if it has none."""
    found = _ask(registry, f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
    return None if found is None else str(found["schema"])


def _ask(registry: str, path: str, sent: dict[str, str] | None = None) -> dict[str, Any] | None:
    parts = urllib.parse.urlsplit(resolved(registry, lambda value: urllib.parse.quote(value, safe="")))
    if parts.scheme not in ("http", "https"):
        raise InvalidError(
            f"not the address of a schema registry: {masked(registry)!r}", hint="http://host:8081"
        )
    host = parts.hostname or ""
    place = f"{host}:{parts.port}" if parts.port else host
    body = None if sent is None else json.dumps(sent).encode()
    asked = urllib.request.Request(f"{parts.scheme}://{place}{parts.path.rstrip('/')}{path}", body)
    if body is not None:
        asked.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    if parts.username is not None:
        user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        asked.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    try:
        with urllib.request.urlopen(asked, timeout=ANSWER_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        if error.code in (401, 403):
            raise InvalidError(
                "the schema registry refuses the user", detail=f"{place} answered {error.code}"
            ) from None
        if error.code in (409, 422):
            raise InvalidError(
                "the schema registry refuses the schema",
                detail=f"{place} answered {error.code}: {_said(error)}",
                hint="the columns are not compatible with those of the subject; use another topic, or change "
                "the compatibility of the subject",
            ) from None
        raise away("the schema registry does not answer", f"HTTP status {error.code} ({place})") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise away("the schema registry does not answer", f"{str(reason).lower()} ({place})") from None


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])[:500]
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason
