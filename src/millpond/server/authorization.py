"""What a client may do: one place that every protocol asks before it runs a statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from millpond.errors import InvalidError
from millpond.server.authentication import ServedUser
from millpond.sql.session import SqlSession
from millpond.sql.text.parse import SqlFragment


class NotAllowedError(InvalidError):
    """The user lacks the permission for a statement."""


class Authorizer(Protocol):
    """Decides what users may do."""

    def check(self, user: ServedUser, statement: SqlFragment, session: SqlSession) -> None:
        """Raise NotAllowedError unless the user may run a statement."""

    def rules_now(self) -> object:
        """What decisions depend on: one that `check` made stands while this is the same object."""

    def check_action(self, user: ServedUser, action: str, target: str | None = None) -> None:
        """The same for what is no statement: rescale, rollback, fork, savepoint, insert into a table …"""

    def limits(self, user: ServedUser) -> Mapping[str, int]:
        """The limits of a user, by the names in `access_rules.LIMITS`; one that is absent is none."""


class AllowAll:
    """Every user may do everything: on loopback without users."""

    def check(self, user: ServedUser, statement: SqlFragment, session: SqlSession) -> None:
        pass

    def rules_now(self) -> object:
        return AllowAll

    def check_action(self, user: ServedUser, action: str, target: str | None = None) -> None:
        pass

    def limits(self, user: ServedUser) -> Mapping[str, int]:
        return {}
