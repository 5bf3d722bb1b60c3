"""`millpond serve`: serves a pond to clients of other protocols, with or without running its pipeline."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

import millpond
from millpond.cli.arguments import TEXT, OutputOption, PondArgument, TrustOption
from millpond.cli.loading import load, open_for
from millpond.cli.log_lines import LogOption, log_to_stderr
from millpond.cli.output import MessagePart
from millpond.pond import Pond
from millpond.server.server import Server
from millpond.server.settings import ServeSettings

LOOK_S = 0.5  # between two looks at the state of the pipeline


def serve(
    pond: PondArgument,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="FILE", help="Also run this pipeline file here.", show_default=False),
    ] = None,
    pg: Annotated[
        int | None,
        typer.Option("--pg", metavar="PORT", help="Serve the PostgreSQL protocol.", show_default=False),
    ] = None,
    http: Annotated[
        int | None, typer.Option("--http", metavar="PORT", help="Serve HTTP.", show_default=False)
    ] = None,
    flight: Annotated[
        int | None,
        typer.Option("--flight", metavar="PORT", help="Serve Arrow Flight SQL.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    users: Annotated[
        Path | None,
        typer.Option(
            "--users",
            metavar="FILE",
            help="Who may log in: name:password or name:SCRAM verifier in each line.",
            show_default=False,
        ),
    ] = None,
    admins: Annotated[
        list[str] | None,
        typer.Option(
            "--admin",
            metavar="NAME",
            help="A user of that file who may do everything; the others may only read. Repeatable.",
            show_default=False,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="The certificate, in PEM.", show_default=False),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="Its key, in PEM.", show_default=False),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="spark|inline",
            help="The engine, if this process runs the epochs.",
            show_default="spark with --run, else inline",
        ),
    ] = None,
    connections_max: Annotated[
        int, typer.Option("--connections", metavar="N", min=1, help="Connections at the same time.")
    ] = 1000,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            metavar="N",
            min=0,
            help="Processes that serve PostgreSQL clients; 0: this one, which also runs the pipeline.",
        ),
    ] = 0,
    statements_max: Annotated[
        int, typer.Option("--statements", metavar="N", min=1, help="Statements at the same time.")
    ] = 8,
    statement_ms_max: Annotated[
        int,
        typer.Option(
            "--statement-timeout", metavar="MS", min=0, help="Time limit of a statement; 0 is no limit."
        ),
    ] = 0,
    idle_ms_max: Annotated[
        int,
        typer.Option(
            "--idle-timeout", metavar="MS", min=0, help="Close connections idle for this long; 0 is never."
        ),
    ] = 0,
    audit_days_max: Annotated[
        int,
        typer.Option(
            "--audit-days",
            metavar="DAYS",
            min=0,
            help="How long millpond.audit keeps records; 0 is no audit.",
        ),
    ] = 30,
    log: LogOption = None,
    trust: TrustOption = False,
    output: OutputOption = TEXT,
) -> None:
    """Serve a pond: each listener prints its URL; Ctrl-C ends it."""
    log_to_stderr(log)
    settings = ServeSettings(
        host=host,
        pg_port=pg,
        http_port=http,
        flight_port=flight,
        users=users,
        admins=tuple(admins or ()),
        tls_cert=tls_cert,
        tls_key=tls_key,
        connections_max=connections_max,
        processes=processes,
        statements_max=statements_max,
        statement_ms_max=statement_ms_max,
        idle_ms_max=idle_ms_max,
        audit_days_max=audit_days_max,
    )
    with _opened(pond, run, engine, trust) as opened, _ended() as ended:
        if run is not None:
            opened.start()
        with Server(opened, settings) as server:
            for name, url in server.start().items():
                output.write(MessagePart(url, {"listener": name, "url": url}))
            while not ended.wait(LOOK_S):
                if run is not None and not opened.runs_in_background:
                    opened.stop()  # raises what ended it
                    break


def _opened(path: str, run: str | None, engine: str | None, trust: bool) -> Pond:
    if run is not None:
        return open_for(load(run), path, engine, None, trust=trust)
    kind: Any = engine or "inline"
    return millpond.open(path, engine=kind, trust=trust)


@contextlib.contextmanager
def _ended() -> Iterator[threading.Event]:
    """Set when the process is asked to end."""
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        ended.set()

    before = {kind: signal.signal(kind, on_signal) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
