"""Who calls: a name and password once, then the token that the server gave for them.

Law: a token is random, is known only to this server, and ends after `TOKEN_S` without use.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any

from pyarrow import flight

from millpond.errors import MillpondError
from millpond.server.audit import Audit
from millpond.server.authentication import Authenticator, ServedUser
from millpond.server.flight.flight_errors import flight_error
from millpond.server.http_credentials import named_in, user_of

TOKEN_S = 8 * 3600.0
TOKENS_MAX = 100_000
NAME = "login"  # of the middleware


class LoginTokens:
    """The tokens of clients that logged in with a password; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[str, tuple[ServedUser, float]] = {}  # with the time at which each ends

    def issue(self, user: ServedUser) -> str:
        token = secrets.token_urlsafe(32)
        now = time.monotonic()
        with self._lock:
            if len(self._users) >= TOKENS_MAX:
                self._users = {t: (u, end) for t, (u, end) in self._users.items() if end > now}
            if len(self._users) >= TOKENS_MAX:
                self._users.pop(next(iter(self._users)))  # the one that was used longest ago
            self._users[token] = (user, now + TOKEN_S)
        return token

    def user(self, token: str) -> ServedUser | None:
        now = time.monotonic()
        with self._lock:
            user, end = self._users.pop(token, (None, 0.0))
            if user is None or end < now:
                return None
            self._users[token] = (user, now + TOKEN_S)
            return user


class Login(flight.ServerMiddleware):  # type: ignore[misc]
    """The user of one call."""

    def __init__(self, user: ServedUser, token: str | None) -> None:
        self.user = user
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {} if self._token is None else {"authorization": f"Bearer {self._token}"}


class LoginFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, authenticator: Authenticator, audit: Audit) -> None:
        self._authenticator = authenticator
        self._audit = audit
        self._tokens = LoginTokens()

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> Login:
        header = next((_text(v[0]) for k, v in headers.items() if k.lower() == "authorization" and v), None)
        scheme, _, rest = (header or "").partition(" ")
        if scheme.lower() == "bearer" and (known := self._tokens.user(rest.strip())) is not None:
            return Login(known, None)
        try:
            user = user_of(self._authenticator, header)
        except MillpondError as error:
            if header:
                self._audit.logged_in((named_in(header), "flight", ""), error)
            raise flight_error(error) from None
        return Login(user, self._tokens.issue(user) if scheme.lower() == "basic" else None)


class OpenHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Answers the handshake of clients that log in by a header: the middleware has checked it."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def is_valid(self, token: bytes) -> bytes:
        return b""


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
