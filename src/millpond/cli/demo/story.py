"""Runs the demo: five acts, each announced in one line.

Every claim is measured or checked here, and the demo fails if a check fails: the views are compared with a
batch query of DuckDB over the same events.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond import delta as deltas
from millpond.cli.arguments import open_reader
from millpond.cli.demo.child import PARALLELISM
from millpond.cli.demo.feed import DemoFeed
from millpond.cli.demo.pipeline import batch, same
from millpond.cli.demo.process import PipelineProcess
from millpond.cli.demo.watch import PondWatcher
from millpond.cli.output import OutputColumn, Screen, TablePart
from millpond.cli.program_name import program
from millpond.cli.values import count
from millpond.control.inbox_sender import InboxSender
from millpond.engine.spark.session import check_java
from millpond.errors import DataError, InternalError, InvalidError
from millpond.pond import EngineName
from millpond.serve.reader import Reader
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.runs import run_names

KILL_AT, WIDE_AT, NARROW_AT = 0.25, 0.55, 0.78  # fractions of the feed after which the acts begin
WIDE, NARROW = 5, 1
KILL_POLL_S = 0.001
LOOK_EVERY_S = 0.2
SHOWN = 5  # of the ten auctions with most revenue


@dataclass
class Stage:
    path: str
    feed: DemoFeed
    screen: Screen
    reader: Reader
    engine: EngineName
    log: Path
    process: PipelineProcess | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def start(self) -> PipelineProcess:
        self.process = PipelineProcess(self.path, self.feed, self.engine, self.log)
        return self.process

    def check(self) -> None:
        if self.process is not None:
            self.process.check()


def play(path: str, feed: DemoFeed, screen: Screen, engine: EngineName = "spark") -> dict[str, Any]:
    """Run all acts; returns the measurements."""
    if engine == "spark":
        check_java()
    reader = open_reader(path)
    if history.read_head(reader.store) is not None:
        raise InvalidError("there is a pond here already", detail=path, hint="give the demo another --path")
    log = Path(f"{path}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    stage = Stage(path, feed, screen, reader, engine, log, facts={"path": path, "events": feed.events})
    started = time.monotonic()
    with screen, left_clean(stage):
        if engine == "spark":
            screen.say(
                f"This takes one to two minutes: events come in for {feed.seconds} s, and Spark starts twice."
            )
        watch = PondWatcher(reader, feed, screen, stage.check)
        run(stage, watch)
        kill_and_recover(stage, watch)
        rescale(stage, watch)
        finish(stage, watch)
        read_the_past(stage, watch)
        stage.facts["seconds"] = round(time.monotonic() - started, 1)
        close(stage)
    return stage.facts


@contextmanager
def left_clean(stage: Stage) -> Iterator[None]:
    try:
        yield
    finally:
        if stage.process is not None:
            stage.process.end()


def run(stage: Stage, watch: PondWatcher) -> None:
    feed = stage.feed
    stage.screen.act(
        f"1. {feed.events:,} auction events come in at {feed.per_second:,} a second; "
        "three views are kept up to date on Spark."
    )
    stage.screen.waiting("Starting Spark in a process of its own")
    process = stage.start()
    watch.until(lambda: process.ready_s is not None)
    assert process.ready_s is not None
    stage.screen.say(
        f"Process {process.pid} runs the pipeline; Spark took {process.ready_s - process.started_s:.1f} s "
        "to start. Every line below is an epoch: one Spark job, one atomic commit."
    )
    watch.until_done(KILL_AT)


def kill_and_recover(stage: Stage, watch: PondWatcher) -> None:
    process = stage.process
    assert process is not None
    stage.screen.act("2. kill -9 in the middle of an epoch, Spark and all. A new process goes on.")
    lost = kill_in_mid_epoch(stage, process, watch)
    killed = time.monotonic()
    head = history.read_head(stage.reader.store)
    if head is None:
        raise InternalError("the pond is gone")
    files = orphans(stage.reader, head)
    stage.screen.say(
        f"Killed process {process.pid} while it wrote epoch {head.epoch + 1}: {len(files)} of its files "
        f"are there, but no manifest names them, so epoch {head.epoch} is the truth."
        if lost
        else f"Killed process {process.pid} right after the commit of epoch {head.epoch}."
    )
    stage.screen.waiting("Starting a new process")
    fresh = stage.start()
    watch.until(lambda: fresh.ready_s is not None)
    assert fresh.ready_s is not None
    stage.screen.waiting("Taking over")
    watch.until_rows_after(head.epoch)
    recovered = time.monotonic()
    stage.facts |= {
        "killed_in_mid_epoch": lost,
        "spark_start_s": round(fresh.ready_s - killed, 2),
        "recovery_s": round(recovered - fresh.ready_s, 2),
    }
    stage.screen.say(
        f"Process {fresh.pid} took over: {fresh.ready_s - killed:.1f} s to start Spark, then "
        f"{recovered - fresh.ready_s:.1f} s to commit new events. No state was loaded: it is mapped."
    )
    watch.until_done(WIDE_AT)


def kill_in_mid_epoch(stage: Stage, process: PipelineProcess, watch: PondWatcher) -> bool:
    """Kill it when files of an epoch are written but its manifest is not; returns whether that worked."""
    looked = time.monotonic()
    while True:
        head = history.read_head(stage.reader.store)
        if head is not None and orphans(stage.reader, head):
            process.kill()
            return history.find_manifest(stage.reader.store, head.epoch + 1) is None
        if time.monotonic() - looked > LOOK_EVERY_S:
            watch.look()
            looked = time.monotonic()
        process.check()
        time.sleep(KILL_POLL_S)


def orphans(reader: Reader, head: Manifest) -> list[str]:
    """Files of the epoch after the head, except those of background merges."""
    after = run_names.epoch_prefix(head.token, head.epoch + 1)
    found = reader.store.list(run_names.token_prefix(head.token), after=after)
    return [name for name in found if not run_names.is_merge(name)]


def rescale(stage: Stage, watch: PondWatcher) -> None:
    stage.screen.act(
        f"3. From {PARALLELISM} tasks to {WIDE}, then to {NARROW}, while it runs: no state is moved, "
        "a task has no home."
    )
    for tasks, next_at in ((WIDE, NARROW_AT), (NARROW, 1.0)):
        sent = InboxSender(stage.reader.store).send("rescale", {"parallelism": tasks}, wait_s=0)
        stage.screen.waiting(f"Sent, as `{program()} rescale {shlex.quote(stage.path)} {tasks}` would")
        watch.until_taken(sent.number)
        stage.screen.say(f"The pipeline took it; the next epochs have {tasks} to a level.")
        watch.until_done(next_at)
    ran = [m for m in watch.seen if m.metrics.get("tasks")]
    stage.facts["epochs_by_tasks"] = {
        n: sum(m.parallelism == n for m in ran) for n in (PARALLELISM, WIDE, NARROW)
    }


def finish(stage: Stage, watch: PondWatcher) -> None:
    assert stage.process is not None
    watch.until_done(1.0)
    stage.screen.waiting("Stopping the pipeline")
    stage.process.stop()
    watch.look()
    stage.screen.act(
        "Was anything lost or counted twice? DuckDB answers the same queries over all events at once."
    )
    assert watch.head is not None
    compare(stage, watch.head)
    takeovers = sum(m.kind == "takeover" for m in watch.seen)
    stage.facts |= {"epochs": watch.head.epoch, "takeovers": takeovers}


def compare(stage: Stage, manifest: Manifest) -> None:
    """Compare every view of an epoch with the batch query over exactly its events."""
    expected = batch(stage.feed, manifest)
    rows = {}
    for view, wanted in expected.items():
        ours = stage.reader.read(view, epoch=manifest.epoch)
        rows[view] = ours.num_rows
        if not same(ours, wanted):
            stage.screen.say(f"{view} differs from the batch query at epoch {manifest.epoch}", good=False)
            raise DataError(
                f"view {view!r} differs from the batch query",
                detail=f"{ours.num_rows} rows, the batch has {wanted.num_rows}",
                hint=f"keep {stage.path} and report it: this must never happen",
                epoch=manifest.epoch,
            )
    stage.facts.setdefault("checked", {})[manifest.epoch] = rows
    sizes = ", ".join(f"{view} {n:,} rows" for view, n in rows.items())
    events = stage.feed.done(manifest.positions)
    stage.screen.say(f"epoch {manifest.epoch}, {events:,} events: {sizes}; all equal", good=True)


def read_the_past(stage: Stage, watch: PondWatcher) -> None:
    stage.screen.act(
        "4. A read in the past: every epoch is still there, and was exact when it was committed."
    )
    ran = [m for m in watch.seen if m.metrics.get("tasks")]
    old, new = ran[len(ran) // 4], watch.seen[-1]
    compare(stage, old)
    stage.screen.show(then_and_now(stage.reader, old.epoch, new.epoch))
    difference = stage.reader.diff("auction_bids", old.epoch, new.epoch)
    weights = deltas.weights(difference)
    came, went = int(weights[weights > 0].sum()), -int(weights[weights < 0].sum())
    stage.facts["diff"] = {"from": old.epoch, "to": new.epoch, "came": came, "went": went}
    before = with_weight(stage.reader.read("auction_bids", epoch=old.epoch))
    after = deltas.consolidate(deltas.concat([before, difference])).drop_columns(["_w"])
    whole = same(after, stage.reader.read("auction_bids", epoch=new.epoch))
    stage.screen.say(
        f"auction_bids, epoch {old.epoch} to {new.epoch}: {came:,} rows came, {went:,} went; "
        "then + difference = now",
        good=whole,
    )
    if not whole:
        raise DataError("a difference does not lead from then to now", epoch=new.epoch)


def then_and_now(reader: Reader, old: int, new: int) -> TablePart:
    """The auctions with most revenue at two epochs, side by side."""
    rows: list[dict[str, Any]] = [{"rank": n + 1} for n in range(SHOWN)]
    for when, epoch in (("then", old), ("now", new)):
        top = reader.read("top_auctions", epoch=epoch).sort_by([("revenue", "descending")])
        for row, found in zip(rows, top.to_pylist(), strict=False):
            row |= {f"auction_{when}": found["auction"], f"revenue_{when}": found["revenue"]}
    columns = [OutputColumn("rank", right=True)]
    for when, epoch in (("then", old), ("now", new)):
        columns += [
            OutputColumn(f"auction_{when}", f"auction at epoch {epoch}", right=True),
            OutputColumn(f"revenue_{when}", "revenue", count, right=True),
        ]
    return TablePart("top_auctions", columns, rows)


def with_weight(rows: pa.Table) -> pa.Table:
    return rows.append_column("_w", pa.array([1] * rows.num_rows, pa.int64()))


def close(stage: Stage) -> None:
    path = shlex.quote(stage.path)
    stage.screen.act(f"5. The pond is in {stage.path} and stays there. Three things to try:")
    for command in ("epochs {}", "read {} category_prices --epoch 5", "explain {}"):
        stage.screen.say(f"{program()} {command.format(path)}")
