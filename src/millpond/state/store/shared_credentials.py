"""Passes the credentials of a store to other processes by reference.

Task payloads are logged, spilled and shown by tools, so they must not contain keys.  `by_reference` replaces
all secret options by one option, `credentials`, a random name under which this process knows their values.
Another process gets the values by a way of its engine (`find_with`); Spark distributes a file.

Law: a value leaves this process only through `encoded`, whose caller must keep it private.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from millpond.errors import InvalidError
from millpond.masking import mask_value
from millpond.secret_references import is_reference, resolved

OPTION = "credentials"
# Options that say where and how, not who: these may be logged.
PUBLIC = frozenset(
    {
        "endpoint",
        "region",
        "retries",
        "timeout",
        "connect_timeout",
        "allow_http",
        "virtual_hosted_style_request",
        "skip_signature",
        "cache",
        "cache_bytes",
        "durable",
        "wait_ms",
        OPTION,
    }
)

Found = Mapping[str, Any]
_known: dict[str, Found] = {}
_finders: list[Callable[[str], bytes | None]] = []


def by_reference(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with one reference instead of all secrets; a ``${env:…}`` is a reference already.

    >>> made = by_reference({"region": "eu", "secret_access_key": "xyz-doc"})
    >>> sorted(made), with_values(made)["secret_access_key"]
    (['credentials', 'region'], 'xyz-doc')
    """
    hidden = {name: value for name, value in options.items() if name not in PUBLIC and not _refers(value)}
    if not hidden:
        return dict(options)
    name = next((name for name, known in _known.items() if known == hidden), None)
    if name is None:
        name = secrets.token_hex(8)
        _known[name] = hidden
    return {**{key: value for key, value in options.items() if key not in hidden}, OPTION: name}


def with_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the values that they refer to; InvalidError if this process cannot find them."""
    values = {key: resolved(value) if _refers(value) else value for key, value in options.items()}
    name = values.pop(OPTION, None)
    if name is not None:
        values = {**_found(str(name)), **values}
    return values


def encoded(name: str) -> bytes:
    """The values behind a reference, to be passed privately to another process."""
    return json.dumps({key: str(value) for key, value in _known[name].items()}).encode()


def find_with(finder: Callable[[str], bytes | None]) -> None:
    """Ask this function for the values of references that this process does not know."""
    if finder not in _finders:
        _finders.append(finder)


def _found(name: str) -> Found:
    if name not in _known:
        raw = next((raw for finder in _finders if (raw := finder(name)) is not None), None)
        if raw is None:
            raise InvalidError(
                "the credentials of the store did not reach this process",
                hint="set them in the environment of the executors instead of passing them in store_options",
            )
        _known[name] = json.loads(raw)
        for value in _known[name].values():
            mask_value(value)
    return _known[name]


def _refers(value: object) -> bool:
    return isinstance(value, str) and is_reference(value)
