"""Finds secrets that a plan would store in clear: settings of sources and sinks that are not references."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from millpond.masking import is_secret_name
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan
from millpond.secret_references import has_reference

_HEADERS = re.compile(r"authorization|proxy-authorization|cookie|x-auth.*", re.IGNORECASE)
_NO_SECRETS = re.compile(r".*(?:username|user|mechanisms?|method|url|client[_.]id)", re.IGNORECASE)
_KEYS = re.compile(r".*\bkey\.pem|.*\bjaas\.config", re.IGNORECASE)
# In connection strings and addresses: password=…, user:password@host
_IN_TEXT = re.compile(r"\bpassword\s*=\s*(?!\$\{)[^\s&;]|://[^:/@\s]*:(?!\$\{)[^@/\s]+@", re.IGNORECASE)


def clear_secrets(plan: Plan) -> list[str]:
    """The settings, each with its step or sink: ``sink 'files': secret_access_key``."""
    scans = {
        f"source {node.step!r}": node.operator.source
        for node in plan.nodes.values()
        if isinstance(node.operator, Scan)
    }
    sinks = {f"sink {name!r}": node.sink for name, node in plan.sinks.items()}
    return [f"{owner}: {name}" for owner, made in (scans | sinks).items() for name in _settings(made)]


def _settings(made: Any) -> Iterator[str]:
    if not dataclasses.is_dataclass(made):
        return
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if isinstance(value, str):
            if _IN_TEXT.search(value):
                yield field.name
        elif dataclasses.is_dataclass(value):  # the source of a source
            yield from _settings(value)
        elif isinstance(value, tuple):
            yield from (str(pair[0]) for pair in value if _is_pair(pair) and _is_clear(*pair))


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _is_clear(name: str, value: str) -> bool:
    """Is this setting a secret, and not a reference to one?

    >>> _is_clear("sasl.password", "hunter2"), _is_clear("sasl.password", "${env:WORD}")
    (True, False)
    >>> _is_clear("sasl.username", "ann"), _is_clear("uri", "http://ann:hunter2@host")
    (False, True)
    """
    is_secret = is_secret_name(name) and not _NO_SECRETS.fullmatch(name)
    if is_secret or _KEYS.fullmatch(name) or _HEADERS.fullmatch(name):
        return bool(value) and not has_reference(value)
    return _IN_TEXT.search(value) is not None
