"""The public face: `open` and `Pond`.

A pond is a folder (or a bucket): its manifests, runs, catalog and inbox.  A
`Pond` object defines a pipeline over it, runs it, and reads it; any number of
other processes may read and write rows and commands at the same time.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import logging
import math
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from millpond.clock import Clock, SystemClock
from millpond.control import lease
from millpond.control.admission import Bounds
from millpond.engine import watermarks
from millpond.engine.backfill import OnProgress, Progress
from millpond.engine.bootstrap import Rows, bootstrap
from millpond.engine.changer import Changer
from millpond.engine.coordinator import CHANGED_MEANWHILE, Coordinator, Policy, require_parallelism
from millpond.engine.engine import Engine
from millpond.engine.filling import progress_of
from millpond.engine.inline import InlineEngine
from millpond.engine.lives import tables_of
from millpond.engine.migration import Functions, asked_for, migrate, plan_moves, state_table
from millpond.engine.programs import program_of, save_plan
from millpond.engine.protocol import Rewrite
from millpond.engine.rewrite import Rewriter
from millpond.engine.runner import Runner
from millpond.engine.shell import Shell
from millpond.engine.watching import OnError, OnInput
from millpond.engine.worker import Worker
from millpond.errors import ConflictError, InternalError, InvalidError, MillpondError, UnavailableError
from millpond.flow.builder import Builder
from millpond.flow.durations import Duration
from millpond.flow.schemas import Like, schema_of
from millpond.flow.stream import Stream, ViewHandle
from millpond.operators.bag import Bag
from millpond.operators.duck import quoted
from millpond.operators.scan import Scan
from millpond.operators.upsert import Upsert
from millpond.plan.backfill import backfill_plan
from millpond.plan.change import check_whole, plan_change, renamed, restored, swapped, without_views
from millpond.plan.compatible import check_compatible, fed_by_what_was_read
from millpond.plan.evolution import known_tables
from millpond.plan.explain import explain_text, mermaid
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.serve.moment import Moment
from millpond.serve.reader import Delta, Reader
from millpond.serve.replay import Replay
from millpond.serve.replay import replay as run_again
from millpond.serve.states import StateInfo
from millpond.serve.summaries import EpochSummary, summaries
from millpond.settings import Settings, make_settings
from millpond.sources.inbox_table import ROWS_MAX, SEQUENCE, InboxTable
from millpond.state import history, inbox
from millpond.state.fork import fork as make_fork
from millpond.state.manifest import Manifest
from millpond.state.store import Store, open_store, prove_put_new

if TYPE_CHECKING:
    from millpond.sql.parameters import Params
    from millpond.sql.result import Result
    from millpond.sql.session import Session

EngineName = Literal["spark", "inline"]
log = logging.getLogger(__name__)
DRAIN_S = 600.0  # how long a call waits for the background thread


def open(  # the name people type: millpond.open(...)
    path: str | os.PathLike[str],
    engine: EngineName = "spark",
    spark: Any = None,
    parallelism: int | None = None,
    *,
    clock: Clock | None = None,
    on_epoch: Callable[[Manifest], None] | None = None,
    standby: bool = False,
    store_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Pond:
    """Open a pond, or make one.  Nothing runs and no Spark starts before it is needed.

    `engine="inline"` runs everything in this process, without a JVM.  `spark` takes your own
    session.  With `standby` the first drain(), start() or run() waits for a running pipeline, and takes
    over when it falls silent.
    `path` may be a uri such as ``s3://bucket/pond``; `store_options` are then its endpoint, region and
    the like.  `settings` are the fields of `millpond.settings.Settings`.
    """
    if engine not in ("spark", "inline"):
        raise InvalidError(f"no engine named {engine!r}", hint='"spark" or "inline"')
    if parallelism is not None:
        require_parallelism(parallelism)
    chosen = make_settings(**settings)
    uri = _uri(path)
    options = _store_options(uri, chosen, store_options or {})
    store = open_store(uri, **options)
    return Pond(
        store,
        engine=engine,
        spark=spark,
        parallelism=parallelism,
        settings=chosen,
        clock=clock or SystemClock(),
        on_epoch=on_epoch,
        standby=standby,
        store_options=options,
    )


def _uri(path: str | os.PathLike[str]) -> str:
    return str(path) if "://" in str(path) else Path(path).expanduser().absolute().as_uri()


def _store_options(uri: str, settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """A local folder is synced as the settings say; a remote store gets a local disk cache."""
    if uri.startswith("file:"):
        return {"durable": settings.durable, **given}
    if uri.startswith("memory:"):
        return dict(given)
    name = hashlib.blake2b(uri.encode(), digest_size=8).hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millpond" / name
    return {"cache": str(folder), "cache_bytes": settings.cache_bytes, **given}


class Pond:
    """See the module's text; made by `millpond.open`."""

    def __init__(
        self,
        store: Store,
        *,
        engine: EngineName | Engine,
        spark: Any = None,
        parallelism: int | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        on_epoch: Callable[[Manifest], None] | None = None,
        standby: bool = False,
        store_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.settings = settings or Settings()
        self._engine_name = engine
        self._engine: Engine | None = None
        self._spark = spark
        self._parallelism = parallelism
        self._clock = clock or SystemClock()
        self._on_epoch = on_epoch
        self._standby = standby
        self._options = dict(store_options or {})
        self._worker = Worker(store)
        self._builder = Builder()
        self._runner: Runner | None = None
        self._keeper: lease.Keeper | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._closed = False
        self._told: dict[str, int] = {}  # errors/<step> -> error rows that need not be told on the log
        self._lock = threading.RLock()  # of whoever drives the chain in the foreground
        self._driver: int | None = None  # the thread that is doing so
        self._progress: Progress | None = None
        self._session: Session | None = None
        self._on_progress: OnProgress | None = None
        self._reader = Reader(self._worker, clock=self._clock, reader_ms=self.settings.reader_ms)

    def __enter__(self) -> Pond:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- defining -------------------------------------------------------------------

    def stream(self, name: str, source: Any, *, event_time: str | None = None, delay: Duration = 0) -> Stream:
        """Rows of a source; with `event_time`, rows more than `delay` behind the newest are late."""
        if hasattr(source, "staged"):
            source = source.staged(self._folder(name), name)
        step = self._builder.add(name, Scan(source, source.schema, source.append_only), (), name)
        if not source.append_only:
            step = self._builder.add(None, Bag(), (step,), f"{name}.rows")
        stream = Stream(self._builder, step)
        return stream if event_time is None else stream.watermark(event_time, delay, id=f"{name}.watermark")

    def table(self, name: str, schema: Like, *, key: str | Sequence[str] | None = None) -> ViewHandle:
        """A table that any process can change with insert() and delete(); with a key, insert() replaces."""
        source = InboxTable(schema_of(schema, step=name))
        scan = self._builder.add(name, Scan(source, source.schema, False), (), name)
        if key is None:
            step = self._builder.add(None, Bag(SEQUENCE), (scan,), f"{name}.rows")
        else:
            columns = (key,) if isinstance(key, str) else tuple(key)
            step = self._builder.add(None, Upsert(columns, SEQUENCE), (scan,), f"{name}.rows")
        return Stream(self._builder, step).view(name)

    def stream_of(self, name: str) -> Stream:
        """What has this name, in SQL or here, to go on from: a table, a source or a materialized view."""
        from millpond.sql.catalog import Catalog

        found = Catalog(self.plan).get(name, "table", "source", "materialized view")
        assert found.step is not None
        stream = Stream(self._builder, found.step)
        called = [(c.name, c.held) for c in found.columns]
        if all(shown == held for shown, held in called):
            return stream
        return stream.select(**{shown: quoted(held) for shown, held in called})

    @property
    def plan(self) -> Plan:
        """What this process runs or defined, or else what the pond was last run with."""
        if self._builder.plan.nodes:
            return self._builder.plan
        runner = self._runner
        if runner is not None:
            return runner.shell.plan
        head = history.read_head(self.store)
        return Plan() if head is None else self._reader.plan_of(head)

    def explain(self, format: Literal["text", "mermaid"] = "text") -> str:
        """The plan with its levels, exchanges and state tables, as text or as a drawing."""
        plan = self.plan
        return mermaid(plan, cut(plan)) if format == "mermaid" else explain_text(plan, cut(plan))

    def sql(self, text: str, *, params: Params = None, dialect: str = "postgres") -> Result:
        """Run one or several statements; what the last one answers.

        Definitions are committed, and changes durable, when this returns.  Parameters (`?`, `$1`, `:name`)
        are values and never become part of the text.

        >>> pond = open("memory://", engine="inline")
        >>> _ = pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 2); FLUSH")
        >>> pond.sql("SELECT n FROM t WHERE id = ?", params=[1]).fetchall()
        [(2,)]
        """
        return self.session.run(text, params, dialect)

    def function(
        self,
        name: Any = None,
        function: Any = None,
        /,
        *,
        returns: Any = None,
        arguments: Any = None,
        kind: Literal["scalar", "aggregate", "table"] | None = None,
        vectorised: bool = False,
        nulls: bool = False,
        init: Callable[[], Any] | None = None,
        accumulate: Callable[..., Any] | None = None,
        retract: Callable[..., Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Let SQL call a Python function; the function itself, so that this can be a decorator.

        Types come from hints, or from `arguments` and `returns`: Python types, Arrow types or SQL's names.
        A generator is a table function, a class with accumulate() and finish() an aggregate.  A vectorised
        function takes and gives Arrow arrays.  With `nulls` it is called when an argument is NULL, too.

        >>> pond = open("memory://", engine="inline")
        >>> @pond.function
        ... def shout(text: str, times: int = 1) -> str:
        ...     return text.upper() + "!" * times
        >>> _ = pond.sql("CREATE TABLE t (s text); INSERT INTO t VALUES ('ann'); FLUSH")
        >>> pond.sql("SELECT shout(s, 2) FROM t").fetchall()
        [('ANN!!',)]
        """
        from millpond.operators.python_function import Steps
        from millpond.sql.python_functions import Registered, register

        if function is None and accumulate is not None and finish is not None and init is not None:
            function, kind = Steps(init, accumulate, finish, retract), kind or "aggregate"
        elif any(part is not None for part in (init, accumulate, retract, finish)):
            raise InvalidError(
                "an aggregate of functions needs init, accumulate and finish",
                hint="pass these three, and retract if there is one; or a class that has them",
            )
        if function is None and callable(name):
            name, function = name.__name__, name

        def made(given: Any) -> Any:
            called = name if name is not None else given.__name__
            register(self.session, Registered(called, given, returns, arguments, kind, vectorised, nulls))
            return given

        return made if function is None else made(function)

    @property
    def session(self) -> Session:
        """Where statements run, one after the other."""
        if self._session is None:
            from millpond.sql.session import Session  # SQL is loaded where it is used

            self._session = Session(self)
        return self._session

    # -- changing the program -----------------------------------------------------------

    def change(self, plan: Plan, *, on_progress: OnProgress | None = None, base: str | None = None) -> int:
        """Go on with another plan, while it runs; the epoch that holds it.

        Steps that are new are filled from what the pond holds, and those that are not in it any more go, in
        one commit: from that epoch on every view is what it would be, had it been there from the beginning.
        Steps that stay must mean what they meant.  `on_progress` is called while rows are taken in.

        From `on_epoch` this returns at once, and the change comes after the epoch that is running.  Where
        another process runs the pond, that one does it, and is waited for.  With `base`, the catalog of the
        program that the plan was made of, it is refused when somebody else changed the program meanwhile.
        """
        check_whole(plan)
        self._require_open()
        self._check()
        self._wait_for_fill()
        if self._runner is None:
            if history.read_head(self.store) is None:
                self._builder.reopen(plan)
                return self._boot_now()
            if self._written_elsewhere() is None:
                self._boot_now()
        runner = self._runner
        running = self._reader.plan_of(self._reader.head()) if runner is None else runner.shell.plan
        change = plan_change(running, plan)
        backfill_plan(running, change.plan, change.new, self._reader.head().positions)
        self._on_progress = on_progress
        try:
            return self._change_to(save_plan(self._worker, change.plan), base)
        finally:
            self._on_progress = None

    def _change_to(self, catalog: str, base: str | None) -> int:
        args = {"catalog": catalog} if base is None else {"catalog": catalog, "base": base}
        number = self._command("change", args, wait_s=math.inf, done=self._is_changed)
        if self._runner is None:  # another process does it
            self._wait_until(lambda: self._told_of(number), math.inf, f"inbox entry {number}")
        elif not self._is_changed(number):
            if threading.get_ident() not in (self._driver, getattr(self._thread, "ident", None)):
                raise UnavailableError(
                    "the pond was stopped before its program changed",
                    hint="nothing is lost: it changes when the pond runs again",
                )
            return self._reader.head().epoch  # from on_epoch
        epoch, refused = self._epoch_of_entry(number)
        if refused is not None:
            kind = ConflictError if CHANGED_MEANWHILE in refused else InvalidError
            raise kind("the program was not changed", detail=refused, epoch=epoch)
        return epoch

    def _is_changed(self, number: int) -> bool:
        """Is a change of the program done, or refused; and not what is being filled now?"""
        head = self._reader.head()
        filling = head.filling is not None and head.filling.entry == number
        return int(head.positions.get("inbox", 0)) > number and not filling

    def _told_of(self, number: int) -> bool:
        """The same, where another process does it: how far it is stands in the manifests."""
        fill = self._reader.head().filling
        if fill is not None and fill.entry == number and self._on_progress is not None:
            self._on_progress(progress_of(fill))
        return self._is_changed(number)

    def _wait_for_fill(self) -> None:
        """Programs change one after the other: until what is being filled is there."""
        head = history.read_head(self.store)
        me = threading.get_ident()
        if head is None or head.filling is None or me in (self._driver, getattr(self._thread, "ident", None)):
            return

        def is_over() -> bool:
            head = history.read_head(self.store)
            return head is None or head.filling is None

        if self._thread is None and (self._runner is not None or self._written_elsewhere() is None):
            self._drive(is_over)
        else:
            self._wait_until(is_over, math.inf, "what is being filled")

    def _epoch_of_entry(self, number: int) -> tuple[int, str | None]:
        """The epoch that executed an inbox entry, and why it was refused, if it was."""
        head = self._reader.head()
        while head.epoch > head.floor:
            before = history.find_manifest(self.store, head.epoch - 1)
            if before is None or int(before.positions.get("inbox", 0)) <= number:
                break
            if before.filling is not None and before.filling.entry == number:
                break  # it took long, and was ended here
            head = before
        return head.epoch, head.metrics.get("refused")

    def _boot_now(self) -> int:
        with self._turn() as runner:
            assert runner.coordinator.head is not None
            return runner.coordinator.head.epoch

    @contextlib.contextmanager
    def changing(self, *, on_progress: OnProgress | None = None) -> Iterator[Pond]:
        """Define more, and drop views, while the pond runs; all of it holds from one epoch on.

        The block's end is where it is done; an exception inside leaves all as it was.

        >>> pond = open("memory://", engine="inline")
        >>> orders = pond.table("orders", pa.schema([("who", pa.string()), ("n", pa.int64())]))
        >>> pond.insert("orders", [{"who": "ann", "n": 2}, {"who": "ann", "n": 3}])
        0
        >>> _ = pond.drain()
        >>> with pond.changing():
        ...     _ = orders.key_by("who").aggregate(total="sum(n)").view("totals")
        >>> pond.read("totals").to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        self._wait_for_fill()
        builder = self._builder
        before, sealed = builder.plan, builder.sealed
        builder.reopen(self.plan)
        try:
            yield self
            wanted = builder.plan
        except BaseException:
            builder.reopen(before)
            if sealed:
                builder.seal()
            raise
        if not sealed and history.read_head(self.store) is None:
            return  # nothing runs yet: these are definitions like any other
        builder.reopen(before)
        if sealed:
            builder.seal()
        self.change(wanted, on_progress=on_progress)

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Drop a view and the steps that only it needs; refused when others use it, unless they go too."""
        self._edit(lambda plan: without_views(plan, [name], cascade=cascade))

    def rename_view(self, name: str, to: str) -> None:
        """Give a view another name, in one commit; its sinks follow it."""
        self._edit(lambda plan: renamed(plan, name, to))

    def swap_views(self, one: str, other: str) -> None:
        """Give two views each other's name, in one commit; sinks stay with the name they read."""
        self._edit(lambda plan: swapped(plan, one, other))

    def _edit(self, edit: Callable[[Plan], Plan]) -> None:
        """At once, or together with the rest inside of `changing()`."""
        if self._builder.plan.nodes and not self._builder.sealed:
            self._builder.change(edit)
        else:
            self._wait_for_fill()
            self.change(edit(self.plan))

    @property
    def progress(self) -> Progress | None:
        """How far the backfill is that is running, if one is."""
        return self._progress

    def _progressed(self, progress: Progress) -> None:
        self._progress = progress
        if self._on_progress is not None:
            self._on_progress(progress)

    # -- running -----------------------------------------------------------------------

    def drain(self) -> int:
        """Run epochs until the sources have nothing more to give; the epoch that holds it all.

        A sink that fails does not stop it: its error is raised at the end, and it goes on from there.
        stop(), from a signal handler or another thread, ends it after the epoch that is running.
        """
        if self._thread is not None:
            runner = self._running()
            polls = runner.idle_polls
            self._wait_until(lambda: runner.idle_polls >= polls + 2 and runner.quiet, DRAIN_S, "a drain")
            self._raise_failed_sinks(runner)
            return self._reader.head().epoch
        self._stop.clear()
        with self._turn() as runner:
            runner.drain(until=self._stop.is_set)
            self._raise_failed_sinks(runner)
            assert runner.coordinator.head is not None
            return runner.coordinator.head.epoch

    def start(self) -> None:
        """Run in the background until stop()."""
        with self._lock:
            if self._thread is not None and self._failure is None:
                return
            self.stop()
            runner = self._boot()
            self._stop.clear()
            self._thread = threading.Thread(
                target=self._background, args=(runner,), name="millpond-chain", daemon=True
            )
            self._thread.start()

    def _background(self, runner: Runner) -> None:
        try:
            runner.run(self._stop, self.settings.poll_ms)
        except BaseException as error:  # kept, and raised by the next call into the pond
            self._failure = error
            self._give_up(error)

    def stop(self) -> None:
        """Stop after the epoch that is running; raises what went wrong, if anything did."""
        thread = self._thread
        self._stop.set()
        if self._runner is not None:
            self._runner.wake()
        if thread is not None:
            if thread is threading.current_thread():  # from on_epoch: it ends when that returns
                return
            thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            _raise(failure)

    def run(self) -> None:
        """Run in the foreground until interrupted."""
        if self._thread is not None:
            raise InvalidError("the pipeline runs in the background already", hint="stop() it first")
        self._stop.clear()
        try:
            with self._turn() as runner:
                runner.run(self._stop, self.settings.poll_ms)
        except KeyboardInterrupt:
            return

    def close(self) -> None:
        """Stop, release the lease and what was started for this pond."""
        if self._closed:
            return
        self._closed = True
        try:
            self.stop()
        finally:
            if self._runner is not None:
                self._runner.close()
            self._reader.close()
            if self._keeper is not None:
                self._keeper.release()
            if self._engine is not None:
                self._engine.close()

    def on_epoch(self, function: Callable[[Manifest], None]) -> None:
        """Call a function with every epoch that this process commits, after those given before."""
        self._on_epoch = function if self._on_epoch is None else _both(self._on_epoch, function)

    @property
    def backlog_rows(self) -> int:
        """Rows that the sources of this running pipeline told of and that no epoch has taken yet."""
        runner = self._runner
        return 0 if runner is None else runner.coordinator.backlog_rows

    def rescale(self, n: int) -> None:
        """Change the parallelism of the next epochs, while it runs, without moving state."""
        require_parallelism(n)
        self._command("rescale", {"parallelism": n})

    def savepoint(self, name: str) -> None:
        """Name the newest epoch; it stays readable until the name is dropped."""
        self._command("savepoint", {"name": name})

    def drop_savepoint(self, name: str) -> None:
        self._command("drop_savepoint", {"name": name})

    def rollback(self, epoch: int | str) -> None:
        """Go back to an older epoch by a forward commit: state, offsets and watermarks."""
        head = self._reader.head()
        wanted = self._reader._resolve(head, epoch)
        if wanted < head.floor and wanted not in head.savepoints.values():
            raise InvalidError(f"epoch {wanted} is no longer kept", detail=f"the floor is {head.floor}")
        self._check_rollback(head, wanted)
        self._command("rollback", {"epoch": wanted})

    def migrate(
        self,
        step: str | Mapping[str, Functions],
        function: Functions | None = None,
        *,
        state: str | None = None,
    ) -> int:
        """Write the state of a step anew, in one commit with this pipeline; the number of rows written.

        `function` makes a new row (a dict) of each old one, or None to drop it; what it leaves out stays.
        One that is annotated with pa.Table gets and gives whole tables.  It is applied to `state`, or else to
        all states of the step; {state: function} names several, {step: ...} several steps.  A crash
        leaves all of the old state, or has all of the new.
        """
        wanted = asked_for(step, function, state)
        with self._lock:
            head = self._at_rest("migrate()")
            if head is None:
                raise InvalidError("there is no pond here yet", hint="there is nothing to migrate: run it")
            old = self._reader.plan_of(head)
            new = self._builder.plan if self._builder.plan.nodes else old
            moves = plan_moves(old, new, wanted)
            tables = {name for move in moves for name in tables_of(move.node, move.new)}
            check_compatible(old, new, set(head.positions), rewritten=tables)
            rewriter = Rewriter(self._worker, head)
            rows = migrate(rewriter, moves)
            self._boot(rewriter.finish())
            return rows

    def bootstrap(self, step: str, state: str, rows: Rows, *, replace: bool = False) -> int:
        """Fill a state of a step from an Arrow table or dicts, in one commit; the number of rows.

        Columns are those of `pond.state(step, state)`.  A state that has rows is only replaced if told so.
        """
        with self._lock:
            head = self._at_rest("bootstrap()")
            if head is None:
                self._boot()
                head = self._at_rest("bootstrap()")
                assert head is not None
            old = self._reader.plan_of(head)
            new = self._builder.plan if self._builder.plan.nodes else old
            spec = state_table(new, step, state)
            was = known_tables(old, step).get(spec.name) if step in old.nodes else None
            rewriter = Rewriter(self._worker, head)
            if was is not None and not replace and not rewriter.is_empty(was):
                raise InvalidError(
                    f"state {state!r} of step {step!r} has rows already",
                    hint="pass replace=True to write all of it anew, or change rows with migrate()",
                    step=step,
                )
            tables = tables_of(new.nodes[step], spec)
            plan = check_compatible(old, new, set(head.positions), rewritten=tables)
            mark = plan.shape(plan.nodes[step].inputs[0]).watermark
            bound = None if mark is None else watermarks.bound(head.watermarks, mark)
            count = bootstrap(rewriter, plan.nodes[step], spec, rows, self._clock.now_us(), bound)
            self._boot(rewriter.finish())
            return count

    def fork(self, path: str | os.PathLike[str], epoch: int | str | None = None) -> int:
        """Begin a new pond at `path` with the state of this one, without copying it; the epoch it begins as.

        The fork has its own id and history, and its sinks are detached.
        """
        uri = _uri(path)
        child = open_store(uri, **_store_options(uri, self.settings, {}))
        with self._reader.pinned(epoch) as snapshot:
            make_fork(self.store, child, snapshot.epoch, pond=uuid.uuid4().hex, now_us=self._clock.now_us())
            return snapshot.epoch

    def compact(self) -> None:
        """Merge the runs of every table into one, now."""
        if self._thread is not None:
            runner = self._running()
            runner.compact_everything()
            self._wait_until(lambda: not runner.coordinator.merging, DRAIN_S, "a compaction")
            return
        with self._turn() as runner:
            runner.compact_everything()
            runner.drain(settle=True)

    # -- changing tables ------------------------------------------------------------------

    def insert(self, table: str, rows: pa.Table | Iterable[Mapping[str, Any]]) -> int:
        """Put rows into a table; durable when it returns. The number of its inbox entry."""
        return self._rows(table, self._held(table, rows), 1)

    def delete(self, table: str, rows: pa.Table | Iterable[Mapping[str, Any]]) -> int:
        """Take rows out: by key if the table has one, else equal rows."""
        return self._rows(table, self._held(table, rows), -1)

    def _held(self, table: str, rows: pa.Table | Iterable[Mapping[str, Any]]) -> Any:
        """Rows under the names that their columns are kept by, where SQL calls them otherwise."""
        found = (o for o in self.plan.objects.values() if o.kind == "table" and o.scan == table)
        names = {c.name: c.held for o in found for c in o.columns}
        if all(name == held for name, held in names.items()):
            return rows
        if isinstance(rows, pa.Table):
            return rows.rename_columns([names.get(n, n) for n in rows.column_names])
        return [{names.get(n, n): v for n, v in row.items()} for row in rows]

    def _rows(self, name: str, rows: pa.Table | Iterable[Mapping[str, Any]], weight: int) -> int:
        node = self.plan.nodes.get(name)
        source = getattr(getattr(node, "operator", None), "source", None)
        if not isinstance(source, InboxTable):
            raise InvalidError(
                f"no table named {name!r}", hint="define it with pond.table(name, schema, key=...)"
            )
        table = _to_table(name, rows, source)
        if table.num_rows > ROWS_MAX:
            raise InvalidError(
                "too many rows in one call", detail=f"{table.num_rows} rows, at most {ROWS_MAX}"
            )
        table = table.append_column("_w", pa.array(np.full(table.num_rows, weight, np.int64)))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self._check()
        number = self._append("rows", {"table": name, "rows": table.num_rows}, sink.getvalue().to_pybytes())
        runner = self._runner
        if runner is not None:
            runner.wake()
        return number

    def flush(self, timeout_s: float = 60.0) -> int:
        """Wait until all earlier inbox entries are in a committed epoch; that epoch.

        In the background sources may never run dry: then of them it holds what one epoch takes.  Where
        another process runs the pipeline, that one is waited for.
        """
        if self._thread is None and (self._runner is not None or self._written_elsewhere() is None):
            return self.drain()
        names = self.store.list(inbox.PREFIX)
        last = int(names[-1].rsplit("/", 1)[1]) if names else -1
        what = f"a flush of inbox entry {last}"
        if self._thread is None:  # another process does it
            self._wait_until(lambda: self._executed() > last, timeout_s, what)
        else:
            # A poll that began after this call, and another that began after its epoch was committed.
            runner = self._running()
            polls = runner.polls
            self._wait_until(lambda: runner.polls >= polls + 2 and self._executed() > last, timeout_s, what)
        return self._reader.head().epoch

    # -- reading -------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The newest committed epoch."""
        return self._reader.head().epoch

    def head(self) -> Manifest:
        return self._reader.head()

    def views(self) -> list[str]:
        return sorted(self.plan.views)

    def read(self, view: str, epoch: int | str | None = None) -> pa.Table:
        """All rows of a view, at the newest epoch, an older one, or a savepoint."""
        return self._reader.read(view, epoch)

    def lookup(self, view: str, key: Any, epoch: int | str | None = None) -> pa.Table:
        """The rows of one key, or of a list of keys, in milliseconds."""
        return self._reader.lookup(view, key, epoch)

    def diff(self, view: str, e1: int | str, e2: int | str) -> pa.Table:
        """What changed between two epochs: rows with their weight `_w`."""
        return self._reader.diff(view, e1, e2)

    def changes(self, view: str, since: int | None = None, *, follow: bool = False) -> Iterator[Delta]:
        """An iterator of the changes of each epoch after `since`."""
        return self._reader.changes(view, since, follow=follow)

    def states(self) -> list[StateInfo]:
        """The state tables of all steps at the newest epoch: step, state, at most so many rows, bytes."""
        return self._reader.states()

    def state(
        self, step: str, name: str, epoch: int | str | None = None, *, unpickle: bool = False
    ) -> pa.Table:
        """The rows of a state; of untyped state the pickles, or with `unpickle` what they show as text."""
        return self._reader.state(step, name, epoch, unpickle=unpickle)

    def state_rows(self, step: str, name: str, epoch: int | str | None = None) -> list[dict[str, Any]]:
        """The rows of a state as Python objects; this unpickles untyped state."""
        return self._reader.state_rows(step, name, epoch)

    def export(
        self, step: str, state: str, path: str | os.PathLike[str], epoch: int | str | None = None
    ) -> int:
        """Write a state as one Parquet file, which is there whole or not at all; the number of rows."""
        return self._reader.export(step, state, path, epoch)

    def errors(self, view: str | None = None, epoch: int | str | None = None) -> pa.Table:
        """Rows that could not be processed, with the reason."""
        return self._reader.errors(view, epoch)

    def late(self, step: str, epoch: int | str | None = None) -> pa.Table:
        """Rows that came after their time."""
        return self._reader.late(step, epoch)

    # -- the time machine --------------------------------------------------------------------

    def epochs(self, last: int | None = 20) -> list[EpochSummary]:
        """What was committed and can still be read, newest last; all of it with `last=None`."""
        return summaries(self._reader, last)[0]

    def savepoints(self) -> dict[str, int]:
        """The epochs that have a name."""
        return dict(self._reader.head().savepoints)

    def at(self, epoch: int | str | None = None) -> Moment:
        """The pond as it was at an epoch or a savepoint, to be read; later epochs do not change it."""
        return Moment(self._reader, epoch)

    def replay(
        self,
        epoch: int | str,
        *,
        step: str | None = None,
        on_input: OnInput | None = None,
        on_error: OnError | None = None,
        plan: Plan | None = None,
    ) -> Replay:
        """Run one committed epoch again, in this process, and compare; the pond does not change.

        Your functions run here, so a breakpoint in them works.  `on_input(step, inputs)` is called before
        each step (or the one named), `on_error(error)` for every exception that leaves your code.  The code
        is what the pond stored; `plan` is another to try, for example `other_pond.plan`.
        """
        return run_again(
            self._reader,
            epoch,
            plan=plan,
            live=self._builder.plan,
            step=step,
            on_input=on_input,
            on_error=on_error,
        )

    # -- inside ----------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine, started on first use."""
        if self._engine is None:
            if not isinstance(self._engine_name, str):
                self._engine = self._engine_name
            elif self._engine_name == "inline":
                self._engine = InlineEngine(self._worker)
            else:
                from millpond.engine.spark import SparkEngine

                self._engine = SparkEngine(self._spark)
        return self._engine

    def _folder(self, name: str) -> Path:
        if not self.store.uri.startswith("file://"):
            raise InvalidError(
                f"stream {name!r} cannot be staged in a remote pond",
                detail=self.store.uri,
                hint="write the DataFrame as Parquet where all executors reach it, and use FileSource",
            )
        return Path(unquote(self.store.uri.removeprefix("file://").partition("?")[0]))

    @contextlib.contextmanager
    def _turn(self) -> Iterator[Runner]:
        """The runner, for this thread alone.  One that broke is given up; the next turn boots another."""
        with self._lock:
            runner = self._boot()
            outer, self._driver = self._driver, threading.get_ident()
            try:
                yield runner
            except BaseException as error:
                if runner.broken:
                    self._give_up(error)
                raise
            finally:
                self._driver = outer

    def _give_up(self, error: BaseException) -> None:
        """The chain broke.  Another process may go on at once, unless another is what broke it."""
        runner, self._runner = self._runner, None
        keeper, self._keeper = self._keeper, None
        if runner is not None:
            runner.close()
        if keeper is not None and isinstance(error, ConflictError):
            keeper.stop()
        elif keeper is not None:
            keeper.release()

    def _running(self) -> Runner:
        """The runner of the background thread."""
        self._check()
        runner = self._runner
        if runner is None:
            raise InternalError("the background thread has no runner")
        return runner

    def _at_rest(self, what: str) -> Manifest | None:
        """The head of a pond that nobody runs: neither another process nor, from here on, this one."""
        self._check()
        if self._thread is not None or self._driver is not None:
            raise InvalidError(
                f"the pipeline is running, and {what} needs it at rest", hint="stop() it first"
            )
        if self._closed:
            raise InvalidError("this pond is closed", hint="open it again with millpond.open(...)")
        runner, self._runner = self._runner, None
        keeper, self._keeper = self._keeper, None
        if runner is not None:
            runner.close()
        if keeper is not None:
            keeper.release()
        self._wait_for_lease()
        return history.read_head(self.store)

    def _check_rollback(self, head: Manifest, epoch: int) -> None:
        """Refuse an epoch whose state the pipeline of today cannot read; the coordinator does so as well."""
        target = history.read_manifest(self.store, epoch)
        if target.catalog is None or target.catalog == head.catalog:
            return
        old, now = self._reader.plan_of(target), self._reader.plan_of(head)
        try:
            restored(old, now)
        except InvalidError as error:
            raise InvalidError(
                f"this pipeline cannot go on from epoch {epoch}",
                detail=f"{error.message}: {error.detail}",
                hint="fork that epoch, and run the fork with the code of its time or migrate it",
                step=error.step,
                epoch=epoch,
            ) from error

    def _boot(self, rewrite: Rewrite | None = None) -> Runner:
        self._check()
        if self._runner is not None and not self._closed:
            return self._runner
        rewritten = () if rewrite is None else rewrite.tables
        self._plans_to_run(history.read_head(self.store), rewritten)
        self._wait_for_lease()
        if self._closed:
            raise InvalidError("this pond is closed", hint="open it again with millpond.open(...)")
        head = history.read_head(self.store)  # a standby has waited: the pond went on
        plan, wanted = self._plans_to_run(head, rewritten)
        if head is None:
            prove_put_new(self.store)
        self._told = {} if head is None else dict(head.counts)
        engine = self.engine
        if self._builder.plan.nodes:
            self._builder.seal()
        program = program_of(save_plan(self._worker, plan), plan)
        policy = Policy(
            bounds=Bounds(
                rows_max=self.settings.epoch_rows_max,
                bytes_max=self.settings.epoch_bytes_max,
                target_ms=self.settings.target_ms,
                catch_up_ms=self.settings.catch_up_ms,
            ),
            retain_epochs=self.settings.retain_epochs,
            fan_in=self.settings.fan_in,
            unit_bytes=self.settings.compaction_unit_bytes,
            compact=self.settings.compact,
            collect_every=self.settings.collect_every,
        )
        coordinator = Coordinator(
            pond=uuid.uuid4().hex,
            catalog=program.catalog,
            sources=program.sources,
            sinks=program.sinks,
            parallelism=self._parallelism or (None if head else engine.default_parallelism),
            policy=policy,
            ids=lambda: uuid.uuid4().hex,
            now_us=self._clock.now_us(),
            wakes=program.wakes,
            tables=program.tables,
            rewrite=rewrite,
            change=None if wanted is plan else save_plan(self._worker, wanted),
            based_on=None if head is None else head.catalog,
        )
        shell = Shell(
            self._worker,
            engine,
            plan,
            cut(plan),
            program.catalog,
            self._clock,
            checks=self.settings.checks,
            options=self._options,
            changer=Changer(
                self._worker,
                engine,
                bytes_max=self.settings.epoch_bytes_max,
                checks=self.settings.checks,
                options=self._options,
                on_progress=self._progressed,
                stopped=lambda: self._thread is not None and self._stop.is_set(),
            ),
        )
        runner = Runner(coordinator, shell, on_commit=self._committed)
        try:
            runner.boot()
            self._keeper = lease.Keeper(self.store, self.settings.lease_ms)
            runner.make_ready()
        except BaseException:
            runner.close()
            keeper, self._keeper = self._keeper, None
            if keeper is not None:
                keeper.release()
            raise
        self._runner = runner
        return runner

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidError("this pond is closed", hint="open it again with millpond.open(...)")

    def _plans_to_run(self, head: Manifest | None, rewritten: Sequence[str] = ()) -> tuple[Plan, Plan]:
        """The plan to take the pond over with, and the one to go on to once its new steps are filled.

        They are what this process defined, if the pond can go on with it, or else the pond's own.
        """
        self._require_open()
        plan = self._builder.plan
        if not plan.nodes:
            if head is None:
                raise InvalidError("there is nothing to run", hint="define a stream and a view first")
            stored = self._reader.plan_of(head)
            return stored, stored
        if head is None or head.catalog is None:
            return plan, plan
        old = self._reader.plan_of(head)
        if rewritten or not fed_by_what_was_read(old, plan, head.positions):
            plan = check_compatible(old, plan, set(head.positions), rewritten=rewritten)
            return plan, plan
        wanted = check_compatible(old, plan, set())
        backfill_plan(old, wanted, wanted.nodes.keys() - old.nodes.keys(), head.positions)
        sinks = {name: sink for name, sink in old.sinks.items() if name in wanted.sinks}
        return restored(replace(old, sinks=sinks), wanted), wanted

    def _wait_for_lease(self) -> None:
        """Do not take over from a coordinator that is alive, unless as its standby once it is silent."""
        if self._standby:
            last = lease.latest(self.store)
            if last is not None and last.holder != lease.holder_name():
                lease.silent_for(self.store, self.settings.lease_ms / 1000, stop=lambda: self._closed)
            return
        alive = self._written_elsewhere()
        if alive is not None:
            raise ConflictError(
                "this pond is being written by another process",
                detail=f"{alive.holder} renewed its lease {alive.number} times",
                hint="stop it first, or open with standby=True to take over when it falls silent",
            )

    def _written_elsewhere(self) -> lease.Beat | None:
        """The lease of another process that runs this pond, if one is alive: it is watched for a while."""
        last = lease.latest(self.store)
        if last is None or last.released or last.holder == lease.holder_name():
            return None
        return None if _silent_within(self.store, last, self.settings.lease_ms / 1000) else last

    def _committed(self, manifest: Manifest) -> None:
        runner = self._runner
        known = self._builder.sealed and self._builder.plan.nodes  # and not in the middle of changing()
        if runner is not None and known and manifest.kind in ("change", "rollback"):
            self._builder.reopen(runner.shell.plan)
            self._builder.seal()
        if manifest.filling is None:
            self._progress = None
        for name, count in manifest.counts.items():
            kind, _, step = name.partition("/")
            if kind == "errors" and count > self._told.get(name, 0):
                self._told[name] = sys.maxsize  # once: what comes later is counted, and in errors()
                log.warning("step %r could not process some rows; pond.errors() tells which and why", step)
        if self._on_epoch is not None:
            self._on_epoch(manifest)

    def _command(
        self,
        kind: str,
        args: Mapping[str, Any],
        wait_s: float = DRAIN_S,
        done: Callable[[int], bool] | None = None,
    ) -> int:
        """Through the inbox, like from any process; `done` before this returns if we are the runner."""
        self._check()
        number = self._append(kind, args, b"")
        runner, me = self._runner, threading.current_thread()
        if runner is None or me is self._thread or me.ident == self._driver:
            return number  # from on_epoch: this very thread executes it, once that returns
        is_done = done or (lambda number: self._executed() > number)
        if self._thread is not None:
            self._wait_until(lambda: is_done(number) or self._thread is None, wait_s, f"inbox entry {number}")
            return number
        self._drive(lambda: is_done(number))
        return number

    def _drive(self, until: Callable[[], bool]) -> None:
        """Run epochs in this thread until something is done, by it or by another that does so now."""
        while not until():
            if self._lock.acquire(timeout=0.01):
                try:
                    with self._turn() as runner:
                        runner.drain(until=until)
                    return
                finally:
                    self._lock.release()

    def _wait_executed(self, number: int, timeout_s: float = DRAIN_S) -> None:
        """Until an inbox entry is executed: by this process, unless another one runs the pond."""
        if self._has_executed(number):
            return
        if threading.get_ident() in (self._driver, getattr(self._thread, "ident", None)):
            raise UnavailableError("a change cannot be waited for in on_epoch", hint="ask after it returned")
        if self._thread is None and (self._runner is not None or self._written_elsewhere() is None):
            self._drive(lambda: self._has_executed(number))
            return
        self._wait_until(lambda: self._has_executed(number), timeout_s, f"the turn of inbox entry {number}")

    def _has_executed(self, number: int) -> bool:
        head = history.read_head(self.store)
        return head is not None and int(head.positions.get("inbox", 0)) > number

    def _append(self, kind: str, args: Mapping[str, Any], payload: bytes) -> int:
        head = history.read_head(self.store)
        start = 0 if head is None else int(head.positions.get("inbox", 0))
        return inbox.append(self.store, kind, args, payload, start=start)

    def _executed(self) -> int:
        """The number of the next inbox entry to execute."""
        return int(self._reader.head().positions.get("inbox", 0))

    def _wait_until(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Until the background thread, or another process, has done something; or failed."""
        until = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > until:
                raise UnavailableError(f"{what} took too long", detail=f"waited {timeout_s} s")
            if self._thread is not None:
                self._running().wake()
            time.sleep(0.01)

    def _raise_failed_sinks(self, runner: Runner) -> None:
        failed = runner.coordinator.failed_sinks
        for name in failed:
            runner.coordinator.retry_sink(name)
        for error in failed.values():
            raise error

    def _check(self) -> None:
        if self._failure is not None:
            _raise(self._failure)


def _both(
    first: Callable[[Manifest], None], second: Callable[[Manifest], None]
) -> Callable[[Manifest], None]:
    def called(manifest: Manifest) -> None:
        first(manifest)
        second(manifest)

    return called


def _raise(failure: BaseException) -> NoReturn:
    if isinstance(failure, MillpondError):
        raise failure
    raise UnavailableError("the pipeline stopped", detail=repr(failure)) from failure


def _silent_within(store: Store, last: lease.Beat, silence_s: float) -> bool:
    """Look once more after a while: is the holder of that beat still renewing it?"""
    until = time.monotonic() + silence_s
    while time.monotonic() < until:
        now = lease.latest(store)
        if now is not None and now != last:
            return now.released
        time.sleep(0.05)
    return True


def _to_table(name: str, rows: pa.Table | Iterable[Mapping[str, Any]], source: InboxTable) -> pa.Table:
    """Rows as the table declares them, or an error that says what differs."""
    schema = source.columns
    try:
        if isinstance(rows, pa.Table):
            _match_columns(name, rows.column_names, schema)
            may_lack = {n for n, _ in source.fill} - set(rows.column_names)
            schema = pa.schema([f for f in schema if f.name not in may_lack])
            missing = [c for c in schema.names if c not in rows.column_names]
            if missing:
                raise InvalidError(
                    f"the rows lack column {missing[0]!r} of table {name!r}",
                    detail=f"columns are {', '.join(schema.names)}",
                )
            return rows.select(schema.names).cast(schema)
        items = [dict(r) for r in rows]
        _match_columns(name, (k for r in items for k in r), schema)
        return pa.Table.from_pylist(items, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"rows do not fit table {name!r}", detail=str(error)) from error


def _match_columns(name: str, given: Iterable[str], schema: pa.Schema) -> None:
    unknown = sorted(set(given) - set(schema.names))
    if unknown:
        near = difflib.get_close_matches(unknown[0], schema.names, 1)
        raise InvalidError(
            f"table {name!r} has no column {unknown[0]!r}",
            detail=f"columns are {', '.join(schema.names)}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )
