"""What every listener is given: the pond, the settings, the statements and the access rules of one server."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from millpond.pond import Pond
from millpond.server.authentication import Authenticator
from millpond.server.authorization import Authorizer
from millpond.server.settings import ServeSettings
from millpond.server.statements import StatementPool


@dataclass(frozen=True)
class Serving:
    pond: Pond
    settings: ServeSettings
    statements: StatementPool
    authenticator: Authenticator
    authorizer: Authorizer
    tls: ssl.SSLContext | None
