"""The users that SQL created: `CREATE USER name PASSWORD '…'`.

Law: a login that fails says the same whether the user exists or not.
"""

from __future__ import annotations

from millpond.clock import Clock, SystemClock
from millpond.password_verifiers import token_digest
from millpond.server.access.cached_rules import CachedRules
from millpond.server.authentication import ServedUser, no_verifier, refused
from millpond.server.scram import ScramVerifier


class PondUsers:
    needs_password = True

    def __init__(self, rules: CachedRules, clock: Clock | None = None) -> None:
        self._rules = rules
        self._clock = clock or SystemClock()

    def verifier(self, name: str) -> ScramVerifier:
        role = self._rules.now().roles.get(name)
        if role is None or not role.login or role.verifier is None:
            return no_verifier(name)
        return ScramVerifier.parse(role.verifier) or no_verifier(name)

    def logged_in(self, name: str) -> ServedUser:
        rules = self._rules.now()
        if name not in rules.roles or not rules.roles[name].login:
            raise refused()
        return ServedUser(name, is_admin=rules.is_admin(name))

    def by_password(self, name: str, password: str) -> ServedUser:
        if not self.verifier(name).matches(password):
            raise refused()
        return self.logged_in(name)

    def by_token(self, token: str) -> ServedUser:
        found = self._rules.now().tokens.get(token_digest(token))
        if found is None or found.expires_us <= self._clock.now_us():
            raise refused()
        return self.logged_in(found.user)
