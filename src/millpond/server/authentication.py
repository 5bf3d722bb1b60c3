"""Who a client is.

Law: a login that fails says the same whether the user exists or not, and costs the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Protocol

from millpond.errors import InvalidError, nearest
from millpond.server.scram import ScramVerifier
from millpond.server.settings import Path


class LoginError(InvalidError):
    """The user name, the password or the token is wrong."""


@dataclass(frozen=True)
class ServedUser:
    """A client that has logged in."""

    name: str
    is_admin: bool = False


class Authenticator(Protocol):
    """Finds out who a client is; one for all protocols of a server."""

    @property
    def needs_password(self) -> bool:
        """Must clients log in?  Without a password every client is who it says it is."""

    def verifier(self, name: str) -> ScramVerifier:
        """What a SCRAM login is checked against; for an unknown user one that no password matches."""

    def logged_in(self, name: str) -> ServedUser:
        """The user after its password was checked, or without one if none is needed."""

    def by_password(self, name: str, password: str) -> ServedUser:
        """Check a password that was sent as it is (over TLS or loopback); raises LoginError."""

    def by_token(self, token: str) -> ServedUser:
        """The user that a token was made for; raises LoginError."""


class LoopbackUsers:
    """Every client on this machine is who it says it is, and may do everything."""

    needs_password = False

    def verifier(self, name: str) -> ScramVerifier:
        return no_verifier(name)

    def logged_in(self, name: str) -> ServedUser:
        return ServedUser(name, is_admin=True)

    def by_password(self, name: str, password: str) -> ServedUser:
        return self.logged_in(name)

    def by_token(self, token: str) -> ServedUser:
        raise refused()


class FileUsers:
    """The users of a file: `name:password` or `name:SCRAM verifier` in each line."""

    needs_password = True

    def __init__(self, verifiers: Mapping[str, ScramVerifier], admins: Collection[str] = ()) -> None:
        self._verifiers = dict(verifiers)
        self._admins = frozenset(admins)

    @property
    def names(self) -> list[str]:
        return list(self._verifiers)

    def verifier(self, name: str) -> ScramVerifier:
        return self._verifiers.get(name) or no_verifier(name)

    def logged_in(self, name: str) -> ServedUser:
        if name not in self._verifiers:
            raise refused()
        return ServedUser(name, is_admin=name in self._admins)

    def by_password(self, name: str, password: str) -> ServedUser:
        if not self.verifier(name).matches(password):
            raise refused()
        return self.logged_in(name)

    def by_token(self, token: str) -> ServedUser:
        raise refused()


def read_users(path: Path, admins: Collection[str] = ()) -> FileUsers:
    """Read a file of users; passwords are turned into verifiers and forgotten."""
    try:
        lines = FilePath(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(
            f"the file of users {str(path)!r} cannot be read", detail=f"{type(error).__name__}: {error}"
        ) from error
    found: dict[str, ScramVerifier] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, separator, secret = line.partition(":")
        name = name.strip()
        if not separator or not name or not secret:
            raise InvalidError(
                f"line {number} of {str(path)!r} names no user",
                hint="each line is name:password, or name:SCRAM-SHA-256$…",
            )
        if name in found:
            raise InvalidError(f"user {name!r} is twice in {str(path)!r}", detail=f"again in line {number}")
        found[name] = ScramVerifier.parse(secret) or ScramVerifier.of_password(secret)
    if not found:
        raise InvalidError(
            f"{str(path)!r} has no users", hint="each line is name:password, or name:SCRAM-SHA-256$…"
        )
    for name in admins:
        if name not in found:
            raise InvalidError(
                f"the administrator {name!r} is no user of {str(path)!r}",
                detail=f"users are {', '.join(found)}",
                hint=nearest(name, found),
            )
    return FileUsers(found, admins)


def refused() -> LoginError:
    return LoginError("the login failed", hint="check the name and the password")


def no_verifier(name: str) -> ScramVerifier:
    """A verifier for a user that does not exist: the same at each try, and no password matches it."""
    salt = hashlib.sha256(b"millpond\0" + name.encode()).digest()[:16]
    return ScramVerifier(4096, salt, bytes(32), bytes(32))
