"""All settings of a pond, with defaults; names end with the unit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from millpond.errors import InvalidError


@dataclass(frozen=True)
class Settings:
    durable: bool = True  # fsync every commit: it survives power loss
    epoch_rows_max: int = 16_000_000  # rows that one epoch may admit
    epoch_bytes_max: int = 1 << 30  # bytes that one epoch may admit
    target_ms: int = 1_000  # how long an epoch should take
    catch_up_ms: int = 4_000  # how long it may take when behind
    # the number of tasks is as it was set ("off"), follows the load ("on"), or is only recommended ("advise")
    autoscale: str = "off"
    tasks_min: int = 1  # with autoscale
    tasks_max: int = 0  # with autoscale; 0: as many as there are cores
    executors_min: int = 1  # with autoscale
    executors_max: int = 0  # with autoscale, on a cluster; 0: the number of executors is not changed
    backlog_ms_max: int = 60_000  # with autoscale: how long it may take until no row waits
    scaling_pause_ms: int = 30_000  # with autoscale: between two changes
    poll_ms: int = 100  # how often sources are polled when there was nothing to read
    retain_epochs: int = 1_000  # how many epochs stay readable
    error_rows_max: int = 100_000  # how many error rows are retained, over all steps
    error_keep_ms: int = 30 * 86_400_000  # how long they are retained
    # how many late rows each watermark retains; backfills of new views use them
    late_rows_max: int = 1_000_000
    late_keep_ms: int = 366 * 86_400_000  # how long they are retained
    collect_every: int = 50  # epochs between two collections of garbage
    compact: bool = True  # merge runs in the background
    fan_in: int = 6  # runs of similar size that are merged together
    compaction_unit_bytes: int = 64 << 20  # of one unit of a merge; it needs six times as much memory
    # rounds of a WITH RECURSIVE, for views created with it; rows of later rounds are errors
    rounds_max: int = 1_000
    # rows that one epoch of a WITH RECURSIVE may produce; beyond, it stops
    recursion_rows_max: int = 4_000_000
    recursion_copies_max: int = 1_000_000  # copies of one row in one round of a UNION ALL; more are errors
    select_memory_bytes_max: int = 2 << 30  # memory that a SELECT may use; the rest spills to disk
    select_spill_bytes_max: int = 10 << 30  # disk space that a SELECT may use
    select_ms_max: int = 600_000  # how long a SELECT may take; 0: no limit
    select_rows_max: int = 0  # rows that a SELECT may return; 0: no limit
    # call process functions for many keys in one call, if the result is the same
    vectorize_user_code: bool = True
    checks: bool = False  # check every operator's output; for tests
    lease_ms: int = 4_000  # a standby considers a coordinator dead after this time of silence
    sink_close_ms: int = 10_000  # how long close() waits for a sink that is still delivering
    reader_ms: int = 600_000  # how long a reader's pin holds before it must be renewed
    store_wait_ms: int = 300_000  # how long a call waits for a bucket that does not answer
    cache_bytes: int = 10 << 30  # local disk space for the cache of a remote pond


LEAST = {
    "fan_in": 2,
    "tasks_max": 0,
    "executors_max": 0,
    "select_ms_max": 0,
    "select_rows_max": 0,
}  # merging a single run would never end; all other settings start at 1


CHOICES = {"autoscale": ("off", "advise", "on")}


def make_settings(**given: Any) -> Settings:
    """Settings from keyword arguments; unknown names are refused with the closest known one.

    >>> make_settings(target_ms=250).target_ms
    250
    """
    import difflib

    known = {f.name: f.type for f in fields(Settings)}
    for name, value in given.items():
        if name not in known:
            matches = difflib.get_close_matches(name, known, 1)
            raise InvalidError(
                f"no setting named {name!r}",
                hint=f"did you mean {matches[0]!r}?" if matches else f"known settings: {', '.join(known)}",
            )
        wants_bool, least, choices = known[name] == "bool", LEAST.get(name, 1), CHOICES.get(name)
        if choices is not None:
            good = value in choices
        elif wants_bool:
            good = isinstance(value, bool)
        else:
            good = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if not good:
            takes = "True or False" if wants_bool else f"a whole number, at least {least}"
            if choices is not None:
                takes = " or ".join(repr(choice) for choice in choices)
            raise InvalidError(f"setting {name!r} cannot be {value!r}", hint=f"it takes {takes}")
    return Settings(**given)
