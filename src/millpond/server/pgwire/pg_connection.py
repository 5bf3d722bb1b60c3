"""One connection of a PostgreSQL client: TLS, login, cancel requests, limits of time.

Law: a connection that ends, however it ends, leaves no statement, no session and no cursor behind.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.errors import InvalidError, MillpondError
from millpond.server.authentication import ServedUser
from millpond.server.client_session import ClientSession
from millpond.server.pgwire import messages as m
from millpond.server.pgwire.conversation import Conversation
from millpond.server.pgwire.error_reports import PgError, error_response, notice
from millpond.server.pgwire.login import log_in
from millpond.server.pgwire.quick_reads import QuickReads
from millpond.server.pgwire.session_settings import SessionSettings
from millpond.server.pgwire.statement_runner import StatementRunner
from millpond.server.pgwire.transport import ClientGoneError, PgTransport

if TYPE_CHECKING:
    from millpond.server.pgwire.pg_connections import PgConnections

log = logging.getLogger("millpond.server")
PROTOCOL_MINOR = 0
TURN_MESSAGES = 64  # messages of a pipelining client that are answered before others have their turn
HasPlace = Callable[[], bool]  # does the server have a place for another connection?


class PgConnection:
    """One client."""

    def __init__(
        self, connections: PgConnections, transport: PgTransport, pid: int, has_place: HasPlace
    ) -> None:
        self.connections = connections
        self.transport = transport
        self.pid = pid
        self._has_place = has_place
        self.secret = secrets.token_bytes(4)
        self.runner: StatementRunner | None = None
        self.task: asyncio.Task[None] | None = None
        self.began = datetime.datetime.now(datetime.UTC)

    @property
    def state(self) -> str:
        """What the connection does, in the words of pg_stat_activity."""
        if self.runner is None or self.runner.client.is_running:
            return "active"
        return {"T": "idle in transaction", "E": "idle in transaction (aborted)"}.get(
            self.runner.status, "idle"
        )

    def end(self, reason: str) -> None:
        """End the statement that runs, and the connection; called on the event loop."""
        if self.runner is not None and self.runner.client.is_running:
            self.runner.client.cancel(reason)
            self.transport.stop_reading()
        else:
            self.transport.put(error_response(PgError("57P01", reason), severity="FATAL"))
            self.transport.send()
            if self.task is not None:
                self.task.cancel()

    async def run(self) -> None:
        try:
            await self._serve()
        except (ClientGoneError, ConnectionError, asyncio.CancelledError):
            pass
        except MillpondError as error:
            self.transport.put(error_response(error, severity="FATAL"))
        except Exception as error:  # a bug: it ends this connection, not the server
            log.exception("a connection of the PostgreSQL protocol failed")
            self.transport.put(error_response(error, severity="FATAL"))
        finally:
            if self.runner is not None:
                await self.runner.close()
            self.transport.close()

    async def _serve(self) -> None:
        settings = self.connections.serving.settings
        try:
            async with asyncio.timeout(settings.login_ms_max / 1000):
                startup = await self._startup()
                if startup is None:
                    return
                user = await self._logged_in(startup)
        except TimeoutError:
            raise PgError("57014", "canceling authentication due to timeout") from None
        client = self.connections.serving.statements.client(user, "pg", self.transport.address)
        async with self.connections.place(client):
            await self._converse(startup, client)

    async def _converse(self, startup: m.Startup, client: ClientSession) -> None:
        settings, user = self.connections.serving.settings, client.user
        client.backend_pid = self.pid
        own = SessionSettings(client, user.name, startup.params, user.is_admin)
        if settings.idle_ms_max:
            own.set("idle_session_timeout", str(settings.idle_ms_max))
        runner = self.runner = StatementRunner(client, own, self.connections.catalog, self.connections.shapes)
        self.transport.on_gone = lambda: client.cancel("the client has gone")
        for name, value in own.reported():
            self.transport.put(m.parameter_status(name, value))
        self.transport.put(m.backend_key(self.pid, self.secret))
        for text in own.notices:
            self.transport.put(notice(text))
        self.transport.put(m.ready("I"))
        await self.transport.flush()
        conversation = Conversation(runner, self.transport, self._next)
        quick = QuickReads(conversation)
        bytes_max = self.connections.serving.settings.message_bytes_max
        for number in itertools.count():
            if number % TURN_MESSAGES == 0:
                await asyncio.sleep(0)
            message = self.transport.message_now(bytes_max) or await self._next_command(runner, quick)
            if isinstance(message, m.Terminate):
                return
            await conversation.handle(message)

    async def _next(self) -> m.ClientMessage:
        return await self.transport.message(self.connections.serving.settings.message_bytes_max)

    async def _next_command(self, runner: StatementRunner, quick: QuickReads) -> m.ClientMessage:
        """The next message that `quick` does not answer, within the time that a connection may be idle."""
        own, inside = runner.settings, runner.status != "I"
        limit_ms = own.idle_in_transaction_ms_max if inside else own.idle_ms_max
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_ms / 1000 if limit_ms else None) as deadline:

                def answer(data: bytearray) -> int:
                    taken = quick.answer(data)
                    if taken and limit_ms:
                        deadline.reschedule(loop.time() + limit_ms / 1000)
                    return taken

                self.transport.quick = answer if limit_ms else quick.answer
                return await self._next()
        except TimeoutError:
            if inside:
                raise PgError("25P03", "terminating connection due to idle-in-transaction timeout") from None
            raise PgError("57P05", "terminating connection due to idle-session timeout") from None
        finally:
            self.transport.quick = None

    # -- before the first statement -----------------------------------------------------

    async def _startup(self) -> m.Startup | None:
        """Read the startup message; None after a cancel request."""
        upgraded = False
        for _ in range(3):
            message = await self.transport.startup()
            match message:
                case m.SslRequest():
                    tls = self.connections.serving.tls
                    self.transport.put(b"S" if tls is not None and not upgraded else b"N")
                    await self.transport.flush()
                    if tls is not None and not upgraded:
                        await self.transport.upgrade(tls)
                        upgraded = True
                case m.GssRequest():
                    self.transport.put(b"N")
                    await self.transport.flush()
                case m.CancelRequest():
                    self.connections.cancel(message)
                    return None
                case m.Startup():
                    self._check_version(message)
                    if not self._has_place():
                        raise _too_many(self.connections.serving.settings.connections_max)
                    return message
        raise m.ProtocolError("a startup message is expected")

    def _check_version(self, message: m.Startup) -> None:
        if message.major != 3:
            raise PgError(
                "0A000",
                f"unsupported frontend protocol {message.major}.{message.minor}: server supports 3.0",
            )
        if message.minor > PROTOCOL_MINOR or message.options:
            self.transport.put(m.negotiate_version(PROTOCOL_MINOR, message.options))

    async def _logged_in(self, startup: m.Startup) -> ServedUser:
        name = startup.params.get("user", "")
        if not name:
            raise PgError("28000", "no PostgreSQL user name specified in startup packet")
        if startup.params.get("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise PgError(
                "0A000", "replication connections are not supported", hint="SUBSCRIBE follows a view"
            )
        authenticator, audit = (
            self.connections.serving.authenticator,
            self.connections.serving.statements.audit,
        )
        who = name, "pg", self.transport.address
        if authenticator.needs_password:
            try:
                user = await log_in(authenticator, name, self.transport, self._next)
            except InvalidError as error:
                audit.logged_in(who, error)
                raise
            audit.logged_in(who)
            return user
        user = authenticator.logged_in(name)
        self.transport.put(m.authentication_ok())
        return user


def _too_many(limit: int) -> PgError:
    return PgError(
        "53300",
        "sorry, too many clients already",
        detail=f"the server serves at most {limit} connections",
    )
