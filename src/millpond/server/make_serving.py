"""Makes what the listeners of one process need, from the settings of a server."""

from __future__ import annotations

from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.server.access.cached_rules import CachedRules
from millpond.server.access.granted_access import GrantedAccess
from millpond.server.access.known_rules import FileRules
from millpond.server.access.pond_users import PondUsers
from millpond.server.audit import Audit
from millpond.server.authentication import Authenticator, LoopbackUsers, read_users
from millpond.server.authorization import AllowAll, Authorizer
from millpond.server.pipeline_starter import Pipeline
from millpond.server.serving import Serving
from millpond.server.settings import USERS_OF_POND, ServeSettings
from millpond.server.statements import StatementPool
from millpond.server.tls import tls_context


def make_serving(
    pond: Pond,
    settings: ServeSettings,
    *,
    authenticator: Authenticator | None = None,
    authorizer: Authorizer | None = None,
    pipeline: Pipeline | None = None,
) -> Serving:
    """The users are those of a file, those of the pond, or everybody on this machine."""
    rules = CachedRules(pond.store)
    asked = str(settings.users) == USERS_OF_POND
    if asked and not rules.now().roles:
        raise InvalidError("the pond has no users", hint="CREATE USER name PASSWORD '…' ADMIN")
    if asked or (settings.users is None and rules.now().roles):
        authenticator = authenticator or PondUsers(rules)
        authorizer = authorizer or GrantedAccess(rules)
    elif settings.users is not None and authenticator is None:
        authenticator = read_users(settings.users, settings.admins)
        authorizer = authorizer or GrantedAccess(FileRules(authenticator.names, settings.admins))
    authorizer = authorizer or AllowAll()
    audit = Audit(pond.store, settings.audit_days_max, settings.audit_bytes_max)
    return Serving(
        pond,
        settings,
        StatementPool(pond, settings, authorizer, audit, pipeline),
        authenticator or LoopbackUsers(),
        authorizer,
        tls_context(settings),
    )
