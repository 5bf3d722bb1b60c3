"""The public face: `open` and `Pond`.

A pond is a folder (or a bucket): its manifests, runs, catalog and inbox.  A
`Pond` object defines a pipeline over it, runs it, and reads it; any number of
other processes may read and write rows and commands at the same time.

Law: a method here says what it promises and hands over; it holds no state of its own.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from millpond.clock import Clock, SystemClock
from millpond.engine.backfill import OnProgress, Progress
from millpond.engine.bootstrap import Rows as StateRows
from millpond.engine.coordinator import require_parallelism
from millpond.engine.engine import Engine
from millpond.engine.migration import Functions
from millpond.engine.runner import Runner
from millpond.engine.watching import OnError, OnInput
from millpond.engine.worker import Worker
from millpond.errors import InvalidError, nearest
from millpond.flow.builder import Builder
from millpond.flow.calls import checked, need_callable, need_number, need_text, told
from millpond.flow.durations import Duration
from millpond.flow.names import check_name
from millpond.flow.schemas import Like
from millpond.flow.stream import Stream, ViewHandle
from millpond.plan.change import renamed, swapped, without_views
from millpond.plan.dangers import require_for_fork
from millpond.plan.explain import explain_text, mermaid
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.plan.tables import late_steps
from millpond.pond import definitions, rewriting
from millpond.pond.door import Door
from millpond.pond.driver import Driver, EngineName
from millpond.pond.parts import Parts
from millpond.pond.places import backup_store, restore_stores, uri_of
from millpond.pond.places import store_options as options_of
from millpond.pond.program import Program
from millpond.pond.rows import Rows, held
from millpond.pond.status import Status, status_of
from millpond.pond.watch import OnEpoch, Watch
from millpond.serve.backup import Backup, OnCopy, back_up
from millpond.serve.moment import Moment
from millpond.serve.reader import Delta, Reader
from millpond.serve.replay import Replay
from millpond.serve.replay import replay as run_again
from millpond.serve.restore import Restored
from millpond.serve.restore import restore as make_restored
from millpond.serve.states import StateInfo
from millpond.serve.summaries import EpochSummary, summaries
from millpond.settings import Settings, make_settings
from millpond.state.fork import fork as make_fork
from millpond.state.manifest import Manifest
from millpond.state.store import Store, open_store
from millpond.state.trust import Trust

if TYPE_CHECKING:
    from millpond.sql.parameters import Params
    from millpond.sql.result import Result
    from millpond.sql.session import Session


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
    **settings: Any,
) -> Pond:
    """Open a pond, or make one.  Nothing runs and no Spark starts before it is needed.

    `engine="inline"` runs everything in this process, without a JVM.  `spark` takes your own
    session.  With `standby` the first drain(), start() or run() does not return while another process runs
    the pond: it waits, takes over when that falls silent, and ends with stop() or close().  Whom it waits
    for is told on the log (`millpond.pond`, level INFO).  Without it, running a pond that another process,
    or another Pond of this process, holds is refused with a ConflictError; with `take_over` the pond is taken
    from that holder, whose next commit fails.
    `path` may be a uri such as ``s3://bucket/pond``; `store_options` are then its endpoint, region and
    the like.  `settings` are the fields of `millpond.settings.Settings`.

    Reading a pond never runs code that is stored in it.  Running it does, and is refused unless the pond's
    folder belongs to you; with `trust` you say that everybody who can write to the pond may run code here.
    """
    if engine not in ("spark", "inline"):
        raise InvalidError(f"no engine named {engine!r}", hint='"spark" or "inline"')
    if parallelism is not None:
        require_parallelism(parallelism)
    if on_epoch is not None:
        need_callable("on_epoch", on_epoch)
    if clock is not None and not hasattr(clock, "now_us"):
        raise InvalidError(
            "clock must be a clock", detail=f"got {clock!r}", hint="millpond.clock.ManualClock()"
        )
    if standby and take_over:
        raise InvalidError(
            "standby and take_over exclude each other",
            hint="standby waits for the holder of the pond, take_over does not",
        )
    chosen = make_settings(**settings)
    uri = uri_of(path)
    options = options_of(uri, chosen, store_options or {})
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
        take_over=take_over,
        trust=trust,
        store_options=options,
    )


def restore(
    backup: str | os.PathLike[str],
    pond: str | os.PathLike[str],
    epoch: int | None = None,
    *,
    new_id: bool = False,
    on_progress: OnCopy | None = None,
    store_options: Mapping[str, Any] | None = None,
) -> Restored:
    """Make a pond of a backup: of the newest in that place, or of the newest of an epoch.

    The pond continues from that epoch, with the id of the one it replaces.  With `new_id` it is another pond
    to sinks.  `pond` must be an empty place; a restore that was cut short is completed by another.
    `store_options` are for the bucket, of the backup or of the pond.
    """
    source, target = restore_stores(backup, pond, Settings(), store_options or {})
    return make_restored(source, target, epoch, new_id=new_id, on_progress=on_progress)


@checked
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
        on_epoch: OnEpoch | None = None,
        standby: bool = False,
        take_over: bool = False,
        trust: bool = False,
        store_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._worker = Worker(store, trust=Trust(store, trust))
        self._builder = Builder()
        self._reader = Reader(self._worker, clock=self._clock, reader_ms=self.settings.reader_ms)
        self._parts = Parts(
            store,
            self.settings,
            self._clock,
            self._worker,
            self._builder,
            self._reader,
            dict(store_options or {}),
            parallelism,
            standby,
            take_over,
        )
        self._watch = Watch(on_epoch)
        self._driver = Driver(self._parts, self._watch, engine, spark)
        self._door = Door(self._parts, self._driver)
        self._program = Program(self._parts, self._driver, self._door, self._watch)
        self._session: Session | None = None

    def __enter__(self) -> Pond:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._close(raises=kind is None)  # what left the block is not hidden by what failed before

    # -- defining -------------------------------------------------------------------

    def stream(self, name: str, source: Any, *, event_time: str | None = None, delay: Duration = 0) -> Stream:
        """Rows of a source; with `event_time`, rows more than `delay` behind the newest are late."""
        return definitions.stream(self._builder, self.store, name, source, event_time, delay)

    def table(self, name: str, schema: Like, *, key: str | Sequence[str] | None = None) -> ViewHandle:
        """A table that any process can change with insert() and delete(); with a key, insert() replaces."""
        return definitions.table(self._builder, name, schema, key)

    def stream_of(self, name: str) -> Stream:
        """What has this name, in SQL or here, to go on from: a table, a source or a materialized view."""
        return definitions.stream_of(self._builder, self.plan, name)

    @property
    def plan(self) -> Plan:
        """What this process runs or defined, or else what the pond was last run with."""
        return self._driver.plan

    def explain(self, format: Literal["text", "mermaid"] = "text") -> str:
        """The plan with its levels, exchanges and state tables, as text or as a drawing."""
        if format not in ("text", "mermaid"):
            raise InvalidError(f"no format named {format!r}", hint='"text" or "mermaid"')
        plan, head = self.plan, self._parts.head()
        if format == "mermaid":
            return mermaid(plan, cut(plan))
        return explain_text(plan, cut(plan), () if head is None else head.detached)

    def sql(self, text: str, *, params: Params = None, dialect: str = "postgres", **limits: int) -> Result:
        """Run one or several statements; what the last one answers.

        `limits` are the settings of reads, `select_ms_max` and the like, for this call alone.

        Definitions are committed, and changes durable, when this returns.  Parameters (`?`, `$1`, `:name`)
        are values and never become part of the text.

        >>> pond = open("memory://", engine="inline")
        >>> _ = pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 2); FLUSH")
        >>> pond.sql("SELECT n FROM t WHERE id = ?", params=[1]).fetchall()
        [(2,)]
        """
        return self.session.run(text, params, dialect, limits)

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
        _need_plan("change", plan)
        return self._program.change(plan, on_progress, base)

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
        with self._program.changing(on_progress):
            yield self

    def replace(self, *views: str, backfill: bool = True) -> None:
        """Let views of this program take the place of those that the pond has under their names.

        Call it after the definitions and before drain(), start() or run().  Then a view whose definition
        changed is built from what the pond holds (tables, views and sources that can be read again) and
        takes the place of the old one in one commit, together with all views that are built on it.  A view
        that did not change stays as it is, so the call may stay in the program.  Without names it is
        said of all views.  With ``backfill=False`` a changed view begins empty, with the rows that come next.

        >>> pond = open("memory://", engine="inline")
        >>> orders = pond.table("orders", {"city": str, "n": int})
        >>> _ = orders.key_by("city").aggregate(total="sum(n)").view("by_city")
        >>> pond.replace("by_city")
        """
        definitions.replace(self._builder, views, backfill)

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Drop a view and the steps that only it needs; refused when others use it, unless they go too.

        A view that the pond has and this program no longer defines is dropped when the pond runs next.
        """
        if definitions.drops_later(self._parts, name, cascade):
            return
        self._program.edit(lambda plan: without_views(plan, [name], cascade=cascade))

    def rename_view(self, name: str, to: str) -> None:
        """Give a view another name, in one commit; its sinks follow it."""
        check_name("a view", to, taken=[v for v in self.plan.views if v != name])
        self._program.edit(lambda plan: renamed(plan, name, to))

    def swap_views(self, one: str, other: str) -> None:
        """Give two views each other's name, in one commit; sinks stay with the name they read."""
        self._program.edit(lambda plan: swapped(plan, one, other))

    @property
    def progress(self) -> Progress | None:
        """How far the backfill is that is running, if one is."""
        return self._watch.progress

    # -- running -----------------------------------------------------------------------

    def drain(self) -> int:
        """Run epochs until the sources have nothing more to give; the epoch that holds it all.

        A sink that fails does not stop it: its error is raised at the end, and it goes on from there.
        stop(), from a signal handler or another thread, ends it after the epoch that is running.
        """
        return self._door.drain()

    def start(self) -> None:
        """Run in the background until stop().

        An error ends it: it is logged with its traceback, `status` shows it, and every call that runs, waits
        or writes raises it until stop() or start() has.
        """
        self._driver.start()

    def stop(self) -> None:
        """Stop after the epoch that is running; raises what went wrong, if anything did."""
        self._driver.stop()

    def run(self) -> None:
        """Run in the foreground until interrupted."""
        self._driver.run()

    def close(self) -> None:
        """Stop, release the lease and what was started for this pond.

        Everything is released first.  Then an error of the background thread that no other call has raised
        is raised here; at the end of a `with` block only if nothing else left the block.  A sink that does
        not return within `sink_close_ms` is left behind, with a warning on the log.
        """
        self._close(raises=True)

    def _close(self, *, raises: bool) -> None:
        try:
            self._driver.close(raises=raises)
        finally:
            if self._session is not None:
                self._session.close()

    def on_epoch(self, function: OnEpoch) -> None:
        """Call a function with every epoch that this process commits, after those given before."""
        need_callable("on_epoch", function)
        self._watch.on_epoch(function)

    @property
    def status(self) -> Status:
        """How it is doing now: state, newest epoch, lag, last error, sinks; a frozen value.

        >>> open("memory://", engine="inline").status.state
        'new'
        """
        return status_of(self._driver)

    @property
    def backlog_rows(self) -> int:
        """Rows that the sources of this running pipeline told of and that no epoch has taken yet."""
        runner = self._runner
        return 0 if runner is None else runner.coordinator.backlog_rows

    def rescale(self, n: int) -> None:
        """Change the parallelism of the next epochs, while it runs, without moving state."""
        require_parallelism(n)
        self._door.command("rescale", {"parallelism": n})

    def savepoint(self, name: str) -> None:
        """Name the newest epoch; it stays readable until the name is dropped."""
        check_name("a savepoint", name)
        self._reader.head()  # of a pond that is there
        if name.isdecimal():
            raise InvalidError(
                f"{name!r} cannot be the name of a savepoint", detail="it would be taken for an epoch"
            )
        self._door.command("savepoint", {"name": name})

    def drop_savepoint(self, name: str) -> None:
        """Forget the name of an epoch; it may then be collected once it is old."""
        need_text("the name of a savepoint", name)
        known = self._reader.head().savepoints
        if self._runner is not None and name not in known:
            raise InvalidError(
                f"no savepoint named {name!r}",
                detail=f"savepoints are {', '.join(sorted(known)) or 'none'}",
                hint=nearest(name, known),
            )
        self._door.command("drop_savepoint", {"name": name})

    def rollback(self, epoch: int | str, *, force: bool = False) -> None:
        """Go back to an older epoch by a forward commit: state, offsets and watermarks.

        Refused where an append-only sink has shown rows that would have to go.  With `force` these rows stay
        in its target, and what the sources give again is appended again.
        """
        head = self._reader.head()
        wanted = self._reader._resolve(head, _need_epoch("rollback", epoch))
        if wanted < head.floor and wanted not in head.savepoints.values():
            raise InvalidError(f"epoch {wanted} is no longer kept", detail=f"the floor is {head.floor}")
        self._program.require_return(head, wanted)
        if not force:
            self._reader.require_behind_no_sink(head, wanted)
        self._door.command("rollback", {"epoch": wanted, **({"force": True} if force else {})})

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
        return rewriting.migrate(self._parts, self._driver, step, function, state)

    def bootstrap(self, step: str, state: str, rows: StateRows, *, replace: bool = False) -> int:
        """Fill a state of a step from an Arrow table or dicts, in one commit; the number of rows.

        Columns are those of `pond.state(step, state)`.  A state that has rows is only replaced if told so.
        """
        return rewriting.bootstrap(self._parts, self._driver, step, state, rows, replace=replace)

    def fork(self, path: str | os.PathLike[str], *, epoch: int | str | None = None) -> int:
        """Begin a new pond at `path` with the state of this one, without copying it; the epoch it begins as.

        The fork has its own id and history, and its sinks are detached: what it does reaches no target of
        this pond before attach_sink().
        """
        uri = uri_of(path)
        child = open_store(uri, **options_of(uri, self.settings, {}))
        with self._reader.pinned(epoch) as snapshot:
            plan = self._reader.plan_of(snapshot.manifest)
            require_for_fork(plan, self._worker.trust)
            make_fork(
                self.store,
                child,
                snapshot.epoch,
                pond=uuid.uuid4().hex,
                now_us=self._clock.now_us(),
                sinks=plan.sinks,
            )
            return snapshot.epoch

    def attach_sink(self, name: str, *, replay: bool = False) -> None:
        """Let a detached sink get changes again: from the next epoch on, or with `replay` all since it was
        detached.

        The sinks of a fork begin detached.
        """
        self._door.switch_sink(name, attach=True, replay=replay)

    def detach_sink(self, name: str) -> None:
        """Let a sink get nothing more, until attach_sink(); it survives a restart."""
        self._door.switch_sink(name, attach=False)

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
        `millpond.restore` makes a pond of it.
        """
        store = backup_store(target, self.settings, store_options or {})
        return back_up(self._reader, store, epoch, verify=verify, on_progress=on_progress, clock=self._clock)

    def compact(self) -> None:
        """Merge the runs of every table into one, now."""
        self._driver.compact()

    # -- changing tables ------------------------------------------------------------------

    def insert(self, table: str, rows: Rows) -> int:
        """Put rows into a table; durable when it returns. The number of its inbox entry."""
        return self._door.rows(table, held(self.plan, table, rows), 1)

    def delete(self, table: str, rows: Rows) -> int:
        """Take rows out: by key if the table has one, else equal rows."""
        return self._door.rows(table, held(self.plan, table, rows), -1)

    def flush(self, timeout_s: float = 60.0) -> int:
        """Wait until all earlier inbox entries are in a committed epoch; that epoch.

        In the background sources may never run dry: then of them it holds what one epoch takes.  Where
        another process runs the pipeline, that one is waited for.
        """
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
            raise InvalidError("timeout_s must be a number of seconds", detail=f"got {timeout_s!r}")
        return self._door.flush(timeout_s)

    # -- reading -------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The newest committed epoch."""
        return self._reader.head().epoch

    def head(self) -> Manifest:
        return self._reader.head()

    def views(self) -> list[str]:
        return sorted(self.plan.views)

    def read(self, view: str, *, epoch: int | str | None = None) -> pa.Table:
        """All rows of a view, at the newest epoch, an older one, or a savepoint."""
        return self._reader.read(view, epoch=epoch)

    def lookup(self, view: str, key: Any, *, epoch: int | str | None = None) -> pa.Table:
        """The rows of one key, or of a list of keys, in milliseconds."""
        return self._reader.lookup(view, key, epoch=epoch)

    def diff(self, view: str, e1: int | str, e2: int | str) -> pa.Table:
        """What changed between two epochs: rows with their weight `_w`."""
        return self._reader.diff(view, _need_epoch("diff", e1), _need_epoch("diff", e2))

    def changes(self, view: str, since: int | None = None, *, follow: bool = False) -> Iterator[Delta]:
        """An iterator of the changes of each epoch after `since`."""
        return self._reader.changes(view, since, follow=follow, check=self._driver.check)

    def states(self) -> list[StateInfo]:
        """The state tables of all steps at the newest epoch: step, state, at most so many rows, bytes."""
        return self._reader.states()

    def state(
        self, step: str, name: str, *, epoch: int | str | None = None, unpickle: bool = False
    ) -> pa.Table:
        """The rows of a state; of untyped state the pickles, or with `unpickle` what they show as text."""
        return self._reader.state(step, name, epoch=epoch, unpickle=unpickle)

    def state_rows(self, step: str, name: str, *, epoch: int | str | None = None) -> list[dict[str, Any]]:
        """The rows of a state as Python objects; this unpickles untyped state."""
        return self._reader.state_rows(step, name, epoch=epoch)

    def export(
        self, step: str, state: str, path: str | os.PathLike[str], *, epoch: int | str | None = None
    ) -> int:
        """Write a state as one Parquet file, which is there whole or not at all; the number of rows."""
        return self._reader.export(step, state, path, epoch=epoch)

    def errors(self, view: str | None = None, *, epoch: int | str | None = None) -> pa.Table:
        """Rows that could not be processed: `step`, `row` as JSON, `reason`, and how many alike: `weight`."""
        return self._reader.errors(view, epoch=epoch)

    def late(self, step: str, *, epoch: int | str | None = None) -> pa.Table:
        """Rows that came after their time."""
        return self._reader.late(step, epoch=epoch)

    def clear_errors(self, view: str | None = None) -> None:
        """Drop the error rows of one view's steps, or all; the totals stay.

        While another process runs the pond, that one does it, soon after this returns.
        """
        if view is not None and view not in self.plan.views:
            raise InvalidError(
                f"no view named {view!r}",
                detail=f"views are {', '.join(sorted(self.plan.views)) or 'none'}",
                hint="name a view, or no view for all error rows",
            )
        self._door.command("clear_errors", {} if view is None else {"view": view})

    def clear_late(self, step: str | None = None) -> None:
        """Drop the late rows of one watermark step, or all; the totals stay.

        A new view over the step cannot be filled afterwards: it would take the dropped rows for on time.
        """
        known = late_steps(self.plan)
        if step is not None and step not in known:
            raise InvalidError(
                f"step {step!r} keeps no late rows",
                detail=f"those that do are {', '.join(known) or 'none'}",
                hint="name a watermark step, or no step for all late rows",
            )
        self._door.command("clear_late", {} if step is None else {"step": step})

    # -- the time machine --------------------------------------------------------------------

    def epochs(self, last: int | None = 20) -> list[EpochSummary]:
        """What was committed and can still be read, newest last; all of it with `last=None`."""
        if last is not None:
            need_number("last", last, 0)
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
        if plan is not None:
            _need_plan("replay", plan)
        for what, function in (("on_input", on_input), ("on_error", on_error)):
            if function is not None:
                need_callable(what, function)
        return run_again(
            self._reader,
            _need_epoch("replay", epoch),
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
        return self._driver.engine

    @property
    def _runner(self) -> Runner | None:
        """What runs the chain, while this process holds the pond."""
        return self._driver.runner


def _need_epoch(what: str, epoch: Any) -> Any:
    if epoch is None:
        raise InvalidError(f"{what}() needs an epoch", hint="a number, or the name of a savepoint")
    return epoch


def _need_plan(what: str, plan: Any) -> None:
    if not isinstance(plan, Plan):
        raise InvalidError(
            f"{what}() needs a plan",
            detail=f"got {type(plan).__name__} {plan!r}"[:200],
            hint="pass other_pond.plan",
        )


if not TYPE_CHECKING:
    open = told(open, "open")
