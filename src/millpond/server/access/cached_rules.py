"""The access rules of a pond as a server knows them: read again after a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from millpond.state.access_rules import AccessRules, read_rules
from millpond.state.store.store import Store

FRESH_S = 1.0  # a grant or a revocation takes effect within this time


class CachedRules:
    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._rules: AccessRules | None = None
        self._read_at = 0.0

    def hint(self, user: str, privilege: str, target: str) -> str:
        """How a user gets a right that it lacks."""
        return f"an administrator can GRANT {privilege} ON {target} TO {user}"

    def now(self) -> AccessRules:
        with self._lock:
            at = self._monotonic()
            if self._rules is None or at - self._read_at > FRESH_S:
                read = read_rules(self._store)
                if read != self._rules:  # equal rules stay the same object: decisions made with them stand
                    self._rules = read
                self._read_at = at
            return self._rules
