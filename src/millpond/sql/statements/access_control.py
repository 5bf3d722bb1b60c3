"""Users, roles, grants and tokens.

    CREATE USER | ROLE name [PASSWORD '…'] [ADMIN]      ALTER USER name PASSWORD '…' | ADMIN | NOADMIN
    ALTER USER name CONNECTION LIMIT n | SET limit = value | RESET limit | RESET ALL
    DROP USER | ROLE [IF EXISTS] name
    GRANT SELECT, INSERT, UPDATE, DELETE | ALL ON t, v | ALL TABLES TO name
    GRANT CREATE | ADMIN ON POND TO name                GRANT role TO name
    REVOKE … FROM name                                  SHOW GRANTS
    CREATE TOKEN FOR name [EXPIRES IN days]             DROP TOKENS FOR name

Law: a password is turned into a verifier here, and a token into a digest; neither is stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import TokenType

from millpond.arguments.durations import microseconds
from millpond.errors import InvalidError
from millpond.masking import mask_value
from millpond.password_verifiers import token_digest, verifier_text
from millpond.sql.result import Result
from millpond.sql.text.parse import Words
from millpond.state.access_rules import (
    CONNECTIONS,
    EVERYTHING,
    LIMITS,
    POND,
    PRIVILEGES,
    ROWS,
    AccessRole,
    AccessRules,
    AccessToken,
    change_rules,
    read_rules,
)

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

TOKEN_DAYS = 30
DAY_US = 86_400_000_000
KINDS = ("USER", "ROLE")


def create(session: SqlSession, words: Words) -> Result:
    login = words.fragment.word(1) == "USER"
    exists = words.if_not_exists()
    name = words.name("name of the user")
    made = _options(words, AccessRole(login=login))

    def edit(rules: AccessRules) -> AccessRules:
        if name in rules.roles and not exists:
            raise InvalidError(f"there is a user or role named {name!r} already")
        return replace(rules, roles={name: made, **rules.roles})

    change_rules(session.host.store, edit)
    return Result.said(f"CREATE {words.fragment.word(1)}")


def alter(session: SqlSession, words: Words) -> Result:
    name = words.name("name of the user")
    begin = words.at

    def edit(rules: AccessRules) -> AccessRules:
        words.at = begin
        return replace(rules, roles={**rules.roles, name: _options(words, _need(rules, name))})

    change_rules(session.host.store, edit)
    return Result.said(f"ALTER {words.fragment.word(1)}")


def drop(session: SqlSession, words: Words) -> Result:
    exists = words.if_exists()
    name = words.name("name of the user")
    words.end()

    def edit(rules: AccessRules) -> AccessRules:
        if not exists:
            _need(rules, name)
        roles = {
            n: replace(r, member_of=tuple(m for m in r.member_of if m != name))
            for n, r in rules.roles.items()
            if n != name
        }
        tokens = {d: t for d, t in rules.tokens.items() if t.user != name}
        return AccessRules(roles, {r: g for r, g in rules.grants.items() if r != name}, tokens)

    change_rules(session.host.store, edit)
    return Result.said(f"DROP {words.fragment.word(1)}")


def grant(session: SqlSession, words: Words) -> Result:
    _change_grants(session, words, "TO", AccessRules.granted)
    return Result.said("GRANT")


def revoke(session: SqlSession, words: Words) -> Result:
    _change_grants(session, words, "FROM", AccessRules.revoked)
    return Result.said("REVOKE")


def _change_grants(
    session: SqlSession,
    words: Words,
    before_names: str,
    change: Callable[[AccessRules, str, str, set[str]], AccessRules],
) -> None:
    fragment = words.fragment
    if fragment.find("ON") is None:
        _change_members(session, words, before_names)
        return
    privileges: set[str] = set()
    while not words.take("ON"):
        word = fragment.word(words.at)
        if word == "ALL":
            privileges |= set(ROWS)
            words.at += 1
            words.take("PRIVILEGES")
        elif word in PRIVILEGES:
            privileges.add(word)
            words.at += 1
        elif not words.take(","):
            words.fail(f"a privilege should stand here: {', '.join(PRIVILEGES)} or ALL")
    targets = _targets(session, words, privileges, before_names)
    names = _names(words)

    def edit(rules: AccessRules) -> AccessRules:
        for name in names:
            _need(rules, name)
            for target in targets:
                rules = change(rules, name, target, privileges)
        return rules

    change_rules(session.host.store, edit)


def _targets(session: SqlSession, words: Words, privileges: set[str], end: str) -> list[str]:
    whole = privileges & {"CREATE", "ADMIN"}
    if words.take("POND") or words.take("DATABASE"):
        if privileges - whole:
            words.fail("on the pond, CREATE and ADMIN can be granted")
        words.need(end)
        return [POND]
    if whole:
        raise InvalidError(f"{min(whole)} is granted on the pond", hint=f"GRANT {min(whole)} ON POND TO …")
    if words.take("ALL", "TABLES"):
        words.need(end)
        return [EVERYTHING]
    words.take("TABLE")
    found = []
    while True:
        found.append(session.catalog.get(words.name("name of a table or view")).name)
        if not words.take(","):
            break
    words.need(end)
    return found


def _change_members(session: SqlSession, words: Words, before_names: str) -> None:
    role = words.name("name of the role")
    words.need(before_names)
    names = _names(words)

    def edit(rules: AccessRules) -> AccessRules:
        _need(rules, role)
        roles = dict(rules.roles)
        for name in names:
            mine = _need(rules, name)
            others = tuple(m for m in mine.member_of if m != role)
            if before_names == "TO" and name in rules.roles_of(role):
                raise InvalidError(f"{role!r} has the role {name!r} already: they would have each other")
            roles[name] = replace(mine, member_of=(*others, role) if before_names == "TO" else others)
        return replace(rules, roles=roles)

    change_rules(session.host.store, edit)


def create_token(session: SqlSession, words: Words) -> Result:
    words.need("FOR")
    name = words.name("name of the user")
    days = TOKEN_DAYS
    if words.take("EXPIRES", "IN"):
        days = words.number()
        words.take("DAYS")
    words.end()
    token = secrets.token_urlsafe(32)
    until = session.host.clock.now_us() + days * DAY_US

    def edit(rules: AccessRules) -> AccessRules:
        if not _need(rules, name).login:
            raise InvalidError(f"{name!r} is a role: only users have tokens")
        kept = {d: t for d, t in rules.tokens.items() if t.expires_us > session.host.clock.now_us()}
        return replace(rules, tokens={**kept, token_digest(token): AccessToken(name, until)})

    change_rules(session.host.store, edit)
    return Result.of_rows(["token"], ["VARCHAR"], pa.table({"token": [token]}))


def drop_tokens(session: SqlSession, words: Words) -> Result:
    words.need("FOR")
    name = words.name("name of the user")
    words.end()
    change_rules(
        session.host.store,
        lambda rules: replace(rules, tokens={d: t for d, t in rules.tokens.items() if t.user != name}),
    )
    return Result.said("DROP TOKENS")


def show(session: SqlSession, words: Words) -> Result:
    words.end()
    rules = read_rules(session.host.store)
    listed = []
    for name, role in sorted(rules.roles.items()):
        kind = "user" if role.login else "role"
        listed += [(name, kind, "ADMIN", POND)] if role.admin else []
        listed += [(name, kind, "MEMBER", other) for other in role.member_of]
        listed += [
            (name, kind, "LIMIT", f"{limit} = {value}") for limit, value in sorted(role.limits.items())
        ]
        for target, privileges in sorted(rules.grants.get(name, {}).items()):
            listed += [(name, kind, privilege, target) for privilege in privileges]
        if not any(one[0] == name for one in listed):
            listed.append((name, kind, "", ""))
    columns = ["name", "kind", "privilege", "target"]
    table = pa.table({c: pa.array([one[n] for one in listed], pa.string()) for n, c in enumerate(columns)})
    return Result.of_rows(columns, ["VARCHAR"] * 4, table)


def _options(words: Words, role: AccessRole) -> AccessRole:
    words.take("WITH")
    while not words.over:
        if words.take("PASSWORD"):
            token = None if words.over else words.fragment.tokens[words.at]
            if token is None or token.token_type is not TokenType.STRING or not token.text:
                words.fail("the password should stand here, in quotes")
                raise AssertionError
            words.at += 1
            mask_value(token.text)
            role = replace(role, verifier=verifier_text(token.text))
        elif words.take("CONNECTION", "LIMIT"):
            role = _limited(role, CONNECTIONS, words.number())
        elif words.take("SET"):
            limit = _limit_name(words)
            if not words.take("="):
                words.need("TO")
            role = _limited(role, limit, _limit_value(words, limit))
        elif words.take("RESET", "ALL"):
            role = replace(role, limits={})
        elif words.take("RESET"):
            limit = _limit_name(words)
            role = replace(role, limits={n: v for n, v in role.limits.items() if n != limit})
        elif words.take("ADMIN") or words.take("SUPERUSER"):
            role = replace(role, admin=True)
        elif words.take("NOADMIN") or words.take("NOSUPERUSER"):
            role = replace(role, admin=False)
        elif words.take("LOGIN"):
            role = replace(role, login=True)
        elif words.take("NOLOGIN"):
            role = replace(role, login=False)
        else:
            words.fail(
                "this is no option of a user",
                "options are PASSWORD '…', ADMIN, NOADMIN, LOGIN, NOLOGIN, CONNECTION LIMIT n, SET and RESET",
            )
    return role


def _limit_name(words: Words) -> str:
    begin = words.at
    name = words.name("name of the limit").lower()
    if name not in LIMITS:
        words.at = begin
        words.fail(f"there is no limit named {name!r}", f"limits are {', '.join(LIMITS)}")
    return name


def _limit_value(words: Words, limit: str) -> int:
    """A whole number; a time is in milliseconds, or a text such as '5s'."""
    if limit.endswith(("timeout", "_ms_max")) and not words.over:
        token = words.fragment.tokens[words.at]
        if token.token_type is TokenType.STRING and not token.text.isdecimal():
            words.at += 1
            return microseconds(token.text) // 1000
        if token.text.isdecimal():
            words.at += 1
            return int(token.text)
    return words.number()


def _limited(role: AccessRole, limit: str, value: int) -> AccessRole:
    if value < 1:
        raise InvalidError(f"the limit {limit} must be 1 or more", hint=f"RESET {limit} removes it")
    return replace(role, limits={**role.limits, limit: value})


def _names(words: Words) -> list[str]:
    found = [words.name("name of a user or role")]
    while words.take(","):
        found.append(words.name("name of a user or role"))
    words.end()
    return found


def _need(rules: AccessRules, name: str) -> AccessRole:
    if name not in rules.roles:
        raise InvalidError(
            f"there is no user or role named {name!r}",
            detail=f"there are {', '.join(sorted(rules.roles)) or 'none'}",
            hint=f"CREATE USER {name} PASSWORD '…'",
        )
    return rules.roles[name]
