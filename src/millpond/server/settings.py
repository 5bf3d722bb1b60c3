"""What a server serves, where it listens, and its limits."""

from __future__ import annotations

import difflib
import ipaddress
import os
from dataclasses import dataclass, fields
from typing import Any

from millpond.errors import InvalidError

Path = str | os.PathLike[str]
USERS_OF_POND = "pond"  # instead of a file of users: those that SQL created


@dataclass(frozen=True)
class ServeSettings:
    """The settings of `pond.serve(...)` and `millpond serve`; a port is None where nothing listens.

    >>> ServeSettings(pg_port=0).host
    '127.0.0.1'
    """

    host: str = "127.0.0.1"
    pg_port: int | None = None
    http_port: int | None = None
    flight_port: int | None = None
    users: Path | None = None  # a file with `name:password` or `name:SCRAM verifier` in each line
    admins: tuple[str, ...] = ()  # users of the file that may do everything; the others may only read
    tls_cert: Path | None = None
    tls_key: Path | None = None
    name: str = "pond"  # the database that PostgreSQL clients see
    connections_max: int = 1000
    statements_max: int = 8  # statements that run at the same time; others wait
    statement_ms_max: int = 0  # 0 is no limit
    idle_ms_max: int = 0  # of a connection without a statement; 0 is no limit
    login_ms_max: int = 60_000  # until a connection has logged in
    message_bytes_max: int = 64 << 20
    inbox_entries_max: int = 10_000  # writes over HTTP are refused while more wait for an epoch
    result_rows_max: int = 0  # of one SELECT; 0 is no limit
    audit_days_max: int = 30  # how long `millpond.audit` keeps what clients did; 0 records nothing
    audit_bytes_max: int = 256 << 20
    processes: int = 0  # processes that serve PostgreSQL clients; with 0 this process does
    read_your_writes: bool = True  # a SELECT waits for the epoch with the client's own changes

    def __post_init__(self) -> None:
        for name in ("pg_port", "http_port", "flight_port"):
            port = getattr(self, name)
            if port is not None and (
                isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535
            ):
                raise InvalidError(
                    f"{name} must be a port", detail=f"got {port!r}", hint="0 picks a free one"
                )
        for name in (
            "connections_max",
            "statements_max",
            "statement_ms_max",
            "idle_ms_max",
            "login_ms_max",
            "message_bytes_max",
            "inbox_entries_max",
            "result_rows_max",
            "audit_days_max",
            "audit_bytes_max",
            "processes",
        ):
            value, least = getattr(self, name), 1 if name in _POSITIVE else 0
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidError(f"{name} must be a whole number from {least}", detail=f"got {value!r}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidError("TLS needs both a certificate and a key", hint="pass tls_cert and tls_key")
        if self.admins and (self.users is None or str(self.users) == USERS_OF_POND):
            raise InvalidError(
                "administrators are named only for a file of users",
                hint="for users of the pond: ALTER USER name ADMIN",
            )
        if self.users is None and not is_loopback(self.host):
            raise InvalidError(
                f"without users it listens only on loopback, not on {self.host}",
                hint="pass a file of users, or listen on 127.0.0.1",
            )


def serve_settings(**given: Any) -> ServeSettings:
    """Settings from keyword arguments; unknown names are refused with the closest known one.

    >>> serve_settings(pg_port=0).statements_max
    8
    """
    known = [f.name for f in fields(ServeSettings)]
    for name in given:
        if name not in known:
            matches = difflib.get_close_matches(name, known, 1)
            raise InvalidError(
                f"a server has no setting named {name!r}",
                hint=f"did you mean {matches[0]!r}?" if matches else f"known settings: {', '.join(known)}",
            )
    return ServeSettings(**given)


_POSITIVE = ("connections_max", "statements_max", "login_ms_max", "message_bytes_max", "inbox_entries_max")


def is_loopback(host: str) -> bool:
    """Can only programs on this machine reach an address?

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
