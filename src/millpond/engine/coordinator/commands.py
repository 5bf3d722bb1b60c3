"""Executes the commands of the inbox: rescale, savepoints, sinks, clearing, collection, changes, rollback.

Law 9: a command that cannot be executed is refused in the manifest, with a reason that readers of the
history can see, and the inbox moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millpond.control.live_settings import changed_settings
from millpond.control.shedding import Shedding
from millpond.engine.coordinator.compaction_schedule import CompactionSchedule
from millpond.engine.coordinator.epoch_loop import added_up
from millpond.engine.coordinator.garbage_schedule import GarbageSchedule
from millpond.engine.coordinator.log_retention import late_tables, visible_rows, without_buckets
from millpond.engine.coordinator.planned_commit import Next, PlannedCommit
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.program_changes import CHANGED_MEANWHILE, ProgramChanges
from millpond.engine.coordinator.protocol import Polled
from millpond.engine.coordinator.rollback import roll_back
from millpond.engine.coordinator.sink_deliveries import SinkDeliveries
from millpond.errors import InvalidError
from millpond.plan.sampled_keys import SampledBy
from millpond.state import inbox
from millpond.state.manifest.manifest import Manifest, run_id
from millpond.state.retention import ERRORS


@dataclass(frozen=True)
class Refused:
    reason: str


class Commands:
    def __init__(
        self,
        state: PondState,
        changes: ProgramChanges,
        deliveries: SinkDeliveries,
        compactions: CompactionSchedule,
        collections: GarbageSchedule,
    ) -> None:
        self._state = state
        self._changes = changes
        self._deliveries = deliveries
        self._compactions = compactions
        self._collections = collections
        self._execute: dict[str, Callable[[Polled, Manifest], Next | Refused]] = {
            "advance": self._advance,
            "rescale": self._rescale,
            "shed": self._shed,
            "settings": self._settings,
            "savepoint": self._savepoint,
            "drop_savepoint": self._drop_savepoint,
            "compact": self._compact,
            "gc": self._collect_garbage,
            "attach": self._attach,
            "detach": self._detach,
            "clear_errors": self._clear_errors,
            "clear_late": self._clear_late,
            "change": self._change,
            "rollback": self._roll_back,
            inbox.DUPLICATE: self._skip_duplicate,
        }

    def on_polled(self, event: Polled) -> Next:
        """Execute the first command of a poll; its commit moves the inbox past it."""
        state, command = self._state, event.commands[0]
        child = replace(
            state.child("epoch", state.time_without_steps(state.now_us)),
            positions={**state.head.positions, "inbox": command.number + 1},
        )
        execute = self._execute.get(command.kind)
        done = Refused("no such command") if execute is None else execute(event, child)
        if not isinstance(done, Refused):
            return done
        reason = f"inbox {command.number}: {command.kind or 'an entry'} refused: {done.reason}"
        return PlannedCommit(replace(child, metrics={"refused": reason}))

    def _rescale(self, event: Polled, child: Manifest) -> Next | Refused:
        args = _args(event)
        try:
            parallelism = require_parallelism(args.get("parallelism"))
        except InvalidError as error:
            return Refused(f"{error.message}, {error.detail}")
        scaling = args.get("scaling")  # the reason of the autoscaler
        if isinstance(scaling, dict):
            recorded = {**scaling, "tasks": parallelism}
            child = replace(child, metrics={**child.metrics, "scaling": recorded})
            if scaling.get("mode") != "on":
                return PlannedCommit(child)
        fixed = child.parallelism_fixed or scaling is None
        return PlannedCommit(replace(child, parallelism=parallelism, parallelism_fixed=fixed))

    def _shed(self, event: Polled, child: Manifest) -> Next | Refused:
        """Set or remove the settings of a source that may shed rows; what it owes stays owed."""
        args, state = _args(event), self._state
        source, asked = args.get("source"), args.get("settings")
        if not isinstance(source, str) or source not in state.program.sources:
            return Refused(f"there is no source {source!r}")
        before = state.head.shedding.get(source)
        if asked is None:
            chosen_settings = {**before, "target_lag_us": None} if before and before.get("owed") else None
        else:
            chosen_settings = {**(before or {}), **asked}
            try:
                Shedding.from_json(chosen_settings)
            except (KeyError, TypeError, ValueError) as error:
                return Refused(f"the settings of source {source!r} cannot be read: {error!r}")
            if before and before.get("owed") and _chosen_by(before) != _chosen_by(chosen_settings):
                return Refused(f"rows of source {source!r} that were shed in another way are still owed")
            chosen = {**state.head.shedding, source: chosen_settings}
            if source not in state.program.shed_rules.of({n: _chosen_by(one) for n, one in chosen.items()}):
                return Refused(f"the rows of source {source!r} cannot be shed")
        rest = {name: one for name, one in state.head.shedding.items() if name != source}
        return PlannedCommit(
            replace(child, shedding=rest if chosen_settings is None else {**rest, source: chosen_settings})
        )

    def _settings(self, event: Polled, child: Manifest) -> Next | Refused:
        """Change settings, pause or resume, from the next epoch on."""
        try:
            settings = changed_settings(self._state.head.settings, _args(event).get("settings") or {})
        except InvalidError as error:
            return Refused(error.message)
        except (TypeError, AttributeError) as error:
            return Refused(str(error))
        return PlannedCommit(replace(child, settings=settings))

    def _advance(self, event: Polled, child: Manifest) -> Next | Refused:
        """Promise that a source will send nothing older; the next epoch raises the watermarks."""
        args, state = _args(event), self._state
        source, at_us = args.get("source"), args.get("at_us")
        if not isinstance(source, str) or not state.program.watermarks.fed_by(source):
            return Refused(f"source {source!r} feeds no watermark")
        if isinstance(at_us, bool) or not isinstance(at_us, int):
            return Refused(f"{at_us!r} is not a time")
        before = child.promised.get(source, at_us)
        return PlannedCommit(replace(child, promised={**child.promised, source: max(at_us, before)}))

    def _savepoint(self, event: Polled, child: Manifest) -> Next | Refused:
        name, head = _args(event).get("name"), self._state.head
        if not isinstance(name, str) or not name:
            return Refused(f"no savepoint can be named {name!r}")
        return PlannedCommit(replace(child, savepoints={**head.savepoints, name: head.epoch}))

    def _drop_savepoint(self, event: Polled, child: Manifest) -> Next | Refused:
        name, savepoints = _args(event).get("name"), self._state.head.savepoints
        if not isinstance(name, str) or name not in savepoints:
            return Refused(f"no savepoint can be named {name!r}")
        return PlannedCommit(replace(child, savepoints={n: e for n, e in savepoints.items() if n != name}))

    def _compact(self, event: Polled, child: Manifest) -> Next | Refused:
        self._compactions.compact_everything()  # from now on, beside the chain
        return PlannedCommit(child)

    def _collect_garbage(self, event: Polled, child: Manifest) -> Next | Refused:
        keep, state = _args(event).get("keep"), self._state
        if keep is not None and (not isinstance(keep, int) or keep < 1):
            return Refused(f"it cannot keep {keep!r} epochs")
        floor = state.head.floor if keep is None else state.floor(keep)
        self._collections.collect_soon()
        return PlannedCommit(replace(child, floor=max(child.floor, floor)))

    def _detach(self, event: Polled, child: Manifest) -> Next | Refused:
        sink, state = _args(event).get("name"), self._state
        if sink not in state.program.sinks:
            return Refused(f"there is no sink {sink!r}")
        if sink in state.head.detached:
            return PlannedCommit(child)
        self._deliveries.detach(sink)
        since = state.cursors.get(sink, -1)
        paused = tuple(name for name in child.paused if name != sink)
        paused += (sink,) if _args(event).get("pause") else ()
        return PlannedCommit(replace(child, detached={**state.head.detached, sink: since}, paused=paused))

    def _attach(self, event: Polled, child: Manifest) -> Next | Refused:
        args, state, head = _args(event), self._state, self._state.head
        sink, replay = args.get("name"), args.get("replay")
        if sink not in state.program.sinks:
            return Refused(f"there is no sink {sink!r}")
        if sink not in head.detached:
            return PlannedCommit(child)
        since = head.detached[sink]
        if replay and max(since, 0) < head.floor:  # changes are computed against the epoch before them
            return Refused(f"epochs since {since} are no longer all kept; the oldest is {head.floor}")
        if replay:  # nothing waited for the sink so far
            child = replace(child, floor=min(child.floor, max(since, 0)))
        self._deliveries.attach(sink, after=since if replay else child.epoch)
        detached = {name: epoch for name, epoch in head.detached.items() if name != sink}
        paused = tuple(name for name in child.paused if name != sink)
        return PlannedCommit(replace(child, detached=detached, paused=paused, cursors=dict(state.cursors)))

    def _clear_errors(self, event: Polled, child: Manifest) -> Next | Refused:
        args = _args(event)
        if args.get("refused") is not None:
            return Refused(str(args["refused"]))
        if args.get("view") is not None:
            return PlannedCommit(child, event.cleared)
        ended = tuple(run_id(r) for r in self._state.live.values() if r.table == ERRORS)
        return PlannedCommit(child, (), ended)

    def _clear_late(self, event: Polled, child: Manifest) -> Next | Refused:
        step, state = _args(event).get("step"), self._state
        tables = late_tables(state, step)
        if tables is None:
            return Refused(f"no step {step!r} keeps late rows")
        places = {(t, bucket) for t in tables for bucket in visible_rows(state, state.head, t)}
        child, ended = without_buckets(state, child, places)
        return PlannedCommit(child, (), tuple(run_id(r) for r in ended))

    def _change(self, event: Polled, child: Manifest) -> Next | Refused:
        args, head = _args(event), self._state.head
        catalog = args.get("catalog")
        if not isinstance(catalog, str):
            return Refused("no such command")
        if args.get("base") not in (None, head.catalog):
            return Refused(CHANGED_MEANWHILE)
        if head.backfill is not None:  # one change at a time: the plan of this one does not include the other
            return Refused(f"{CHANGED_MEANWHILE}: {', '.join(head.backfill.steps)} is being backfilled")
        if catalog == head.catalog:
            return PlannedCommit(child)
        return self._changes.begin(catalog, child, event.commands[0].number)

    def _skip_duplicate(self, event: Polled, child: Manifest) -> Next | Refused:
        """Move the inbox past a batch that its client sent again; the rows are counted (law 9)."""
        rows = _args(event).get("rows")
        if not isinstance(rows, int):
            return Refused(f"it says that it has {rows!r} rows")
        return PlannedCommit(replace(child, counts=added_up(child.counts, {"duplicates/inbox": rows})))

    def _roll_back(self, event: Polled, child: Manifest) -> Next | Refused:
        if event.rollback_to is not None:
            return roll_back(self._state, event.rollback_to, child, event.program)
        args = _args(event)
        return Refused(args.get("refused") or f"epoch {args.get('epoch')!r} is not kept")


def _chosen_by(settings: Mapping[str, Any]) -> SampledBy:
    return Shedding.from_json(settings).chosen_by


def _args(event: Polled) -> dict[str, Any]:
    return dict(event.commands[0].args)


def require_parallelism(n: Any) -> int:
    """Check a parallelism; raises a clear error if it cannot work.

    >>> require_parallelism(7)
    7
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= 32768:
        raise InvalidError(
            "parallelism must be a whole number from 1 to 32768", detail=f"got {n!r}", hint="for example 4"
        )
    return n
