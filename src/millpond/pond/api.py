"""The public API: `open`, `restore` and `Pond`.

A pond is a folder (or a bucket): its manifests, runs, catalog and inbox.  A
`Pond` object defines a pipeline over it, runs it, and reads it; any number of
other processes may read and write rows and commands at the same time.

Law: a method here documents its promise and delegates; it keeps no state.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from millpond.arguments.call_errors import checked, need_epoch, need_number, with_call_errors
from millpond.arguments.durations import Duration
from millpond.arguments.schemas import Like
from millpond.clock import Clock, SystemClock
from millpond.control.inbox_sender import InboxSender
from millpond.engine.change.backfill import OnProgress
from millpond.engine.change.bootstrap import Rows as StateRows
from millpond.engine.change.migration import Functions
from millpond.engine.coordinator.runner import Runner
from millpond.engine.engine import Engine
from millpond.engine.task.settled_watermarks import END_US
from millpond.engine.traced_plan import OnError, OnInput
from millpond.flow.stream import Stream, ViewHandle
from millpond.kernels.watermark_strategies import Strategy, instant_us
from millpond.masking import masked
from millpond.plan.nodes import Plan
from millpond.plan.sink_check import SinkStatus
from millpond.pond import (
    commands,
    definitions,
    load_shedding,
    opening,
    state_migration,
    watermark_promises,
)
from millpond.pond.autoscaler import Autoscaler
from millpond.pond.closing import close_pond
from millpond.pond.components import new_components
from millpond.pond.execution import EngineName, Execution
from millpond.pond.explaining import explain_plan
from millpond.pond.forking import fork_pond
from millpond.pond.inbox_client import InboxClient
from millpond.pond.listeners import Listeners, OnEpoch
from millpond.pond.location import backup_store
from millpond.pond.program import ProgramEditor
from millpond.pond.progress import PondProgress
from millpond.pond.replaying import replay_epoch
from millpond.pond.rollback import roll_back
from millpond.pond.rows import Rows
from millpond.pond.sessions import Sessions
from millpond.pond.status import Status, status_of, summary_of
from millpond.serve.backup import Backup, OnCopy, back_up
from millpond.serve.epoch_summaries import EpochSummary, summaries
from millpond.serve.epoch_view import Moment
from millpond.serve.reader import Delta
from millpond.serve.replay import Replay
from millpond.serve.restore import Restored
from millpond.serve.scaling_decisions import scaling_decisions
from millpond.serve.state_inspection import StateInfo
from millpond.serve.view_reader import ViewReader
from millpond.settings import Settings
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.store import Store
from millpond.table_preview import html_facts

if TYPE_CHECKING:
    from millpond.pond.transaction import Transaction
    from millpond.server.server import Server
    from millpond.sql.result import Result
    from millpond.sql.session import SqlSession, Stdin
    from millpond.sql.text.parameters import Params


def open(  # the name people type: millpond.open(...)
    path: str | os.PathLike[str],
    engine: EngineName = "spark",
    spark: Any = None,
    parallelism: int | None = None,
    *,
    clock: Clock | None = None,
    on_epoch: OnEpoch | None = None,
    standby: bool = False,
    take_over: bool = False,
    trust: bool = False,
    store_options: Mapping[str, Any] | None = None,
    master: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    **settings: Any,
) -> Pond:
    """Open a pond, or make one.  Nothing runs and no Spark starts before it is needed.

    `engine="inline"` runs everything in this process, without a JVM.  `spark` takes your own
    session.  Without one, a session is started on the cluster `master` (by default on the master of
    spark-submit, or else on the cores of this machine) with the settings `spark_conf`.
    With `standby` the first drain(), start() or run() waits while another process runs the pond,
    and takes over when that process goes silent; stop() or close() end the wait.  The log (`millpond.pond`,
    level INFO) names the process it waits for.  Without `standby`, running a pond that another process, or
    another Pond of this process, holds is refused with a ConflictError; with `take_over` the pond is taken
    from that holder, whose next commit fails.
    `path` may be a uri such as ``s3://bucket/pond``; `store_options` are then its endpoint, region and
    so on.  `settings` are the fields of `millpond.settings.Settings`.

    Reading a pond never runs code that is stored in it.  Running it does, and is refused unless the pond's
    folder belongs to you; with `trust` you say that everybody who can write to the pond may run code here.
    """
    return opening.open_pond(
        Pond,
        path,
        engine=engine,
        spark=spark,
        parallelism=parallelism,
        clock=clock,
        on_epoch=on_epoch,
        standby=standby,
        take_over=take_over,
        trust=trust,
        store_options=store_options,
        master=master,
        spark_conf=spark_conf,
        settings=settings,
    )


def restore(
    backup: str | os.PathLike[str],
    pond: str | os.PathLike[str],
    epoch: int | None = None,
    *,
    new_id: bool = False,
    on_progress: OnCopy | None = None,
    store_options: Mapping[str, Any] | None = None,
    backup_options: Mapping[str, Any] | None = None,
) -> Restored:
    """Create a pond from a backup: from the newest one at that location, or from the newest one of an epoch.

    The pond continues from that epoch, with the id of the pond it replaces.  With `new_id` it is a different
    pond to sinks.  `pond` must be an empty location; run an interrupted restore again to complete it.
    `store_options` are for the pond's bucket and `backup_options` for the backup's; without
    `backup_options`, `store_options` are for both.
    """
    return opening.restore_pond(
        backup,
        pond,
        epoch,
        new_id=new_id,
        on_progress=on_progress,
        store_options=store_options,
        backup_options=backup_options,
    )


@checked
class Pond:
    """Defines a pipeline over a pond, runs it and reads it; created by `millpond.open`.

    The examples of its methods begin with these lines, and `tmp` is an empty folder:

    >>> import millpond
    >>> from millpond.sources.memory import MemorySource
    >>> pond = millpond.open("memory://", engine="inline")
    >>> orders = pond.table("orders", {"who": str, "n": int})
    >>> totals = orders.key_by("who").aggregate(total="sum(n)").view("totals")
    >>> def count(row, n=millpond.ValueState(int, default=0)):
    ...     n.value += 1
    ...     return {"page": row.page, "n": n.value}
    >>> clicks = MemorySource({"page": str})
    >>> by_page = pond.stream("clicks", clicks).key_by("page")
    >>> counts = by_page.process(count, {"page": str, "n": int}, id="count").view("counts")
    >>> number = pond.insert("orders", {"who": "ann", "n": 5})
    >>> clicks.push({"page": "home"})
    >>> pond.drain()
    1
    """

    def __init__(
        self,
        store: Store,
        *,
        engine: EngineName | Engine,
        spark: Any = None,
        parallelism: int | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        on_epoch: OnEpoch | None = None,
        standby: bool = False,
        take_over: bool = False,
        trust: bool = False,
        store_options: Mapping[str, Any] | None = None,
        session_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._components = new_components(
            store,
            self.settings,
            self._clock,
            trust=trust,
            options=dict(store_options or {}),
            parallelism=parallelism,
            standby=standby,
            take_over=take_over,
        )
        self._worker = self._components.worker
        self._builder = self._components.builder
        self._reader = self._components.reader
        self._listeners = Listeners(on_epoch)
        self._execution = Execution(self._components, self._listeners, engine, spark, session_options)
        self._inbox = InboxClient(self._components, self._execution)
        self._listeners.on_epoch(
            Autoscaler(self.settings, InboxSender(store), lambda: self._execution.engine)
        )
        self._program = ProgramEditor(self._components, self._execution, self._inbox, self._listeners)
        self._sessions = Sessions(self, self._inbox)

    def __enter__(self) -> Pond:
        return self

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in summary_of(self._execution))
        return f"Pond({masked(self.store.uri)!r}, {facts})"

    def _repr_html_(self) -> str:
        return html_facts("Pond", [("location", masked(self.store.uri)), *summary_of(self._execution)])

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        # an exception that leaves the block is not hidden by an earlier failure
        self._close(raises=kind is None)

    # -- defining -------------------------------------------------------------------

    def stream(
        self,
        name: str,
        source: Any,
        *,
        event_time: str | None = None,
        delay: Duration | Strategy = 0,
        idle: Duration | None = None,
        max_drift: Duration | None = None,
        punctuation: str | None = None,
        heartbeats: Stream | None = None,
    ) -> Stream:
        """Read the rows of a source; with `event_time`, rows more than `delay` behind the newest are late.

        A Spark DataFrame is a source, too: its rows are staged in the pond.  A streaming one is run by this
        process while it runs the pond; drain() reads the batches that are staged so far.

        The other options are those of `Stream.watermark`.

        >>> visits = MemorySource({"page": str, "at": datetime.datetime})
        >>> with pond.changing():
        ...     stream = pond.stream("visits", visits, event_time="at", delay="5s")
        ...     _ = stream.key_by("page").aggregate(n="count(*)").view("visits_by_page")
        >>> visits.push([{"page": "home", "at": datetime.datetime(2024, 1, 1)}])
        >>> _ = pond.drain()
        >>> pond.read("visits_by_page").to_pylist()
        [{'page': 'home', 'n': 1}]
        """
        more = {
            "idle": idle,
            "max_drift": max_drift,
            "punctuation": punctuation,
            "heartbeats": heartbeats,
        }
        return definitions.stream(self._builder, self.store, name, source, event_time, delay, more)

    def table(self, name: str, schema: Like, *, key: str | Sequence[str] | None = None) -> ViewHandle:
        """Define a table that any process changes with insert() and delete(); with a key, insert() replaces.

        >>> with pond.changing():
        ...     _ = pond.table("users", {"id": int, "name": str}, key="id")
        >>> _ = pond.insert("users", {"id": 1, "name": "ann"})
        >>> _ = pond.insert("users", {"id": 1, "name": "Ann"})
        >>> _ = pond.drain()
        >>> pond.read("users").to_pylist()
        [{'id': 1, 'name': 'Ann'}]
        """
        return definitions.table(self._builder, name, schema, key)

    def stream_of(self, name: str) -> Stream:
        """The stream of a table, a source or a materialized view, by its name in SQL or in Python.

        >>> _ = pond.sql("CREATE TABLE visits (page text)")
        >>> pond.stream_of("visits").columns
        ['page']
        """
        return definitions.stream_of(self._builder, self.plan, name)

    @property
    def plan(self) -> Plan:
        """The plan that this process runs or has defined; without either, the plan that the pond ran last.

        >>> sorted(pond.plan.views)
        ['counts', 'orders', 'totals']
        """
        return self._execution.plan

    def explain(self, format: Literal["text", "mermaid"] = "text", *, analyze: bool = False) -> str:
        """The plan with its levels, exchanges and state tables, as text or as a Mermaid diagram.

        With `analyze` the text also says what each step did in the last epochs: time, rows and how it was
        run.

        >>> print(pond.explain("mermaid").splitlines()[0])
        flowchart LR
        >>> " rows out by " in pond.explain(analyze=True)
        True
        """
        return explain_plan(self._components, self.plan, format, analyze=analyze)

    def sql(
        self,
        text: str,
        *,
        params: Params = None,
        dialect: str = "postgres",
        stdin: Stdin = None,
        ansi: bool | None = None,
        **limits: int,
    ) -> Result:
        """Run one or several statements; returns the result of the last one.

        Definitions are committed, and changes are durable, when this returns.
        Parameters (`?`, `$1`, `:name`) are values and never become part of the text.
        `stdin` is what `COPY … FROM STDIN` reads: a text, bytes or an open file.
        `limits` are the settings of reads, such as `select_ms_max`, for this call only.
        `ansi=False` runs `dialect="spark"` without Spark's ANSI mode.

        >>> _ = pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 2); FLUSH")
        >>> pond.sql("SELECT n FROM t WHERE id = ?", params=[1]).fetchall()
        [(2,)]
        >>> pond.sql("SELECT * FROM totals")
         who | total
        -----+-------
         ann | 5
        (1 row)
        """
        return self.session.run(text, params, dialect, limits, stdin, ansi)

    def function(
        self,
        name: Any = None,
        function: Any = None,
        /,
        *,
        returns: Any = None,
        arguments: Any = None,
        kind: definitions.FunctionKind | None = None,
        vectorised: bool = False,
        nulls: bool = False,
        init: Callable[[], Any] | None = None,
        accumulate: Callable[..., Any] | None = None,
        retract: Callable[..., Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Let SQL call a Python function; returns the function, so that this can be a decorator.

        Types come from hints, or from `arguments` and `returns`: Python types, Arrow types or SQL's names.
        A generator is a table function, a class with accumulate() and finish() an aggregate.  A vectorised
        function takes and returns Arrow arrays.  With `nulls` it is also called when an argument is NULL.
        A function of kind "watermark" is a strategy for WATERMARK FOR: see `millpond.watermarks.custom`.

        >>> @pond.function
        ... def shout(text: str, times: int = 1) -> str:
        ...     return text.upper() + "!" * times
        >>> pond.sql("SELECT shout(who, 2) FROM orders").fetchall()
        [('ANN!!',)]
        """
        return definitions.function(
            self.session,
            name,
            function,
            returns=returns,
            arguments=arguments,
            kind=kind,
            vectorised=vectorised,
            nulls=nulls,
            init=init,
            accumulate=accumulate,
            retract=retract,
            finish=finish,
        )

    @contextlib.contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Transaction]:
        """All changes of a block in one epoch, or none of them.

        Reads inside see one epoch and the block's own changes.  The block ends when the epoch is committed,
        or with ConflictError if something that it has read was changed meanwhile: then run it again.

        >>> _ = pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
        >>> _ = pond.sql("INSERT INTO t VALUES (1, 5), (2, 0); FLUSH")
        >>> with pond.transaction() as tx:
        ...     _ = tx.sql("UPDATE t SET n = n - 1 WHERE id = 1")
        ...     _ = tx.sql("UPDATE t SET n = n + 1 WHERE id = 2")
        >>> tx.epoch == pond.epoch
        True
        """
        with self._sessions.transaction(read_only=read_only) as block:
            yield block

    @property
    def session(self) -> SqlSession:
        """The session in which `sql` runs its statements, one after the other.

        >>> pond.session is pond.session
        True
        """
        return self._sessions.default

    def new_session(self) -> SqlSession:
        """Another session over this pond, for statements that run beside those of `sql`; close it at the end.

        >>> session = pond.new_session()
        >>> session.run("SELECT who FROM orders").fetchall()
        [('ann',)]
        >>> session.close()
        """
        return self._sessions.new()

    def serve(self, **settings: Any) -> Server:
        """Serve the pond to clients of other protocols until the returned server is stopped.

        `settings` are the fields of `millpond.server.settings.ServeSettings`; a port of 0 picks a free one.
        If no process runs the pond, the first statement that needs an epoch starts it in the background.

        >>> pond.serve(host="0.0.0.0")
        Traceback (most recent call last):
        millpond.errors.InvalidError: without users it listens only on loopback, not on 0.0.0.0
          hint: pass a file of users, or listen on 127.0.0.1
        """
        from millpond.server.server import start_server  # serving is loaded where it is used

        return start_server(self, settings)

    # -- changing the program -----------------------------------------------------------

    def change(self, plan: Plan, *, on_progress: OnProgress | None = None, base: str | None = None) -> int:
        """Continue with another plan, while the pond runs; returns the epoch that begins with it.

        New steps are backfilled from what the pond stores, and steps that are not in the plan are dropped, in
        one commit: from that epoch on every view has the rows it would have if it had always existed.
        Steps that stay must mean what they meant.  `on_progress` is called during the backfill.

        From `on_epoch` this returns immediately, and the change follows the running epoch.  If another
        process runs the pond, that process makes the change and this call waits for it.  With `base`, the
        catalog of the program from which the plan was derived, the change is refused if the program has
        changed since.

        >>> without = pond.plan
        >>> with pond.changing():
        ...     _ = orders.filter("n > 2").view("large")
        >>> epoch = pond.change(without)
        >>> pond.views()
        ['counts', 'orders', 'totals']
        """
        return self._program.change(plan, on_progress, base)

    @contextlib.contextmanager
    def changing(self, *, on_progress: OnProgress | None = None) -> Iterator[Pond]:
        """Define more, and drop views, while the pond runs; all of it takes effect in one commit.

        The commit is made at the end of the block; an exception inside leaves the program unchanged.

        >>> with pond.changing():
        ...     _ = orders.key_by("who").aggregate(largest="max(n)").view("largest")
        >>> pond.read("largest").to_pylist()
        [{'who': 'ann', 'largest': 5}]
        """
        with self._program.changing(on_progress):
            yield self

    def replace(self, *views: str, backfill: bool = True) -> None:
        """Let views of this program replace those that the pond has under the same names.

        Call it after the definitions and before drain(), start() or run().  Then a view whose definition
        changed is backfilled from what the pond holds (tables, views and sources that can be read again) and
        replaces the old one in one commit, together with all views that are built on it.  A view
        that did not change stays as it is, so the call may stay in the program.  Without names it applies
        to all views.  With ``backfill=False`` a changed view begins empty, with the rows that come next.

        >>> def program(aggregate: str) -> int:
        ...     with millpond.open(tmp / "pond", engine="inline") as pond:
        ...         orders = pond.table("orders", {"city": str, "n": int})
        ...         _ = orders.key_by("city").aggregate(n=aggregate).view("by_city")
        ...         pond.replace("by_city")
        ...         return pond.drain()
        >>> program("sum(n)"), program("max(n)")
        (0, 2)
        """
        definitions.replace(self._builder, views, backfill)

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Drop a view and the steps that only it needs; with `cascade`, also the views that use it.

        Without `cascade` it is refused while others use it.

        A view that the pond has and this program no longer defines is dropped when the pond runs next.

        >>> pond.drop_view("totals")
        >>> pond.views()
        ['counts', 'orders']
        """
        self._program.drop_view(name, cascade=cascade)

    def rename_view(self, name: str, to: str) -> None:
        """Give a view another name, in one commit; its sinks follow it.

        >>> pond.rename_view("totals", "total_by_person")
        >>> pond.views()
        ['counts', 'orders', 'total_by_person']
        """
        self._program.rename_view(name, to)

    def swap_views(self, one: str, other: str) -> None:
        """Exchange the names of two views, in one commit; sinks stay with the name they read.

        >>> with pond.changing():
        ...     _ = orders.key_by("who").aggregate(total="max(n)").view("new_totals")
        >>> pond.swap_views("totals", "new_totals")
        """
        self._program.swap_views(one, other)

    @property
    def progress(self) -> PondProgress:
        """How far event time has come, as `watermarks`, and a running backfill, as `backfill`.

        >>> pond.progress.watermarks.column_names[:4]
        ['step', 'source', 'partition', 'watermark']
        >>> pond.progress.backfill is None
        True
        """
        return PondProgress(self.watermarks(), self._listeners.progress)

    # -- running -----------------------------------------------------------------------

    def drain(self) -> int:
        """Run epochs until the sources have no more rows; returns the newest epoch.

        A sink that fails does not stop it: its error is raised at the end, and the sink resumes from there.
        stop(), from a signal handler or another thread, ends it after the running epoch.

        >>> _ = pond.insert("orders", {"who": "bob", "n": 1})
        >>> pond.drain()
        2
        """
        return self._inbox.drain()

    def start(self) -> None:
        """Run in the background until stop().

        An error ends the run.  It is logged with its traceback, `status` shows it, and every call that runs,
        waits or writes raises it until stop() or start() has raised it.

        >>> pond.start()
        >>> _ = pond.insert("orders", {"who": "bob", "n": 1})
        >>> epoch = pond.flush()
        >>> pond.lookup("totals", "bob").to_pylist()
        [{'who': 'bob', 'total': 1}]
        >>> pond.stop()
        """
        self._execution.start()

    def stop(self) -> None:
        """Stop after the running epoch; raises the error of the background thread, if it failed.

        >>> pond.start()
        >>> pond.stop()
        >>> pond.status.state
        'stopped'
        """
        self._execution.stop()

    def run(self) -> None:
        """Run in the foreground until interrupted, or until another thread or `on_epoch` calls stop().

        >>> pond.on_epoch(lambda manifest: pond.stop())
        >>> _ = pond.insert("orders", {"who": "bob", "n": 1})
        >>> pond.run()
        >>> pond.epoch
        2
        """
        self._execution.run()

    def close(self) -> None:
        """Stop, and release the lease and everything that was started for this pond.

        Everything is released first.  Then an error of the background thread that no other call has raised
        is raised here; at the end of a `with` block only if no exception left the block.  A sink that does
        not return within `sink_close_ms` is abandoned, with a warning in the log.

        >>> pond.close()
        >>> pond
        Pond('memory://...', state closed)
        """
        self._close(raises=True)

    def _close(self, *, raises: bool) -> None:
        close_pond(self._execution, self._sessions, raises=raises)

    def on_epoch(self, function: OnEpoch) -> None:
        """Call a function with the manifest of every epoch that this process commits.

        >>> pond.on_epoch(lambda manifest: print("epoch", manifest.epoch))
        >>> _ = pond.insert("orders", {"who": "bob", "n": 1})
        >>> _ = pond.drain()
        epoch 2
        """
        self._listeners.on_epoch(function)

    def on_wait(self, function: Callable[[str], None]) -> None:
        """Call a function with what the pond waits for, as text.

        That is the process that runs the pond when a standby begins to wait for it, and every few seconds a
        storage that does not answer or a cluster without executors: `kind` of the text is "holder",
        "storage" or "executors".

        >>> pond.on_wait(lambda what: print("waiting for", what))
        """
        self._listeners.set_on_wait(function)

    @property
    def runs_in_background(self) -> bool:
        """Does the background thread that start() began run epochs?

        >>> pond.runs_in_background
        False
        """
        return self._execution.in_background

    @property
    def status(self) -> Status:
        """State, newest epoch, lag, last error and sinks at this moment, as a frozen value.

        >>> pond.status.state, pond.status.epoch
        ('stopped', 1)
        """
        return status_of(self._execution)

    def sinks(self) -> list[SinkStatus]:
        """Every sink: its view, mode and guarantee, the last epoch it received, and how far it is behind.

        >>> from millpond.sinks.callback import CallbackSink
        >>> with pond.changing():
        ...     _ = totals.sink("counted", CallbackSink(lambda id, rows: None), mode="upsert")
        >>> [(sink.name, sink.mode, sink.guarantee) for sink in pond.sinks()]
        [('counted', 'upsert', 'at_least_once')]
        """
        return list(self.status.sinks)

    @property
    def backlog_rows(self) -> int:
        """The rows that the sources of this running pipeline have announced and no epoch has read yet.

        >>> pond.backlog_rows
        0
        """
        return self._execution.backlog_rows

    def rescale(self, n: int) -> None:
        """Change the parallelism of the next epochs, while the pond runs, without moving state.

        >>> pond.rescale(4)
        >>> pond.head().parallelism
        4
        """
        commands.rescale(self._inbox, n)

    def set(self, **settings: Any) -> None:
        """Change settings while the pond runs, from the next epoch on; None takes a change back.

        They are stored in the pond, and a takeover keeps them.  Those that can change are `target_ms`,
        `catch_up_ms`, `epoch_rows_max`, `epoch_bytes_max`, `autoscale`, `tasks_min`, `tasks_max`,
        `executors_min`, `executors_max`, `backlog_ms_max` and `scaling_pause_ms`.

        >>> pond.set(target_ms=250, autoscale="advise")
        >>> dict(pond.head().settings)
        {'autoscale': 'advise', 'target_ms': 250}
        >>> pond.set(target_ms=None, autoscale=None)
        """
        commands.change_settings(self._inbox, settings)

    def pause(self) -> None:
        """Run no more epochs until `resume`; inserts, definitions and other commands are still accepted.

        Commands are executed, in their order with the inserts: the rows in front of a command come in first.

        >>> pond.pause()
        >>> pond.resume()
        """
        self.set(paused=True)

    def resume(self) -> None:
        """Run epochs again after `pause`.

        >>> pond.resume()
        >>> "paused" in pond.head().settings
        False
        """
        self.set(paused=False)

    def shed(
        self,
        source: str,
        target_lag: Duration | None = "2s",
        *,
        by: Literal["row", "key", "window", "score"] = "row",
        key: str | Sequence[str] = (),
        score: str | None = None,
        floor: float = 0.05,
        recover: bool = True,
    ) -> None:
        """Let a source shed rows while it is further behind than `target_lag`; None switches that off.

        At most 1 - `floor` of the rows are shed: by their place in the input or a score, then counts, sums
        and averages are scaled (see `bounds`); or by entire keys or tumbling windows, then what is kept is
        exact.  Shed rows are read again when there is no backlog, unless `recover` is false.  A source with
        a view that is exact, or that such a sample says nothing about, is refused.

        >>> readings = MemorySource({"city": str, "kwh": float})
        >>> with pond.changing():
        ...     _ = pond.stream("meters", readings).key_by("city").aggregate(n="count(*)").view("by_city")
        >>> pond.shed("meters", "2s", floor=0.1)
        >>> pond.shedding().select(["source", "view", "rate"]).to_pylist()
        [{'source': 'meters', 'view': 'by_city', 'rate': 1.0}]
        >>> pond.shed("meters", None)
        """
        load_shedding.shed(
            self._inbox, source, target_lag, by=by, key=key, score=score, floor=floor, recover=recover
        )

    def shedding(self) -> pa.Table:
        """For every view of a source that may shed rows: the share of rows that it was computed from.

        >>> pond.shedding().column_names[:4]
        ['source', 'view', 'by', 'state']
        """
        return load_shedding.bill(self._execution.newest_plan, self._components.head())

    def bounds(
        self,
        view: str,
        *,
        counts: str | Sequence[str] = (),
        sums: Mapping[str, str] | Sequence[str] | None = None,
        over: str | Sequence[str] | None = None,
    ) -> pa.Table:
        """A view's rows with 95 % bounds of its estimates, as `n_low` and `n_high` beside `n`.

        `sums` names for each sum the column that has the sum of squares.  With one count, averages follow as
        `x_avg`, `x_avg_low` and `x_avg_high`.  If nothing is shed, the bounds are the values themselves.

        Of a source that is shed by key, the view has the kept keys: `over` gives the totals over all keys, by
        these columns, and `sums` is a list then.

        >>> with pond.changing():
        ...     counted = pond.stream("parcels", MemorySource({"city": str})).key_by("city")
        ...     _ = counted.aggregate(n="count(*)").view("parcels_by_city")
        >>> pond.bounds("parcels_by_city", counts="n").column_names
        ['city', 'n', 'n_low', 'n_high']
        >>> pond.bounds("parcels_by_city", counts="n", over=[]).to_pylist()
        [{'n': 0.0, 'n_low': 0.0, 'n_high': 0.0}]
        """
        return load_shedding.bounds(self._reader, view, counts=counts, sums=sums, over=over)

    def advance(self, source: str, time: datetime.datetime | int) -> None:
        """Promise that a source will send nothing before this time: the watermarks that it feeds rise to it.

        Rows of the source that come later with an older time are late; rows that it has sent already are read
        first.  Durable when the call returns.

        >>> trips = MemorySource({"city": str, "at": datetime.datetime})
        >>> with pond.changing():
        ...     stream = pond.stream("trips", trips, event_time="at").tumble("1h")
        ...     by_hour = stream.key_by("window_end").aggregate(on_close=True, n="count(*)")
        ...     _ = by_hour.view("trips_by_hour")
        >>> trips.push([{"city": "Bern", "at": datetime.datetime(2024, 1, 1, 10, 20)}])
        >>> _ = pond.drain()
        >>> pond.advance("trips", datetime.datetime(2024, 1, 1, 11, 0))
        >>> pond.read("trips_by_hour").column("n").to_pylist()
        [1]
        """
        watermark_promises.promise(self._inbox, source, instant_us(time))

    def finish(self, source: str) -> None:
        """Say that a source has ended: its watermarks go to the end of time, and all windows close.

        >>> rides = MemorySource({"at": datetime.datetime})
        >>> with pond.changing():
        ...     stream = pond.stream("rides", rides, event_time="at").tumble("1h")
        ...     _ = stream.key_by("window_end").aggregate(on_close=True, n="count(*)").view("rides_by_hour")
        >>> rides.push([{"at": datetime.datetime(2024, 1, 1, 10, 20)}])
        >>> _ = pond.drain()
        >>> pond.finish("rides")
        >>> pond.read("rides_by_hour").num_rows
        1
        """
        watermark_promises.promise(self._inbox, source, END_US)

    def savepoint(self, name: str) -> None:
        """Name the newest epoch; it stays readable until the name is dropped.

        >>> pond.savepoint("before-sale")
        >>> pond.read("totals", epoch="before-sale").to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        commands.add_savepoint(self._inbox, name)

    def drop_savepoint(self, name: str) -> None:
        """Remove the name of an epoch, which can then be collected once it is old.

        >>> pond.savepoint("before-sale")
        >>> pond.drop_savepoint("before-sale")
        >>> pond.savepoints()
        {}
        """
        commands.drop_savepoint(self._inbox, name)

    def rollback(self, epoch: int | str, *, force: bool = False) -> None:
        """Return to an older epoch by a forward commit: state, offsets and watermarks.

        Refused if an append-only sink has delivered rows that would have to be retracted.  With `force` these
        rows stay in its target, and rows that the sources return again are appended again.

        >>> _ = pond.insert("orders", {"who": "ann", "n": 1000})
        >>> _ = pond.drain()
        >>> pond.rollback(1)
        >>> pond.read("totals").to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        roll_back(self._inbox, epoch, force=force)

    def migrate(
        self,
        step: str | Mapping[str, Functions],
        function: Functions | None = None,
        *,
        state: str | None = None,
    ) -> int:
        """Rewrite the state of a step, in one commit with this pipeline; returns the number of rows written.

        `function` makes a new row (a dict) of each old one, or None to drop it; columns it leaves out stay.
        A function that is annotated with pa.Table takes and returns complete tables.  It is applied to
        `state`,
        or without one to all states of the step; {state: function} names several, {step: ...} several steps.
        A crash leaves all of the old state, or all of the new.

        >>> pond.migrate("count", lambda row: {"n": row["n"] * 100}, state="n")
        1
        >>> pond.state_rows("count", "n")
        [{'page': 'home', 'n': 100}]
        """
        return state_migration.migrate(self._components, self._execution, step, function, state)

    def bootstrap(self, step: str, state: str, rows: StateRows, *, replace: bool = False) -> int:
        """Fill a state of a step from an Arrow table or dicts, in one commit; returns the number of rows.

        The columns are those of `pond.state(step, state)`.
        A state that has rows is refused, unless `replace` says to drop them.

        >>> pond.bootstrap("count", "n", [{"page": "cart", "n": 7}], replace=True)
        1
        >>> pond.state_rows("count", "n")
        [{'page': 'cart', 'n': 7}]
        """
        return state_migration.bootstrap(
            self._components, self._execution, step, state, rows, replace=replace
        )

    def fork(
        self,
        path: str | os.PathLike[str],
        *,
        epoch: int | str | None = None,
        store_options: Mapping[str, Any] | None = None,
    ) -> int:
        """Start a new pond at `path` with the state of this one, without copying; returns its first epoch.

        `store_options` are for the bucket of the fork; without them, those of this pond apply if both are
        buckets of the same kind.

        The fork has its own id and history, and its sinks are detached: nothing it does reaches a target of
        this pond before attach_sink().

        >>> with millpond.open(tmp / "pond", engine="inline") as local:
        ...     _ = local.table("t", {"a": int})
        ...     _ = local.drain()
        ...     local.fork(tmp / "fork")
        0
        >>> with millpond.open(tmp / "fork", engine="inline") as fork:
        ...     fork.views()
        ['t']
        """
        return fork_pond(self._components, path, epoch, store_options)

    def attach_sink(self, name: str, *, replay: bool = False) -> None:
        """Deliver changes to a detached sink again, from the next epoch on.

        With `replay` it first gets all changes since it was detached.
        The sinks of a fork start detached.

        >>> from millpond.sinks.callback import CallbackSink
        >>> with pond.changing():
        ...     _ = totals.sink("ignored", CallbackSink(lambda id, changes: None))
        >>> pond.detach_sink("ignored")
        >>> pond.attach_sink("ignored")
        >>> pond.head().detached
        {}
        """
        self._inbox.switch_sink(name, attach=True, replay=replay)

    def detach_sink(self, name: str) -> None:
        """Stop delivering changes to a sink until attach_sink(), also after a restart.

        >>> from millpond.sinks.callback import CallbackSink
        >>> with pond.changing():
        ...     _ = totals.sink("ignored", CallbackSink(lambda id, changes: None))
        >>> pond.detach_sink("ignored")
        >>> [sink.state for sink in pond.status.sinks]
        ['detached']
        """
        self._inbox.switch_sink(name, attach=False)

    def backup(
        self,
        target: str | os.PathLike[str],
        epoch: int | str | None = None,
        *,
        verify: bool = False,
        on_progress: OnCopy | None = None,
        store_options: Mapping[str, Any] | None = None,
    ) -> Backup:
        """Copy one epoch, the newest or an older one, to a folder or bucket while the pond runs.

        Files that the target has already are not copied again, so the next backup into it takes only what
        is new.  Everything is verified as it is read; with `verify` the target is read again at the end.
        `millpond.restore` creates a pond from it.

        >>> pond.backup(tmp / "backup").epoch
        1
        """
        store = backup_store(target, self.settings, store_options or {})
        return back_up(self._reader, store, epoch, verify=verify, on_progress=on_progress, clock=self._clock)

    def compact(self) -> None:
        """Merge the runs of every table into one, now.

        >>> pond.compact()
        """
        self._execution.compact()

    # -- changing tables ------------------------------------------------------------------

    def insert(self, table: str, rows: Rows, *, request: str | tuple[str, int] | None = None) -> int:
        """Add rows to a table; they are durable when it returns.  Returns the number of the inbox entry.

        With `request`, an id of your own, the same call may be repeated after a failure: it counts once.
        The pond remembers a text for 100,000 further entries of its inbox; a client that numbers its
        requests, ``request=("shop-1", 17)``, is remembered for ever.

        >>> _ = pond.insert("orders", [{"who": "ann", "n": 1}, {"who": "bob", "n": 2}])
        >>> _ = pond.drain()
        >>> pond.lookup("totals", "ann").to_pylist()
        [{'who': 'ann', 'total': 6}]
        """
        return self._inbox.named_rows(table, rows, 1, request)

    def delete(self, table: str, rows: Rows) -> int:
        """Delete rows from a table: by key if the table has one, else one equal row for each.

        >>> _ = pond.delete("orders", {"who": "ann", "n": 5})
        >>> _ = pond.drain()
        >>> pond.read("orders").num_rows
        0
        """
        return self._inbox.named_rows(table, rows, -1)

    def flush(self, timeout_s: float = 60.0) -> int:
        """Wait until all earlier inbox entries are in a committed epoch; returns that epoch.

        Sources of a pond that runs in the background may never run dry: then it includes what one epoch reads
        of them.  If another process runs the pipeline, this waits for that process.

        >>> _ = pond.insert("orders", {"who": "bob", "n": 1})
        >>> pond.flush()
        2
        """
        return self._inbox.flush(timeout_s)

    # -- reading -------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The newest committed epoch.

        >>> pond.epoch
        1
        """
        return self._reader.head().epoch

    def head(self) -> Manifest:
        """The manifest of the newest epoch.

        >>> pond.head().epoch
        1
        """
        return self._reader.head()

    def views(self) -> list[str]:
        """The names of all views, sorted.

        >>> pond.views()
        ['counts', 'orders', 'totals']
        """
        return sorted(self.plan.views)

    def view(self, name: str, *, epoch: int | str | None = None) -> ViewReader:
        """A view, to be read as Arrow, pandas, Polars or Spark, at the newest epoch or a fixed one.

        >>> pond.view("totals")
        ViewReader('totals', newest epoch: who string, total int64)
        >>> pond.view("totals").to_polars().rows()
        [('ann', 5)]
        """
        return ViewReader(self._reader, name, epoch)

    def read(self, view: str, *, epoch: int | str | None = None) -> pa.Table:
        """All rows of a view as an Arrow table, at the newest epoch, an older one, or a savepoint.

        >>> pond.read("totals").to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        return self._reader.read(view, epoch=epoch)

    def lookup(self, view: str, key: Any, *, epoch: int | str | None = None) -> pa.Table:
        """The rows of one key, or of a list of keys, in milliseconds.

        >>> pond.lookup("totals", "ann").to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        return self._reader.lookup(view, key, epoch=epoch)

    def diff(self, view: str, e1: int | str, e2: int | str) -> pa.Table:
        """What changed between two epochs: rows with their weight `_w`.

        >>> _ = pond.insert("orders", {"who": "ann", "n": 1})
        >>> _ = pond.drain()
        >>> sorted(pond.diff("totals", 1, 2).to_pylist(), key=lambda row: row["_w"])
        [{'who': 'ann', 'total': 5, '_w': -1}, {'who': 'ann', 'total': 6, '_w': 1}]
        """
        return self._reader.diff(view, need_epoch("diff", e1), need_epoch("diff", e2))

    def changes(self, view: str, since: int | None = None, *, follow: bool = False) -> Iterator[Delta]:
        """Iterate over the changes of each epoch after `since`; with `follow` it waits for more.

        Without `since` it begins with all rows of the view.

        >>> for delta in pond.changes("totals", since=0):
        ...     print(delta.epoch, delta.table.to_pylist())
        1 [{'who': 'ann', 'total': 5, '_w': 1}]
        """
        return self._reader.changes(
            view,
            since,
            follow=follow,
            poll_s=self._components.poll_s,
            check=self._execution.check_waiting,
        )

    def states(self) -> list[StateInfo]:
        """The state tables of all steps at the newest epoch: step, state, an upper bound of the rows, bytes.

        >>> [(info.state, info.rows) for info in pond.states() if info.step == "count"]
        [('n', 1)]
        """
        return self._reader.states()

    def state(
        self, step: str, name: str, *, epoch: int | str | None = None, unpickle: bool = False
    ) -> pa.Table:
        """The rows of a state; untyped state is returned as pickles, or with `unpickle` as text.

        >>> pond.state("count", "n").column_names
        ['page', 'n']
        """
        return self._reader.state(step, name, epoch=epoch, unpickle=unpickle)

    def state_rows(self, step: str, name: str, *, epoch: int | str | None = None) -> list[dict[str, Any]]:
        """The rows of a state as Python objects; this unpickles untyped state.

        >>> pond.state_rows("count", "n")
        [{'page': 'home', 'n': 1}]
        """
        return self._reader.state_rows(step, name, epoch=epoch)

    def export(
        self, step: str, state: str, path: str | os.PathLike[str], *, epoch: int | str | None = None
    ) -> int:
        """Write a state to one Parquet file, completely or not at all; returns the number of rows.

        >>> pond.export("count", "n", tmp / "counts.parquet")
        1
        """
        return self._reader.export(step, state, path, epoch=epoch)

    def errors(self, view: str | None = None, *, epoch: int | str | None = None) -> pa.Table:
        """Rows that could not be processed: `step`, `row` as JSON, `reason`, and how many: `weight`.

        >>> with pond.changing():
        ...     _ = orders.map(lambda row: {"x": 1 // (row.n - 5)}, {"x": int}, id="divide").view("quotients")
        >>> [(row["step"], row["weight"]) for row in pond.errors("quotients").to_pylist()]
        [('divide', 1)]
        """
        return self._reader.errors(view, epoch=epoch)

    def late(self, step: str, *, epoch: int | str | None = None) -> pa.Table:
        """The late rows that a watermark step stores.

        >>> visits = MemorySource({"page": str, "at": datetime.datetime})
        >>> with pond.changing():
        ...     _ = pond.stream("visits", visits, event_time="at").distinct().view("pages")
        >>> visits.push([{"page": "home", "at": datetime.datetime(2024, 1, 2)}])
        >>> _ = pond.drain()
        >>> visits.push([{"page": "cart", "at": datetime.datetime(2024, 1, 1)}])
        >>> _ = pond.drain()
        >>> pond.late("visits.watermark").column("page").to_pylist()
        ['cart']
        """
        return self._reader.late(step, epoch=epoch)

    def clear_errors(self, view: str | None = None) -> None:
        """Drop the error rows of one view's steps, or all; the totals stay.

        While another process runs the pond, that process does it, soon after this returns.

        >>> pond.clear_errors()
        >>> pond.errors().num_rows
        0
        """
        commands.clear_errors(self._inbox, view)

    def clear_late(self, step: str | None = None) -> None:
        """Drop the late rows of one watermark step, or all; the totals stay.

        A new view over the step cannot be backfilled afterwards: it would treat the dropped rows as on time.

        >>> pond.clear_late()
        """
        commands.clear_late(self._inbox, step)

    # -- the time machine --------------------------------------------------------------------

    def epochs(self, last: int | None = 20) -> list[EpochSummary]:
        """The committed epochs that can still be read, newest last; all of them with `last=None`.

        >>> [summary.epoch for summary in pond.epochs()]
        [0, 1]
        """
        if last is not None:
            need_number("last", last, 0)
        return summaries(self._reader, last)[0]

    def watermarks(self) -> pa.Table:
        """How far event time has come, by step, source and partition, at the newest epoch.

        >>> taps = MemorySource({"at": datetime.datetime})
        >>> with pond.changing():
        ...     _ = pond.stream("taps", taps, event_time="at", delay="5s").view("all_taps")
        >>> taps.push([{"at": datetime.datetime(2024, 1, 1, 10)}])
        >>> _ = pond.drain()
        >>> row = pond.watermarks().to_pylist()[0]
        >>> row["step"], str(row["watermark"]), row["event_lag_ms"], row["state"]
        ('taps.watermark', '2024-01-01 09:59:55', 5000.0, 'active')
        """
        return self._components.watermarks(self._execution.plan)

    def source_lag(self) -> pa.Table:
        """How far each partition of the Kafka sources is behind, at the newest epoch; asks the brokers.

        >>> pond.source_lag().column_names
        ['source', 'partition', 'position', 'end', 'lag']
        """
        return self._components.source_lag(self._execution.plan)

    def scaling(self) -> pa.Table:
        """The decisions of `autoscale`, with their reasons, in the epochs that can be read.

        >>> pond.scaling().column_names
        ['epoch', 'at', 'mode', 'before', 'tasks', 'rows_per_s', 'levels', 'reason', 'symptoms', 'executors']
        """
        return scaling_decisions(self._reader)

    def savepoints(self) -> dict[str, int]:
        """The savepoints: the epoch of each name.

        >>> pond.savepoint("before-sale")
        >>> pond.savepoints()
        {'before-sale': 1}
        """
        return dict(self._reader.head().savepoints)

    def at(self, epoch: int | str | None = None) -> Moment:
        """The pond as of an epoch or a savepoint, read-only; later epochs do not change it.

        >>> with pond.at(0) as moment:
        ...     moment.read("totals").num_rows
        0
        """
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
        """Run one committed epoch again, in this process, and compare the results; the pond does not change.

        Your functions run here, so a breakpoint in them works.  `on_input(step, inputs)` is called before
        each step (or the one named), `on_error(error)` for every exception that leaves your code.  The code
        is what the pond stored; `plan` is another plan to try, for example `other_pond.plan`.

        >>> pond.replay(1).same
        True
        """
        return replay_epoch(
            self._components, epoch, step=step, on_input=on_input, on_error=on_error, plan=plan
        )

    # -- inside ----------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine, started on first use.

        >>> pond.engine.default_parallelism > 0
        True
        """
        return self._execution.engine

    @property
    def _runner(self) -> Runner | None:
        """The runner of the epochs, while this process holds the pond."""
        return self._execution.runner


if not TYPE_CHECKING:
    open = with_call_errors(open, "open")
