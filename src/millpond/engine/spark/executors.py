"""Counts the executors of a cluster, and says so while there are none.

A job on a cluster without executors waits for ever, and Spark says nothing that a user of the session sees.
Law: nothing here changes what runs; it waits, counts and reports.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from millpond.errors import UnavailableError

SAY_EVERY_S = 5.0
WAIT_S = 600.0  # for the first executor
SETTLE_S = 3.0  # for the others: they register within moments of each other
LOOK_S = 0.1
OnWait = Callable[[str], None]
log = logging.getLogger("millpond.engine")


def executor_count(context: Any) -> int:
    """The executors that have registered; the driver is not one of them."""
    return max(0, int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1)


def core_count(context: Any) -> int:
    """The cores of the cluster, as far as executors have registered."""
    return max(1, int(context._jsc.sc().defaultParallelism()))


def wait_for_executors(
    context: Any,
    on_wait: OnWait | None = None,
    *,
    wait_s: float = WAIT_S,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Return when executors have registered and no more come, so that tasks can be counted by cores.

    Says every few seconds that there are none; raises UnavailableError after `wait_s`.
    """
    began = said = monotonic()
    while executor_count(context) == 0:
        waited = monotonic() - began
        if waited >= wait_s:
            raise UnavailableError(
                f"no executor registered with the driver for {waited:.0f} s",
                detail=f"the master is {context.master}",
                hint="see whether the cluster has free cores and memory, and whether its workers reach the "
                "driver (spark.driver.host, spark.driver.port)",
            )
        if monotonic() - said >= SAY_EVERY_S:
            said = monotonic()
            _say(no_executors(waited, context.master), on_wait)
        sleep(LOOK_S)
    wanted = _wanted(context)
    cores, since = core_count(context), monotonic()
    while monotonic() - since < SETTLE_S and (wanted is None or executor_count(context) < wanted):
        sleep(LOOK_S)
        if core_count(context) != cores:
            cores, since = core_count(context), monotonic()
    if on_wait is not None:
        on_wait("")


def no_executors(waited_s: float, master: str) -> str:
    """
    >>> no_executors(12.3, "spark://h:7077")
    'no executors for 12 s: spark://h:7077 has not given any, or they are lost'
    """
    return f"no executors for {waited_s:.0f} s: {master} has not given any, or they are lost"


def _wanted(context: Any) -> int | None:
    """How many executors the user asked for, if that is known."""
    value = context._jsc.sc().conf().get("spark.executor.instances", "")
    return int(value) if value.isdecimal() else None


def _say(text: str, on_wait: OnWait | None) -> None:
    log.warning("%s", text)
    if on_wait is not None:
        on_wait(text)


class ExecutorWatch:
    """A thread that says when jobs wait because all executors are lost."""

    def __init__(self, context: Any, is_busy: Callable[[], bool], on_wait: OnWait | None) -> None:
        self._context = context
        self._is_busy = is_busy
        self._on_wait = on_wait
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="millpond-executors", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        from py4j.protocol import Py4JError

        missing_since: float | None = None
        while not self._ended.wait(SAY_EVERY_S):
            try:
                missing = self._is_busy() and executor_count(self._context) == 0
            except (Py4JError, OSError, AttributeError):
                return  # the session has ended
            now = time.monotonic()
            if missing:
                missing_since = now - SAY_EVERY_S if missing_since is None else missing_since
                _say(no_executors(now - missing_since, self._context.master), self._on_wait)
            elif missing_since is not None:
                missing_since = None
                log.warning("there are executors again")
                if self._on_wait is not None:
                    self._on_wait("")
