"""The login of a connection by SCRAM-SHA-256."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from millpond.server.authentication import Authenticator, ServedUser
from millpond.server.pgwire import messages as m
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.transport import PgTransport
from millpond.server.scram import MECHANISM, ScramExchange


async def log_in(
    authenticator: Authenticator,
    name: str,
    transport: PgTransport,
    next_message: Callable[[], Awaitable[m.ClientMessage]],
) -> ServedUser:
    """Check the password of a client."""
    transport.put(m.authentication_sasl(MECHANISM))
    await transport.flush()
    first = m.sasl_first((await _password(next_message)).data)
    if first.mechanism != MECHANISM:
        raise PgError(
            "28000", f"the login method {first.mechanism!r} is not offered", hint=f"use {MECHANISM}"
        )
    exchange = ScramExchange(authenticator.verifier(name))
    transport.put(m.authentication_continue(exchange.challenge(m.decoded(first.data))))
    await transport.flush()
    signature = exchange.proof(m.decoded((await _password(next_message)).data))
    if signature is None:
        raise PgError("28P01", f'password authentication failed for user "{name}"')
    user = authenticator.logged_in(name)
    transport.put(m.authentication_final(signature))
    transport.put(m.authentication_ok())
    return user


async def _password(next_message: Callable[[], Awaitable[m.ClientMessage]]) -> m.PasswordBytes:
    message = await next_message()
    if not isinstance(message, m.PasswordBytes):
        raise m.ProtocolError("a password message is expected")
    return message
