"""Runs the chain of epochs, in the caller's thread or in a background thread.

Law: one thread runs epochs at a time, and only while this process holds the pond.  A runner that broke is
discarded, and the next call, or another process, starts one from the head manifest.  A failure in the
background is logged as an error, shown in the status, and raised by every call that runs, waits or writes
until stop() or start() has raised it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NoReturn

from millpond.cancellation import check_cancelled
from millpond.control import lease
from millpond.control.lease_watch import LeaseWatch
from millpond.engine.coordinator.inbox_polling import open_epoch
from millpond.engine.coordinator.protocol import StateRewrite
from millpond.engine.coordinator.runner import Runner
from millpond.engine.engine import Engine, RemoteEngine
from millpond.engine.inline import InlineEngine
from millpond.errors import (
    ConflictError,
    HeldError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)
from millpond.plan.nodes import Plan
from millpond.pond import open_ponds
from millpond.pond.boot import new_runner, plans_to_run
from millpond.pond.components import Components
from millpond.pond.listeners import Listeners
from millpond.state.backup_record import refuse_backup
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.store import prove_put_new
from millpond.state.store.waiting_store import waiting_store

EngineName = Literal["spark", "inline"]
WAIT_S = 600.0  # how long a call waits for the background thread
log = logging.getLogger("millpond.pond")


class StandbyStoppedError(UnavailableError):
    """stop() was called while a standby waited."""


class Execution:
    """Holds a pond in this process and runs its epochs; one for each `Pond`."""

    def __init__(
        self,
        components: Components,
        listeners: Listeners,
        engine: EngineName | Engine,
        spark: Any,
        session_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.components = components
        self.listeners = listeners
        self.runner: Runner | None = None  # set while this process holds the pond
        self.known_epoch = -1  # the newest epoch whose program this process uses
        self.keeper: lease.Keeper | None = None
        self._lease_watch = LeaseWatch(components.store, components.settings.lease_ms / 1000)
        self.thread: threading.Thread | None = None  # the background thread
        self.stopping = threading.Event()
        # the error of the background thread, until stop() has raised it
        self.failure: BaseException | None = None
        self.last_error: BaseException | None = None  # the error that ended the run, until it runs again
        self.standing_by = False
        self.closed = False
        self.place = open_ponds.location_of(components.store.uri)
        self._waiting_store = waiting_store(components.store)
        if self._waiting_store is not None:
            self._waiting_store.on_outage = listeners.waits_for_storage
        self._failure_raised = False  # has a call raised the failure?
        self._take_over = components.take_over  # once
        self._keeper_end: weakref.finalize[..., Any] | None = None
        self._asked = engine
        self._spark = spark
        self._session_options = dict(session_options or {})  # of the session that is started without one
        self._engine: Engine | None = None
        self._engine_lock = threading.Lock()
        self._warming: threading.Thread | None = None  # starts the engine of a standby while it waits
        self._lock = threading.RLock()  # held by the thread that runs epochs in the foreground
        self._running_thread: int | None = None  # the id of that thread

    # -- state -------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine, started on first use."""
        with self._engine_lock:
            return self._started_engine()

    def _started_engine(self) -> Engine:
        if self._engine is None:
            if not isinstance(self._asked, str):
                self._engine = self._asked
            elif self._asked == "inline":
                self._engine = InlineEngine(self.components.worker)
            else:
                from millpond.engine.spark.engine import SparkEngine

                self._engine = SparkEngine(
                    self._spark, on_wait=self.listeners.waits_for_executors, **self._session_options
                )
        return self._engine

    @property
    def plan(self) -> Plan:
        """The plan that this process runs or defined, or else the plan that the pond ran last."""
        if self.components.builder.plan.nodes:
            return self.components.builder.plan
        runner = self.runner
        if runner is not None:
            return runner.shell.plan
        head = self.components.head()
        return Plan() if head is None else self.components.reader.plan_of(head)

    @property
    def is_this_thread(self) -> bool:
        """Does this thread run the epochs, and is it now inside `on_epoch`?"""
        return threading.get_ident() in (self._running_thread, getattr(self.thread, "ident", None))

    @property
    def may_run(self) -> bool:
        """Can this thread run epochs: does neither our background thread nor another process run them?"""
        return self.thread is None and (self.runner is not None or self.elsewhere() is None)

    @property
    def in_background(self) -> bool:
        """Does our background thread run the pond?"""
        return self.thread is not None and self.thread.is_alive()

    @property
    def is_running(self) -> bool:
        """Does this process run epochs right now, in the background or in the foreground?"""
        return self.in_background or self._running_thread is not None

    @property
    def backlog_rows(self) -> int:
        """Rows that sources have announced and no epoch has read; 0 if this process does not run the pond."""
        runner = self.runner
        return 0 if runner is None else runner.coordinator.backlog_rows

    @property
    def newest_plan(self) -> Plan:
        """The plan of the newest epoch, or else the plan that this process defined."""
        head = self.components.head()
        return self.plan if head is None else self.components.reader.plan_of(head)

    def elsewhere(self) -> lease.Beat | None:
        """The lease of another holder that is alive: a process, or a Pond of this process."""
        other = open_ponds.other(self.place, self)
        if other is not None and other.in_background:
            return lease.latest(self.components.store)
        return self._lease_watch.holder()

    def check(self) -> None:
        """Raise the error of the background thread, if it failed."""
        if self.failure is not None:
            self._failure_raised = True
            _raise(self.failure)

    def check_waiting(self) -> None:
        """Raise if what a call waits for can no longer come, or if the call was cancelled."""
        check_cancelled()
        self.check()

    def require_open(self) -> None:
        if self.closed:
            raise InvalidError("this pond is closed", hint="open it again with millpond.open(...)")

    # -- running -----------------------------------------------------------------------

    def drain(self) -> int:
        if self.thread is not None:
            runner = self.running()
            polls = runner.idle_polls
            self.wait_until(lambda: runner.idle_polls >= polls + 2 and runner.quiet, WAIT_S, "a drain")
            _raise_failed_sinks(runner)
            return self.components.reader.head().epoch
        self._may_wait()
        try:
            with self.exclusive() as runner:
                runner.drain(until=self.stopping.is_set)
                _raise_failed_sinks(runner)
                assert runner.coordinator.head is not None
                return runner.coordinator.head.epoch
        except StandbyStoppedError:
            return self.components.reader.head().epoch

    def start(self) -> None:
        with self._lock:
            if self.thread is not None and self.failure is None:
                return
            self.stop()
            self._may_wait()
            try:
                runner = self.boot()
            except StandbyStoppedError:
                return
            self._may_wait()
            self.thread = threading.Thread(
                target=self._background, args=(runner,), name="millpond-chain", daemon=True
            )
            self.thread.start()

    def _background(self, runner: Runner) -> None:
        try:
            runner.run(self.stopping, self.components.settings.poll_ms)
        except BaseException as error:  # stored, and raised by the next call into the pond
            log.error("the pipeline stopped: %s", error, exc_info=error)
            self.last_error, self._failure_raised = error, False
            self.failure = error
            self._give_up(error)

    def stop(self) -> None:
        self._end_thread()
        if self.thread is not None:  # from on_epoch: it ends when that returns
            return
        failure, self.failure = self.failure, None
        if failure is not None:
            _raise(failure)

    def _end_thread(self) -> None:
        thread = self.thread
        self.stopping.set()
        if self._waiting_store is not None:
            self._waiting_store.hurry(True)
        if self.runner is not None:
            self.runner.wake()
        if thread is not None:
            if thread is threading.current_thread():  # from on_epoch: it ends when that returns
                return
            thread.join()
            self.thread = None

    def _may_wait(self) -> None:
        """Begin to run: until the next stop(), calls may wait for the storage."""
        self.stopping.clear()
        if self._waiting_store is not None:
            self._waiting_store.hurry(False)

    def run(self) -> None:
        self.check()
        if self.thread is not None:
            raise InvalidError("the pipeline runs in the background already", hint="stop() it first")
        self._may_wait()
        try:
            with self.exclusive() as runner:
                runner.run(self.stopping, self.components.settings.poll_ms)
        except (KeyboardInterrupt, StandbyStoppedError):
            return

    def compact(self) -> None:
        if self.thread is not None:
            runner = self.running()
            runner.compact_everything()
            self.wait_until(lambda: not runner.coordinator.merging, WAIT_S, "a compaction")
            return
        with self.exclusive() as runner:
            runner.compact_everything()
            runner.drain(settle=True)

    def close(self, *, raises: bool = True) -> None:
        """Release everything; then raise the error of the background thread, unless a call has raised it.

        With `raises=False` it is not raised: another exception is already propagating.
        """
        if self.closed:
            return
        self.closed = True
        try:
            self._end_thread()
        finally:
            self._let_go()
            if self._warming is not None:
                self._warming.join(WAIT_S)
            self.components.reader.close()
            if self._engine is not None:
                self._engine.close()
        failure, self.failure = self.failure, None
        if failure is not None and raises and not self._failure_raised:
            _raise(failure)

    def release(self) -> None:
        """Let another process run the pond, unless it runs here in the background."""
        with self._lock:
            if self.thread is None and self.runner is not None:
                self._let_go()
                self.components.builder.reopen(Plan())  # the program is what the other process runs

    # -- turns -------------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Runner]:
        """The runner, for this thread only; a failed one is discarded, and the next call starts another."""
        with self._lock:
            runner = self.boot()
            outer, self._running_thread = self._running_thread, threading.get_ident()
            try:
                yield runner
            except BaseException as error:
                if runner.broken:
                    self.last_error = error if isinstance(error, Exception) else None
                    self._give_up(error)
                raise
            finally:
                self._running_thread = outer

    def run_until(self, until: Callable[[], bool]) -> None:
        """Run epochs in this thread until a condition holds, which another thread may cause."""
        while not until():
            if self._lock.acquire(timeout=0.01):
                try:
                    with self.exclusive() as runner:
                        runner.drain(until=until)
                    return
                finally:
                    self._lock.release()

    def wait_until(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until the background thread, or another process, has done something; raises if it fails."""
        until = time.monotonic() + timeout_s
        while not done():
            check_cancelled()
            if time.monotonic() > until:
                raise UnavailableError(f"{what} took too long", detail=f"waited {timeout_s} s")
            if self.thread is not None:
                self.running().wake()
            time.sleep(0.01)

    def running(self) -> Runner:
        """The runner of the background thread."""
        self.check()
        runner = self.runner
        if runner is None:
            raise InternalError("the background thread has no runner")
        return runner

    @contextlib.contextmanager
    def at_rest(self, what: str) -> Iterator[Manifest | None]:
        """The head of a pond that no process runs; inside the block, this one does not run it either."""
        with self._lock:
            self.check()
            if self.thread is not None or self._running_thread is not None:
                raise InvalidError(
                    f"the pipeline is running, and {what} needs it at rest", hint="stop() it first"
                )
            self.require_open()
            self._let_go()
            self._wait_for_lease()
            yield self.components.head()

    # -- holding the pond --------------------------------------------------------------

    def boot(self, rewrite: StateRewrite | None = None) -> Runner:
        """Create the pond or take it over, if this process does not hold it yet."""
        self.check()
        if self.runner is not None and not self.closed:
            return self.runner
        components, rewritten = self.components, () if rewrite is None else rewrite.tables
        self.require_open()
        plans_to_run(components, components.head(), rewritten)  # checked before it waits
        self._wait_for_lease()
        self.require_open()
        open_ponds.claim(self.place, self, take_over=self._take_over)
        try:
            runner = self._new_runner(rewrite)
        except BaseException as error:
            self._give_up(error)
            raise
        self.runner = runner
        self._take_over = False
        self.last_error = None
        return runner

    def _new_runner(self, rewrite: StateRewrite | None) -> Runner:
        """A runner that holds the pond, with the program that was defined."""
        components = self.components
        head = components.head()  # a standby has waited: the head is newer now
        if head is None:
            refuse_backup(components.store)
        # From here on others wait for us.  When this object becomes unreachable, they need not wait any
        # longer.
        keeper = self.keeper = lease.Keeper(components.store, components.settings.lease_ms)
        self._keeper_end = weakref.finalize(self, keeper.release)
        self._keeper_end.atexit = False  # the lease names the process, so others see that it is gone
        plans = plans_to_run(components, head, () if rewrite is None else rewrite.tables)
        if head is None:
            prove_put_new(components.store)
        self.listeners.begin(head)
        engine = self.engine
        if components.builder.plan.nodes or head is None:
            if plans.wanted is not components.builder.plan:
                components.builder.adopt(plans.wanted, plans.ids)
            components.builder.seal()
        runner = new_runner(
            components,
            engine,
            head,
            plans,
            rewrite=rewrite,
            on_commit=self._committed,
            on_progress=self.listeners.progressed,
            stopped=lambda: self.thread is not None and self.stopping.is_set(),
        )
        try:
            runner.boot()
            keeper.token = runner.coordinator.token
            runner.make_ready()
        except BaseException:
            runner.close(self._sinks_s)
            raise
        return runner

    def boot_now(self) -> int:
        """Create the pond or take it over; returns its newest epoch."""
        with self.exclusive() as runner:
            assert runner.coordinator.head is not None
            return runner.coordinator.head.epoch

    def _wait_for_lease(self) -> None:
        """Refuse to take over from a live coordinator; a standby waits until it is silent."""
        if self._take_over:
            return
        store, silence_s = self.components.store, self.components.settings.lease_ms / 1000
        other = open_ponds.other(self.place, self)
        if self.components.standby:
            last = lease.latest(store)
            if last is None or last.over or (last.is_ours and other is None):
                return
            self.listeners.waits_for(last.holder)
            self._may_wait()
            self.standing_by = True
            self._warm_up()
            try:
                free = lease.silent_for(store, silence_s, stop=lambda: self.closed or self.stopping.is_set())
            finally:
                self.standing_by = False
            if not free:
                self.require_open()
                raise StandbyStoppedError("this standby was stopped", detail=f"{last.holder} runs the pond")
            return
        if other is not None:
            raise open_ponds.refusal(self.place)
        alive = lease.alive_elsewhere(store, silence_s)
        if alive is not None:
            raise HeldError(
                "this pond is being written by another process",
                detail=alive.described(),
                hint="stop that process first; open with standby=True (--standby) to wait until it is gone, "
                "or with take_over=True (--take-over) to take the pond from it",
            )

    def _warm_up(self) -> None:
        """Start the engine and read the program in a thread, so that a takeover need not.

        On a cluster whose cores are all in use, executors come only when the other process has ended; the
        thread waits for them, and the takeover for the thread.
        """
        if self._warming is None:
            self._warming = threading.Thread(target=self._warm, name="millpond-standby", daemon=True)
            self._warming.start()

    def _warm(self) -> None:
        components = self.components
        try:
            engine = self.engine
            if isinstance(engine, RemoteEngine):
                engine.shared(components.store.uri, components.options)
            head = components.head()
            if head is not None:
                components.reader.plan_of(head)
                open_epoch(components.worker, head)
            log.info("this standby is ready to take over")
        except MillpondError as error:  # the takeover tries again, and raises what is still wrong then
            log.warning("this standby is not ready to take over: %s", error.message)

    @property
    def _sinks_s(self) -> float:
        return self.components.settings.sink_close_ms / 1000

    def _give_up(self, error: BaseException) -> None:
        """Release a failed runner; another process may continue immediately, unless it caused the failure."""
        self._let_go(silently=isinstance(error, ConflictError), error=error)

    def _let_go(self, *, silently: bool = False, error: BaseException | None = None) -> None:
        runner, self.runner = self.runner, None
        keeper, self.keeper = self.keeper, None
        if runner is not None:
            runner.close(self._sinks_s)
        open_ponds.release(self)
        if keeper is not None and silently:
            keeper.stop()
        elif keeper is not None:
            keeper.release(None if error is None else _first_line(error))
        if self._keeper_end is not None:
            self._keeper_end.detach()
            self._keeper_end = None

    def _committed(self, manifest: Manifest) -> None:
        runner, builder = self.runner, self.components.builder
        known = builder.sealed and builder.plan.nodes  # not in the middle of changing()
        if runner is not None and known and manifest.kind in ("change", "rollback"):
            builder.reopen(runner.shell.plan)
            builder.seal()
        self.known_epoch = manifest.epoch
        self.listeners.committed(manifest)


def _raise_failed_sinks(runner: Runner) -> None:
    failed = runner.coordinator.failed_sinks
    for name in failed:
        runner.coordinator.retry_sink(name)
    for error in failed.values():
        raise error


def _first_line(error: BaseException) -> str:
    shown = error.message if isinstance(error, MillpondError) else str(error)
    return f"{type(error).__name__}: {shown}"


def _raise(failure: BaseException) -> NoReturn:
    if isinstance(failure, MillpondError):
        raise failure
    raise UnavailableError("the pipeline stopped", detail=repr(failure)) from failure
