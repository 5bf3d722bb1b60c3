"""The simulator must be able to fail: each broken rule is found within a few seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from millpond.engine.change.long_backfill import LongBackfill
from millpond.engine.coordinator import commands, inbox_changes
from millpond.engine.coordinator import shell as shells
from millpond.engine.coordinator.epoch_loop import EpochLoop
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.program_changes import ProgramChanges
from millpond.engine.coordinator.protocol import (
    ChangePlan,
    Collect,
    Compact,
    Compacted,
    PutLost,
    PutUnknown,
    PutWon,
)
from millpond.engine.coordinator.shell import Shell
from millpond.engine.coordinator.sink_deliveries import SinkDeliveries
from millpond.engine.coordinator.takeover import Takeover
from millpond.sql.dml.changeable_tables import ChangeableTables
from millpond.state import request_ids
from millpond.state.manifest import fork as forks
from millpond.state.manifest import garbage, history
from millpond.state.manifest.backfill_progress import BackfillProgress
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.tables.live_runs import LiveRuns

from .bank_world import BankWorld
from .control_world import ControlWorld
from .world import World

SEEDS = 60
FIRST = {  # a seed that is known to find it, to save time
    "a_fork_keeps_its_parents_epochs": 5,
    "lost_counts_as_won": 2,
    "unknown_counts_as_won": 12,
    "the_collector_ignores_pins": 3,
    "the_collector_does_not_look_into_the_inbox": 8,
    "the_collector_ignores_plans_that_were_just_saved": 27,
    "a_rollback_forgets_positions": 4,
    "a_rollback_keeps_the_program_of_today": 50,
    "what_was_dropped_stays_in_the_listing": 3,
    "a_backfill_sees_the_epoch_before": 9,
    "a_fill_forgets_what_changed_meanwhile": 6,
    "a_fill_takes_changes_in_twice": 6,
    "the_floor_does_not_wait_for_fills": 37,
    "a_rollback_brings_back_what_was_being_filled": 352,
    "a_program_is_not_looked_at_again_by_who_takes_over": 157,
    "rows_keep_commands_waiting": 2,
    "a_replay_begins_with_the_next_epoch": 21,
    "a_group_ends_before_the_cursor_that_ended_the_last_one": 111,
    "time_passes_what_is_due": 6,
}


def found_broken(first: int, world: type[World] = World) -> bool:
    for seed in range(first, first + SEEDS):
        try:
            world(seed).run()
        except (TypeError, AttributeError, NameError):  # the mutation itself is wrong
            raise
        except Exception:
            return True
    return False


def lost_counts_as_won(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Shell._put
    monkeypatch.setattr(Shell, "_put", lambda s, a: PutWon() if isinstance(e := put(s, a), PutLost) else e)


def unknown_counts_as_won(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Shell._put
    monkeypatch.setattr(Shell, "_put", lambda s, a: PutWon() if isinstance(e := put(s, a), PutUnknown) else e)


def the_collector_ignores_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "pins", lambda store: [])


def the_collector_does_not_look_into_the_inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_asked_for", lambda store, head: set())


def the_collector_ignores_plans_that_were_just_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = garbage._pinned
    monkeypatch.setattr(garbage, "_pinned", lambda *a: (*pinned(*a)[:3], set()))


def the_collector_spares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = Shell._collect
    monkeypatch.setattr(
        Shell, "_collect", lambda s, a: collect(s, Collect(a.head, a.head.epoch + 100, a.token))
    )


def merges_join_whatever_became_of_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    compact = Shell._compact

    def late(shell: Shell, ask: Compact) -> Any:
        event = compact(shell, ask)
        if isinstance(event, Compacted):
            return Compacted(replace(event.job, refs=event.job.refs[:-1]), event.added)
        return event

    monkeypatch.setattr(Shell, "_compact", late)


def a_rollback_forgets_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    back = commands.roll_back

    def forget(state: PondState, target: Any, *rest: Any) -> Any:
        kept = replace(target.manifest, positions=state.head.positions)
        return back(state, replace(target, manifest=kept), *rest)

    monkeypatch.setattr(commands, "roll_back", forget)


def a_rollback_keeps_the_program_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    back = commands.roll_back
    monkeypatch.setattr(
        commands, "roll_back", lambda state, target, child, program: back(state, target, child, None)
    )


def what_was_dropped_stays_in_the_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = ProgramChanges.on_changed
    monkeypatch.setattr(
        ProgramChanges, "on_changed", lambda self, e: changed(self, replace(e, tables_gone=frozenset()))
    )


def a_backfill_sees_the_epoch_before(monkeypatch: pytest.MonkeyPatch) -> None:
    change = Shell._change

    def stale(shell: Shell, ask: ChangePlan) -> Any:
        before = history.find_manifest(shell.store, ask.base.epoch - 1)
        return change(shell, ask if before is None else replace(ask, base=before))

    monkeypatch.setattr(Shell, "_change", stale)


def a_fill_forgets_what_changed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LongBackfill, "_between", lambda self, since, until: ())


def a_fill_takes_changes_in_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    between = LongBackfill._between
    monkeypatch.setattr(LongBackfill, "_between", lambda self, since, until: between(self, since, until) * 2)


def the_floor_does_not_wait_for_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackfillProgress, "oldest", property(lambda self: 1 << 60))


def a_rollback_brings_back_what_was_being_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    back = commands.roll_back

    def whole(state: PondState, target: Any, *rest: Any) -> Any:
        return back(state, replace(target, manifest=replace(target.manifest, backfill=None)), *rest)

    monkeypatch.setattr(commands, "roll_back", whole)


def a_program_is_not_looked_at_again_by_who_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Takeover.on_head

    def blind(self: Takeover, event: Any) -> Any:
        self._based_on = None
        return head(self, event)

    monkeypatch.setattr(Takeover, "on_head", blind)


def a_cursor_runs_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EpochLoop.on_polled

    def on_polled(self: EpochLoop, event: Any, **more: Any) -> Any:
        self._state.cursors["out"] = self._state.head.epoch
        return original(self, event, **more)

    monkeypatch.setattr(EpochLoop, "on_polled", on_polled)


def the_floor_does_not_wait_for_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files go as soon as the head does not name them."""
    collect = shells.collect

    def hasty(store: Any, head: Any, **options: Any) -> Any:
        return collect(store, replace(head, floor=head.epoch, savepoints={}), **options)

    monkeypatch.setattr(shells, "collect", hasty)


