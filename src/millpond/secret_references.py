"""Settings that refer to secrets, which are read when a connection is opened.

| reference | stands for |
|---|---|
| ``${env:NAME}`` | an environment variable of the process that runs the pond |
| ``${file:/path}`` | the content of a file, without the line break at its end |
| ``${secret:name}`` | a secret of the pond: CREATE SECRET (`state.secret_files`) |

Law: only the reference is stored.  A value that was read is masked in every error text from then on.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import quote, unquote

from millpond.errors import InvalidError
from millpond.masking import mask_value

Lookup = Callable[[str], str]  # the value of a pond's secret by its name; InvalidError if there is none

_REFERENCE = re.compile(r"\$\{(?P<kind>\w+):(?P<name>[^}]*)\}")
_PASSWORDS = re.compile(r"\bpassword\s*=\s*(?P<pair>'(?:[^'\\]|\\.)*'|\S+)|://[^:/@\s]*:(?P<uri>[^@/\s]+)@")
_KINDS = ("env", "file", "secret")
_lookup: ContextVar[Lookup | None] = ContextVar("secrets of the pond", default=None)


def reference_to(secret: str) -> str:
    """
    >>> reference_to("pg")
    '${secret:pg}'
    """
    return f"${{secret:{secret}}}"


def resolved(text: str, escaped: Callable[[str], str] = str) -> str:
    """A setting with its secrets; `escaped` quotes a value for the place where it stands.

    >>> os.environ["DOC_USER"] = "ann"
    >>> resolved("user=${env:DOC_USER} port=1")
    'user=ann port=1'
    """
    return _REFERENCE.sub(lambda found: escaped(_value(found)), text)


def resolved_address(address: str) -> str:
    """An address with its secrets, escaped for the form of the address; a whole address stays as it is.

    >>> os.environ["DOC_WORD"] = "a b'c@"
    >>> print(resolved_address("host=db password=${env:DOC_WORD}"))
    host=db password=a\\ b\\'c@
    >>> resolved_address("postgresql://ann:${env:DOC_WORD}@db/shop")
    'postgresql://ann:a%20b%27c%40@db/shop'
    """
    if is_reference(address):
        found = resolved(address)
        for secret in _PASSWORDS.finditer(found):  # a message may repeat a part of the address
            mask_value(unquote(secret["uri"]) if secret["uri"] else secret["pair"].strip("'"))
        return found
    if "://" in address:
        return resolved(address, lambda value: quote(value, safe=""))
    return resolved(address, lambda value: re.sub(r"([\\'\s])", r"\\\1", value))


def check_references(text: str) -> None:
    """Refuse references that no secret can be found by; reads nothing, so plans can be decoded anywhere."""
    for found in _REFERENCE.finditer(text):
        if found["kind"] not in _KINDS or not found["name"]:
            raise InvalidError(
                f"no secret is found by {found[0]}",
                hint="write ${env:NAME}, ${file:/path/of/the/secret} or ${secret:name}",
            )


def require_secrets(text: str) -> None:
    """Refuse a setting of a definition whose secrets the pond does not have."""
    check_references(text)
    for name in names_in(text):
        _read("secret", name)


def is_reference(text: str) -> bool:
    """Is a setting nothing but one reference?

    >>> is_reference("${env:A}"), is_reference("${env:A} ${env:B}")
    (True, False)
    """
    return _REFERENCE.fullmatch(text.strip()) is not None


def has_reference(text: str) -> bool:
    """
    >>> has_reference("Bearer ${env:TOKEN}"), has_reference("Bearer x")
    (True, False)
    """
    return _REFERENCE.search(text) is not None


def names_in(text: str) -> list[str]:
    """The names of the pond's secrets that a setting refers to.

    >>> names_in("password=${secret:pg} user=${env:USER}")
    ['pg']
    """
    return [found["name"] for found in _REFERENCE.finditer(text) if found["kind"] == "secret"]


@contextlib.contextmanager
def secrets_from(lookup: Lookup) -> Iterator[None]:
    """References to secrets are found by this function inside the block, in this thread."""
    before = _lookup.get()
    _lookup.set(lookup)
    try:
        yield
    finally:
        _lookup.set(before)


def _value(found: re.Match[str]) -> str:
    check_references(found[0])
    value = _read(found["kind"], found["name"])
    mask_value(value)
    return value


def _read(kind: str, name: str) -> str:
    if kind == "secret":
        lookup = _lookup.get()
        if lookup is None:
            raise InvalidError(
                f"secret {name!r} cannot be read here",
                detail="only a running pond knows its secrets",
                hint="use ${env:NAME} or ${file:/path} outside of a pond",
            )
        return lookup(name)
    if kind == "env":
        if name not in os.environ:
            raise InvalidError(
                f"the environment variable {name} is not set",
                hint="set it in the process that runs the pond",
            )
        return os.environ[name]
    try:
        return Path(name).expanduser().read_text().removesuffix("\n")
    except (OSError, ValueError) as error:
        raise InvalidError(
            f"the secret file {name} cannot be read", detail=getattr(error, "strerror", None)
        ) from None
