"""Users, roles, grants and tokens of a pond.

    access/<version, 16 digits>   all rules, as one JSON document

Law: rules change as a whole: each change is a new version, put only if nobody else made that version.  No
file contains a password or a token, only verifiers and digests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from millpond.errors import ConflictError, DataError
from millpond.state.store.store import MissingError, Put, Store

PREFIX = "access/"
FORMAT = 1
TRIES = 20
KEPT = 3  # versions; a reader may be reading an older one

POND, EVERYTHING = "pond", "*"  # what privileges can be granted on, besides the names of objects
ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
PRIVILEGES = (*ROWS, "CREATE", "ADMIN")
CONNECTIONS, STATEMENT_MS = "connections", "statement_timeout"
LIMITS = (
    CONNECTIONS,
    STATEMENT_MS,
    "select_rows_max",
    "select_memory_bytes_max",
    "select_spill_bytes_max",
    "select_ms_max",
)


@dataclass(frozen=True)
class AccessRole:
    """A user, who can log in, or a role, which users can have."""

    login: bool = False
    verifier: str | None = None
    admin: bool = False
    member_of: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)  # by the names in LIMITS


@dataclass(frozen=True)
class AccessToken:
    user: str
    expires_us: int


@dataclass(frozen=True)
class AccessRules:
    roles: Mapping[str, AccessRole] = field(default_factory=dict)
    grants: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)  # role, object
    tokens: Mapping[str, AccessToken] = field(default_factory=dict)  # by digest

    def roles_of(self, name: str) -> set[str]:
        """A user or role, and all roles that it has, directly or not.

        >>> rules = AccessRules({"ann": AccessRole(True, member_of=("staff",)), "staff": AccessRole()})
        >>> sorted(rules.roles_of("ann"))
        ['ann', 'staff']
        """
        roles, waiting = set(), [name]
        while waiting:
            one = waiting.pop()
            if one in self.roles and one not in roles:
                roles.add(one)
                waiting += self.roles[one].member_of
        return roles

    def is_admin(self, name: str) -> bool:
        roles = self.roles_of(name)
        return any(self.roles[r].admin for r in roles) or self._granted(roles, POND, "ADMIN")

    def allows(self, name: str, privilege: str, target: str) -> bool:
        """May a user do something with an object, or with the pond?"""
        roles = self.roles_of(name)
        targets = (target,) if target == POND else (target, EVERYTHING)
        return self.is_admin(name) or any(self._granted(roles, one, privilege) for one in targets)

    def limits_of(self, name: str) -> dict[str, int]:
        """The limits of a user: the least of its own and those of its roles.

        >>> staff = AccessRole(limits={"select_rows_max": 100, "connections": 5})
        >>> ann = AccessRole(True, member_of=("staff",), limits={"select_rows_max": 500})
        >>> sorted(AccessRules({"ann": ann, "staff": staff}).limits_of("ann").items())
        [('connections', 5), ('select_rows_max', 100)]
        """
        limits: dict[str, int] = {}
        for role in self.roles_of(name):
            for limit, value in self.roles[role].limits.items():
                limits[limit] = min(value, limits.get(limit, value))
        return limits

    def _granted(self, roles: set[str], target: str, privilege: str) -> bool:
        return any(privilege in self.grants.get(role, {}).get(target, ()) for role in roles)

    def granted(self, role: str, target: str, privileges: set[str]) -> AccessRules:
        return self._with(role, target, set(self.grants.get(role, {}).get(target, ())) | privileges)

    def revoked(self, role: str, target: str, privileges: set[str]) -> AccessRules:
        return self._with(role, target, set(self.grants.get(role, {}).get(target, ())) - privileges)

    def _with(self, role: str, target: str, privileges: set[str]) -> AccessRules:
        mine = {t: p for t, p in self.grants.get(role, {}).items() if t != target}
        if privileges:
            mine[target] = tuple(p for p in PRIVILEGES if p in privileges)
        return replace(self, grants={**self.grants, role: mine})


def read_rules(store: Store) -> AccessRules:
    """The newest rules; a pond without any has no users."""
    return _newest(store)[1]


def has_rules(store: Store) -> bool:
    return bool(read_rules(store).roles)


def _newest(store: Store) -> tuple[int, AccessRules]:
    for _ in range(TRIES):
        names = store.list(PREFIX)
        if not names:
            return -1, AccessRules()
        try:
            return int(names[-1].removeprefix(PREFIX)), _parsed(names[-1], store.get(names[-1]))
        except MissingError:
            continue  # it was collected after a newer version came
    raise ConflictError("the access rules changed several times while they were read", hint="try again")


def change_rules(store: Store, edit: Callable[[AccessRules], AccessRules]) -> None:
    """Replace the rules by edited ones; `edit` is called again if somebody else was first."""
    for _ in range(TRIES):
        version, rules = _newest(store)
        content = {"format": FORMAT, **asdict(edit(rules))}
        if store.put_new(f"{PREFIX}{version + 1:016d}", json.dumps(content).encode()) is Put.WON:
            for name in store.list(PREFIX):
                if int(name.removeprefix(PREFIX)) <= version + 1 - KEPT:
                    store.delete(name)
            return
    raise ConflictError("the access rules were changed several times meanwhile", hint="try again")


def _parsed(name: str, data: bytes) -> AccessRules:
    try:
        rules: dict[str, Any] = json.loads(data)
        if rules["format"] != FORMAT:
            raise ValueError(f"format {rules['format']}")
        return AccessRules(
            {
                n: AccessRole(
                    r["login"],
                    r["verifier"],
                    r["admin"],
                    tuple(r["member_of"]),
                    {limit: int(value) for limit, value in r.get("limits", {}).items()},
                )
                for n, r in rules["roles"].items()
            },
            {r: {t: tuple(p) for t, p in targets.items()} for r, targets in rules["grants"].items()},
            {d: AccessToken(t["user"], int(t["expires_us"])) for d, t in rules["tokens"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise DataError("the access rules cannot be read", detail=f"{name}: {broken}") from broken
