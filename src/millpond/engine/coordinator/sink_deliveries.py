"""Delivers epochs to sinks, beside the chain: one delivery at a time per sink, in order.

Law 7: a cursor moves only after its epoch was delivered; so after a crash an epoch may be delivered again,
never skipped.  A failed sink is retried after a growing pause, and delays nothing else.

| sink | delivery | cursor moves |
|---|---|---|
| gathers no epochs | each epoch | after the delivery |
| gathers epochs | up to an epoch that a commit has fixed: a repeated one has the same rows | after it |
| at most once | up to an epoch that a commit has fixed | with that commit, before the delivery |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.engine.coordinator.log_retention import open_buckets
from millpond.engine.coordinator.planned_commit import PlannedCommit
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.protocol import Deliver, Delivered, Halt
from millpond.errors import DataError, MillpondError
from millpond.plan.sink_settings import DEFAULT, SinkSettings
from millpond.state.manifest.manifest import Manifest
from millpond.state.retention import ERRORS

GATHERED_MAX = 10_000  # epochs in one delivery


@dataclass(frozen=True)
class FailedSink:
    error: MillpondError
    tries: int
    retry_at_us: int


class SinkDeliveries:
    def __init__(self, state: PondState) -> None:
        self._state = state
        self._delivering: dict[str, Deliver] = {}
        self._failed: dict[str, FailedSink] = {}
        self._errors: dict[str, MillpondError] = {}  # of last deliveries, also of those that are retried
        self._uncommitted = 0  # deliveries since the last commit of cursors
        self._refused: list[tuple[Deliver, Delivered]] = []  # with error rows for the next commit
        self._lost: dict[str, int] = {}  # by sink that gets epochs at most once: those that it did not get
        self._gather_at_us: dict[str, int] = {}  # by sink: when its next group ends
        self._last_change: int | None = None  # the newest epoch that may have changed a view
        self._catching_up: dict[str, int] = {}  # by sink that is too far behind: its smallest lag so far
        self._once: dict[str, tuple[int, int]] = {}  # (after, last epoch) of groups whose cursor has moved

    # -- copies, for other threads, too ---------------------------------------

    @property
    def delivering(self) -> tuple[str, ...]:
        return tuple(sorted(dict(self._delivering)))

    @property
    def failed(self) -> Mapping[str, MillpondError]:
        """Sinks whose last delivery failed, until one succeeds or is asked for again."""
        return {sink: failed.error for sink, failed in dict(self._failed).items()}

    @property
    def errors(self) -> Mapping[str, MillpondError]:
        """The error of the last delivery of each sink, until one succeeds."""
        return dict(self._errors)

    @property
    def behind(self) -> Mapping[str, int]:
        """The sinks that have epochs to receive, and the last epoch that each received."""
        head, cursors = self._state.committed, self._state.cursors
        cursor_of = {sink: cursors.get(sink, -1) for sink in self._state.attached_sinks}
        return {s: e for s, e in cursor_of.items() if head is not None and e < head.epoch}

    # -- deliveries -----------------------------------------------------------

    def start(self) -> list[Deliver]:
        """A delivery for every sink that has something to receive and is neither busy nor pausing."""
        instructions = []
        for sink in self._state.attached_sinks:
            failed = self._failed.get(sink)
            if sink in self._delivering or (
                failed is not None and self._state.uptime_us < failed.retry_at_us
            ):
                continue
            following = self._next(sink)
            if following is not None:
                self._delivering[sink] = following
                instructions.append(following)
        return instructions

    def _next(self, sink: str) -> Deliver | None:
        state, head = self._state, self._state.head
        if _is_grouped(self._settings(sink)):
            return self._next_group(sink)
        # If the first epochs are gone, a new sink begins with all rows of the oldest retained epoch.
        all_rows = sink not in state.cursors and head.floor > 0
        following = head.floor if all_rows else state.cursors.get(sink, -1) + 1
        return self._deliver(sink, following, None, all_rows) if following <= head.epoch else None

    def _next_group(self, sink: str) -> Deliver | None:
        """The delivery whose last epoch is committed, if there is one."""
        state, head = self._state, self._state.head
        if sink in self._once:
            after, epoch = self._once.pop(sink)
            all_rows = after < 0 and head.floor > 0
            return self._deliver(sink, epoch, head.floor - 1 if all_rows else after, all_rows)
        cursor, epoch = state.cursors.get(sink, -1), head.gathered.get(sink, -1)
        if self._settings(sink).guarantee == "at_most_once" or epoch <= cursor:
            return None
        all_rows = sink not in state.cursors and head.floor > 0
        return self._deliver(sink, epoch, head.floor - 1 if all_rows else cursor, all_rows)

    def _deliver(self, sink: str, epoch: int, after: int | None, all_rows: bool) -> Deliver:
        bucket = open_buckets(self._state)[ERRORS]
        return Deliver(sink, epoch, all_rows, after, self._state.token, self._state.head.epoch, bucket)

    def on_delivered(self, event: Delivered) -> list[Deliver]:
        sink, epoch = event.sink, event.epoch
        done = self._ended(sink, epoch)
        if done is None:
            return []
        self._failed.pop(sink, None)
        self._errors.pop(sink, None)
        if event.refused:
            self._refused.append((done, event))
        self._state.cursors[sink] = max(epoch, self._state.cursors.get(sink, -1))
        self._uncommitted += 1
        following = self._next(sink)
        if following is None:
            return []
        self._delivering[sink] = following
        return [following]

    def on_failed(self, sink: str, epoch: int, error: MillpondError) -> list[Halt]:
        if isinstance(error, DataError):  # the pond's own files are wrong, not the target
            return [Halt(error)]
        if self._ended(sink, epoch) is not None:
            policy, before = self._state.policy, self._failed.get(sink)
            tries = 1 if before is None else before.tries + 1
            rest_us = min(policy.sink_rest_us_max, policy.sink_rest_us * 2 ** min(tries - 1, 20))
            self._failed[sink] = FailedSink(error, tries, self._state.uptime_us + rest_us)
            self._errors[sink] = error
            if self._settings(sink).guarantee == "at_most_once":
                self._lost[sink] = self._lost.get(sink, 0) + 1
                self._uncommitted += 1
        return []

    def _ended(self, sink: str, epoch: int) -> Deliver | None:
        """The awaited delivery; None if the sink was dropped or detached meanwhile."""
        awaited = self._delivering.get(sink)
        if awaited is None or awaited.epoch != epoch:
            return None
        del self._delivering[sink]
        self._state.reads_after.pop(sink, None)
        return awaited if sink in self._state.attached_sinks else None

    def retry(self, sink: str) -> None:
        """Retry a failed sink immediately."""
        self._failed.pop(sink, None)

    # -- groups of epochs -----------------------------------------------------

    def _settings(self, sink: str) -> SinkSettings:
        return self._state.program.sink_settings.get(sink, DEFAULT)

    def deliver_gathered(self) -> None:
        """End all groups now, so that every sink receives what there is."""
        self._gather_at_us.clear()

    @property
    def groups_due(self) -> bool:
        """Is a commit needed that ends groups of epochs?"""
        return bool(self._due_groups())

    def _due_groups(self) -> dict[str, int]:
        """By sink: the last epoch of the group that can end now."""
        state, groups = self._state, {}
        last_change = state.head.epoch if self._last_change is None else self._last_change
        for sink in state.attached_sinks:
            cursor = state.cursors.get(sink, -1)
            failed = self._failed.get(sink)
            pauses = failed is not None and state.uptime_us < failed.retry_at_us
            waits = sink in self._delivering or sink in self._once or pauses
            is_open = state.head.gathered.get(sink, -1) <= cursor
            is_time = state.uptime_us >= self._gather_at_us.get(sink, 0)
            if (
                _is_grouped(self._settings(sink))
                and is_open
                and is_time
                and not waits
                and cursor < last_change
            ):
                groups[sink] = min(state.head.epoch, cursor + GATHERED_MAX)
        return groups

    def _with_groups(self, child: Manifest) -> Manifest:
        """The commit, with the ends of the groups that are due."""
        state, due = self._state, self._due_groups()
        if not due:
            return child
        cursors = dict(state.cursors)  # those of the child may be older: the new groups begin after these
        for sink, epoch in due.items():
            settings = self._settings(sink)
            self._gather_at_us[sink] = state.uptime_us + settings.every_us
            if settings.guarantee == "at_most_once":
                after = state.reads_after[sink] = state.cursors.get(sink, -1)
                self._once[sink] = (after, epoch)
                cursors[sink] = state.cursors[sink] = epoch
        return replace(child, cursors=cursors, gathered={**child.gathered, **due})

    # -- limits ---------------------------------------------------------------

    @property
    def holds_input(self) -> bool:
        """Is a sink so far behind that no new input may be admitted?"""
        return any(self._settings(sink).when_behind == "hold" for sink in self._too_far_behind())

    def _too_far_behind(self) -> list[str]:
        state, behind_too_far = self._state, []
        for sink in state.attached_sinks:
            limit = self._settings(sink).behind_max
            if limit is not None and state.head.epoch - state.cursors.get(sink, -1) > limit:
                behind_too_far.append(sink)
            else:
                self._catching_up[sink] = 0
        return behind_too_far

    def _falls_back(self, sink: str) -> bool:
        """Is a sink to be paused?  Not one that was attached far behind and is catching up."""
        settings = self._settings(sink)
        lag = self._state.head.epoch - self._state.cursors.get(sink, -1)
        self._catching_up[sink] = min(lag, self._catching_up.get(sink, lag))
        return settings.when_behind == "pause" and lag > (settings.behind_max or 0) + self._catching_up[sink]

    def _with_pauses(self, child: Manifest) -> Manifest:
        """The commit, in which sinks that are too far behind are detached."""
        paused = [s for s in self._too_far_behind() if self._falls_back(s)]
        if not paused:
            return child
        since = {sink: self._state.cursors.get(sink, -1) for sink in paused if sink not in child.detached}
        for sink in since:
            self.detach(sink)
        note = {sink: f"behind since epoch {epoch}" for sink, epoch in since.items()}
        metrics = {**child.metrics, "paused_sinks": note}
        paused_now = (*child.paused, *(sink for sink in since if sink not in child.paused))
        return replace(child, detached={**child.detached, **since}, paused=paused_now, metrics=metrics)

    # -- commits --------------------------------------------------------------

    @property
    def oldest_files(self) -> int | None:
        """The oldest epoch in the names of files that deliveries may still commit."""
        heads = [d.head for d in self._delivering.values()] + [done.head for done, _ in self._refused]
        return min(heads, default=None)

    @property
    def cursors_due(self) -> bool:
        """Is it time for a commit that only moves cursors?

        Such a commit is one more epoch for a sink that is still behind, so it waits for all sinks, or for
        many deliveries.
        """
        return self._uncommitted >= (self._state.policy.cursor_lag if self._delivering else 1)

    def join(self, planned: PlannedCommit) -> PlannedCommit:
        """The commit, with what deliveries add: error rows together with their cursors, ends of groups."""
        child = planned.manifest
        if self._refused or self._lost:
            counts = dict(child.counts)
            for sink, epochs in self._lost.items():
                counts[f"lost/{sink}"] = counts.get(f"lost/{sink}", 0) + epochs
            child = replace(child, cursors=dict(self._state.cursors), counts=counts)
            for _, event in self._refused:
                name = f"errors/{event.sink}"
                counts[name] = counts.get(name, 0) + event.refused_rows
            at = child.epoch
            runs = tuple(replace(ref, lo=at, hi=at) for _, event in self._refused for ref in event.refused)
            planned = replace(planned, added=(*planned.added, *runs))
            self._refused, self._lost = [], {}
        if child.kind == "epoch":
            child = self._with_pauses(self._with_groups(child))
        return replace(planned, manifest=child)

    def on_commit(self) -> None:
        self._uncommitted = 0

    def on_won(self, head: Manifest) -> None:
        """Move cursors past an epoch that has nothing to deliver, so that this needs no commit."""
        if not is_empty(head):
            self._last_change = head.epoch
            return
        if self._last_change is None:
            self._last_change = head.epoch - 1
        for sink in self._state.attached_sinks:
            if self._state.cursors.get(sink, -1) == head.epoch - 1 and sink not in self._delivering:
                self._state.cursors[sink] = head.epoch

    # -- changes of sinks -----------------------------------------------------

    def attach(self, sink: str, after: int) -> None:
        """Deliver the epochs after this one."""
        self._state.cursors[sink] = after

    def detach(self, sink: str) -> None:
        """Deliver nothing more; the epoch that is being delivered may still arrive."""
        self._delivering.pop(sink, None)
        self._failed.pop(sink, None)
        self._errors.pop(sink, None)
        self._once.pop(sink, None)
        self._state.reads_after.pop(sink, None)
        self._catching_up.pop(sink, None)

    def change_sinks(self, wanted: frozenset[str], child: Manifest) -> None:
        """Prepare cursors for the sinks of another program, which `child` will commit."""
        state = self._state
        before = frozenset(state.program.sinks)
        # The cursor of a dropped sink is stored as long as a rollback can restore the sink.
        oldest = min([child.floor, *child.savepoints.values()])
        state.cursors = {s: e for s, e in state.cursors.items() if s in before | wanted or e >= oldest}
        for sink in before ^ wanted:
            self.detach(sink)
        for sink in wanted - before:
            state.cursors[sink] = child.epoch - 1


def _is_grouped(settings: SinkSettings) -> bool:
    """Is the last epoch of a delivery committed before it?"""
    return settings.every_us > 0 or settings.guarantee == "at_most_once"


def is_empty(manifest: Manifest) -> bool:
    """Does an epoch change no view?"""
    return manifest.kind not in ("rollback", "change") and not any(r.kind == "delta" for r in manifest.added)