def a_fork_keeps_its_parents_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        forks, "_taken_over", lambda r, uri, e: replace(r, file=f"{uri}!{r.file}", kind="merge")
    )


def nothing_is_ever_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PondState, "due", lambda self, now_us: frozenset())


def what_fired_is_not_dropped_from_a_bucket_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveRuns, "below", lambda self, table, bucket: [])


MUTATIONS: list[Callable[[pytest.MonkeyPatch], None]] = [
    a_fork_keeps_its_parents_epochs,
    lost_counts_as_won,
    unknown_counts_as_won,
    the_collector_ignores_pins,
    the_collector_spares_nothing,
    the_collector_does_not_look_into_the_inbox,
    the_collector_ignores_plans_that_were_just_saved,
    merges_join_whatever_became_of_their_inputs,
    a_rollback_forgets_positions,
    a_rollback_keeps_the_program_of_today,
    what_was_dropped_stays_in_the_listing,
    a_backfill_sees_the_epoch_before,
    a_fill_forgets_what_changed_meanwhile,
    a_fill_takes_changes_in_twice,
    the_floor_does_not_wait_for_fills,
    a_rollback_brings_back_what_was_being_filled,
    a_program_is_not_looked_at_again_by_who_takes_over,
    a_cursor_runs_ahead,
    the_floor_does_not_wait_for_readers,
    nothing_is_ever_due,
    what_fired_is_not_dropped_from_a_bucket_that_is_over,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_a_broken_rule_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert found_broken(FIRST.get(mutation.__name__, 0)), (
        f"{SEEDS} seeds ran clean although: {mutation.__name__}"
    )


def the_tables_of_a_transaction_are_admitted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = inbox_changes.made_splits

    def apart(*args: Any) -> Any:
        splits, rejects = made(*args)
        return tuple(replace(split, with_next=False) for split in splits), rejects

    monkeypatch.setattr(inbox_changes, "made_splits", apart)


def an_aborted_transaction_keeps_its_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangeableTables, "all_or_nothing", lambda self, texts=(): contextlib.nullcontext())


def a_transaction_sees_the_epoch_before(monkeypatch: pytest.MonkeyPatch) -> None:
    made = inbox_changes.made_splits

    def stale(plan: Any, before: Snapshot, entries: Any) -> Any:
        older = history.find_manifest(before.store, before.epoch - 1)
        was = before if older is None else Snapshot(before.store, older, before._pages, before.open_file)
        return made(plan, was, entries)

    monkeypatch.setattr(inbox_changes, "made_splits", stale)


OF_TRANSACTIONS: list[Callable[[pytest.MonkeyPatch], None]] = [
    the_tables_of_a_transaction_are_admitted_one_by_one,
    an_aborted_transaction_keeps_its_changes,
    a_transaction_sees_the_epoch_before,
]


@pytest.mark.parametrize("mutation", OF_TRANSACTIONS, ids=lambda m: m.__name__)
def test_a_broken_rule_of_transactions_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert found_broken(FIRST.get(mutation.__name__, 0), BankWorld), mutation.__name__


def requests_are_executed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_ids, "is_repeated", lambda *args: False)
    monkeypatch.setattr(request_ids, "claim", lambda *args: True)


def rows_keep_commands_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused pond is never resumed."""
    polled = EpochLoop.on_polled
    monkeypatch.setattr(
        EpochLoop, "on_polled", lambda self, e, **more: polled(self, replace(e, command_waits=False), **more)
    )


def what_comes_at_most_once_moves_its_cursor_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SinkDeliveries._settings
    monkeypatch.setattr(
        SinkDeliveries, "_settings", lambda self, sink: replace(settings(self, sink), guarantee=None)
    )


def a_replay_begins_with_the_next_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    attach = SinkDeliveries.attach
    monkeypatch.setattr(
        SinkDeliveries, "attach", lambda self, sink, after: attach(self, sink, self._state.head.epoch)
    )


def a_group_ends_before_the_cursor_that_ended_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = SinkDeliveries._with_groups

    def stale(self: SinkDeliveries, child: Any) -> Any:
        return replace(grouped(self, child), cursors=child.cursors)

    monkeypatch.setattr(SinkDeliveries, "_with_groups", stale)


def time_passes_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PondState, "time_without_steps", lambda self, now_us: now_us)


UNDER_CONTROL: list[Callable[[pytest.MonkeyPatch], None]] = [
    requests_are_executed_again,
    rows_keep_commands_waiting,
    what_comes_at_most_once_moves_its_cursor_afterwards,
    a_replay_begins_with_the_next_epoch,
    a_group_ends_before_the_cursor_that_ended_the_last_one,
    time_passes_what_is_due,
]


@pytest.mark.parametrize("mutation", UNDER_CONTROL, ids=lambda m: m.__name__)
def test_a_broken_rule_of_control_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert found_broken(FIRST.get(mutation.__name__, 0), ControlWorld), mutation.__name__
