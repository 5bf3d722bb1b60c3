"""The user that an Authorization header names, for HTTP and Flight."""

from __future__ import annotations

import base64
import binascii

from millpond.server.authentication import Authenticator, ServedUser, refused

ANONYMOUS = "anonymous"  # a client on this machine that needs no password


def user_of(authenticator: Authenticator, header: str | None) -> ServedUser:
    """`Basic` has a name and a password, `Bearer` a token; raises LoginError."""
    if not header:
        if authenticator.needs_password:
            raise refused()
        return authenticator.logged_in(ANONYMOUS)
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return authenticator.by_token(rest.strip())
    found = _basic(header)
    if found is None:
        raise refused()
    return authenticator.by_password(*found)


def named_in(header: str) -> str:
    """The name that a header claims, for the audit; empty for a token.

    >>> named_in("Basic " + base64.b64encode(b"ann:secret").decode()), named_in("Bearer abc")
    ('ann', '')
    """
    found = _basic(header)
    return "" if found is None else found[0]


def _basic(header: str) -> tuple[str, str] | None:
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    text = rest.strip()
    text += "=" * (-len(text) % 4)  # Flight clients in Go leave the padding out
    try:
        name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon else None
