"""Settings that refer to secrets, which are read when a connection is opened and stored nowhere.

``${env:NAME}`` stands for an environment variable of the process that runs the pond, and ``${file:/path}``
for the content of a file, without the line break at its end.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from millpond.errors import InvalidError

_REFERENCE = re.compile(r"\$\{(?P<kind>\w+):(?P<name>[^}]*)\}")


def resolved(text: str) -> str:
    """A setting with its secrets.

    >>> os.environ["DOC_USER"] = "ann"
    >>> resolved("user=${env:DOC_USER} port=1")
    'user=ann port=1'
    """
    return _REFERENCE.sub(_value, text)


def check_references(text: str) -> None:
    """Refuse a reference of an unknown kind, when a sink is defined."""
    for found in _REFERENCE.finditer(text):
        if found["kind"] not in ("env", "file") or not found["name"]:
            raise InvalidError(
                f"no secret is found by {found[0]}", hint="write ${env:NAME} or ${file:/path/of/the/secret}"
            )


def _value(found: re.Match[str]) -> str:
    check_references(found[0])
    name = found["name"]
    if found["kind"] == "env":
        if name not in os.environ:
            raise InvalidError(
                f"the environment variable {name} is not set",
                hint="set it in the process that runs the pond",
            )
        return os.environ[name]
    try:
        return Path(name).expanduser().read_text().removesuffix("\n")
    except OSError as error:
        raise InvalidError(f"the secret file {name} cannot be read", detail=error.strerror) from error
