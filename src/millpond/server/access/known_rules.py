"""The access rules that a server follows: those of the pond, or those of a file of users."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from millpond.state.access_rules import EVERYTHING, AccessRole, AccessRules


class KnownRules(Protocol):
    """Access rules that may change; equal rules are the same object."""

    def now(self) -> AccessRules: ...

    def hint(self, user: str, privilege: str, target: str) -> str:
        """How a user gets a right that it lacks."""


class FileRules:
    """The rules for the users of a file: administrators may do everything, all others may read all tables."""

    def __init__(self, names: Iterable[str], admins: Collection[str]) -> None:
        users = list(names)
        self._rules = AccessRules(
            {name: AccessRole(login=True, admin=name in admins) for name in users},
            {name: {EVERYTHING: ("SELECT",)} for name in users},
        )

    def now(self) -> AccessRules:
        return self._rules

    def hint(self, user: str, privilege: str, target: str) -> str:
        return f"users of a file may only read; start the server with --admin {user}, or create users by SQL"
