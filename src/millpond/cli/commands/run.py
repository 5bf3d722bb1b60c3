"""`millpond run`: runs a pipeline file until it is stopped, or until its sources are exhausted."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Annotated, Any

import typer

from millpond.cli.arguments import TEXT, ConfOption, MasterOption, OutputOption, TrustOption
from millpond.cli.loading import load, open_for
from millpond.cli.log_lines import LogOption, log_to_stderr
from millpond.cli.output import MessagePart, Screen
from millpond.cli.store_arguments import parse_pairs
from millpond.cli.values import count, milliseconds
from millpond.pond import Pond
from millpond.server.telemetry.traces import configured_traces
from millpond.state.manifest.manifest import Manifest

FORCED = 130  # the exit code after a second Ctrl-C


@dataclass
class RunProgress:
    """The progress of a run."""

    screen: Screen
    pond: Pond
    epochs_max: int | None
    until_idle: bool = False
    started: float = field(default_factory=time.monotonic)
    first: int | None = None
    epoch: int | None = None
    epochs: int = 0
    rows: int = 0
    ended: str | None = None  # why: interrupted, forced, epochs

    def committed(self, manifest: Manifest) -> None:
        self.epoch = manifest.epoch
        if self.first is None:
            self.first = manifest.epoch
        if manifest.kind == "epoch":
            self.epochs += 1
            self.rows += int(manifest.metrics.get("rows", 0))
        self.screen.status(self.line(manifest), self.done())
        if self.epochs_max is not None and self.epochs >= self.epochs_max:
            self.end("epochs")

    def waits_for(self, what: str) -> None:
        if getattr(what, "kind", "holder") == "holder":
            self.screen.waiting(f"standby: {what} runs this pond; waiting until it stops")
        else:
            self.screen.waiting(what)

    def done(self) -> float | None:
        """The fraction of the known input that was processed; None if the sources have no end."""
        if not self.until_idle or not self.rows:
            return None
        return self.rows / (self.rows + self.pond.backlog_rows)

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        self.pond.stop()

    def line(self, manifest: Manifest) -> str:
        took = manifest.metrics.get("ms")
        rows = int(manifest.metrics.get("rows", 0))
        parts = [f"epoch {manifest.epoch}", f"{count(rows)} rows"]
        if took:
            parts += [milliseconds(took), f"{count(round(rows / took * 1000))} rows/s"]
        return ", ".join([*parts, f"{count(self.rows)} rows in all"])


def run(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Python that defines pipeline(pond) or a pond, or SQL.", show_default=False
        ),
    ],
    pond: Annotated[
        str | None,
        typer.Option("--pond", "-p", metavar="POND", help="Path or URI of the pond.", show_default=False),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="spark|inline",
            help="inline runs in this process, without a JVM.",
            show_default="spark",
        ),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option("--parallelism", metavar="N", help="Tasks of each level.", show_default=False),
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="If another process runs the pond, wait and take over from it."),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="If another process runs the pond, take it from that process."),
    ] = False,
    until_idle: Annotated[
        bool,
        typer.Option("--until-idle", "--drain", help="End when the sources have no more rows."),
    ] = False,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", metavar="N", min=1, help="End after this many epochs.", show_default=False),
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace",
            metavar="VIEW",
            help="Rebuild this view, whose definition changed, by a backfill; may be repeated.",
            show_default=False,
        ),
    ] = None,
    backfill: Annotated[
        bool,
        typer.Option(
            "--backfill/--no-backfill",
            help="With --replace: backfill the view, or start it empty with the next rows.",
        ),
    ] = True,
    log: LogOption = None,
    trust: TrustOption = False,
    output: OutputOption = TEXT,
) -> None:
    """Run a pipeline file; Ctrl-C ends it after the current epoch."""
    log_to_stderr(log)
    opened = open_for(
        load(file),
        pond,
        engine,
        parallelism,
        standby,
        trust,
        take_over,
        master=master,
        spark_conf=parse_pairs(conf, "--conf"),
    )
    if replace:
        opened.replace(*replace, backfill=backfill)
    with output.screen() as screen, opened:
        made = RunProgress(screen, opened, epochs, until_idle)
        opened.on_epoch(made.committed)
        opened.on_wait(made.waits_for)
        screen.waiting("starting")
        with traced(opened), interrupts(made), contextlib.suppress(KeyboardInterrupt):
            if until_idle:
                opened.drain()
            else:
                opened.run()
        last = opened.epoch
    why = made.ended or ("idle" if until_idle else "stopped")
    seconds = time.monotonic() - made.started
    reason = {
        "idle": "the sources have no more rows",
        "epochs": f"--epochs {made.epochs} was reached",
        "interrupted": "interrupted; the current epoch was committed",
        "forced": "ended at once; the current epoch was not committed, the next run repeats it",
        "stopped": "stopped",
    }[why]
    facts: dict[str, Any] = {
        "epoch": last,
        "epochs": made.epochs,
        "rows": made.rows,
        "seconds": round(seconds, 3),
        "ended": why,
        "pond": opened.store.uri,
    }
    some = f"{count(made.rows)} rows in {made.epochs} epoch{'s' * (made.epochs != 1)}"
    output.write(MessagePart(f"{some}, now at epoch {last}: {reason}", facts))
    if why == "forced":
        raise typer.Exit(FORCED)


@contextlib.contextmanager
def traced(pond: Pond) -> Iterator[None]:
    """Send a span for each epoch, if an exporter of traces is configured."""
    traces = configured_traces()
    if traces is None:
        yield
        return
    pond.on_epoch(traces.committed)
    try:
        yield
    finally:
        traces.stop()


@contextlib.contextmanager
def interrupts(made: RunProgress) -> Iterator[None]:
    """The first Ctrl-C ends the run after the current epoch; a second one ends it at once.

    Spark installs its own signal handler when it starts, so ours is installed again after the first epoch.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if made.ended is not None:
            made.ended = "forced"
            raise KeyboardInterrupt
        made.screen.say("ending after this epoch; Ctrl-C again to end at once")
        made.end("interrupted")

    before = signal.getsignal(signal.SIGINT)

    def again(manifest: Manifest) -> None:
        if signal.getsignal(signal.SIGINT) is not on_signal:
            signal.signal(signal.SIGINT, on_signal)

    made.pond.on_epoch(again)
    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
