"""Decides which epoch runs next: admits a bounded slice of input, or runs what is due by the clock.

Law: if an epoch without input changes none of the tables for which it ran, no other one follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.control.admission import Bounds, EpochCost, Pace, admit, budget_rows
from millpond.control.live_settings import PAUSED, live_bounds
from millpond.control.shedding import Shedding
from millpond.engine.coordinator.arrivals import (
    arrivals,
    caught_up,
    moved_unheard,
    moves,
    offers,
    still_promised,
    withheld,
)
from millpond.engine.coordinator.inbox_polling import INBOX
from millpond.engine.coordinator.log_retention import open_buckets
from millpond.engine.coordinator.planned_commit import PlannedCommit
from millpond.engine.coordinator.policy import is_transient
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.protocol import EpochOutcome, Halt, Polled, PollSources, RunEpoch
from millpond.engine.coordinator.shed_decisions import (
    NOTHING_SHED,
    ShedDecision,
    ShedInput,
    decided,
    is_calm,
    owed_splits,
    record,
    recorded_after,
    resumed,
    settings_of,
    thinned,
    without_owed,
)
from millpond.errors import InternalError, MillpondError
from millpond.sources.source import Poll, Split
from millpond.state.manifest.manifest import RunId, run_id
from millpond.state.request_ids import executed_after
from millpond.state.tables.live_runs import outside_dropped_buckets


@dataclass(frozen=True)
class TimerEpoch:
    """An epoch that ran only because time had passed: its time, and the due runs of each table."""

    now_us: int
    runs: Mapping[str, frozenset[RunId]]
    times: int = 1  # consecutive epochs that found the same runs


class EpochLoop:
    def __init__(self, state: PondState) -> None:
        self.backlog_rows = 0
        self.had_input = False  # did the sources or the inbox have input at the last poll?
        self._state = state
        self._pace, self._cost = Pace(), EpochCost()
        self._careful: tuple[float, float] | None = None  # of the cost
        self._run: RunEpoch | None = None
        self._tries = 0
        self._last_timer_epoch: TimerEpoch | None = None
        self._asked_rows = 0  # by the last poll
        self._shedding = NOTHING_SHED  # of the epoch that runs
        # What a manifest records about shedding, and what it means.
        self._shed_read: tuple[Mapping[str, Any], Mapping[str, Shedding]] = ({}, {})
        # Did the last epoch move a watermark of which steps hear in the next one?  A new coordinator
        # cannot know.
        self._unheard = True
        self._held = False  # did the last poll find that input is held back?
        self._left_rows: dict[str, int] = {}  # by source: rows after those that the epoch admits

    def poll(self) -> PollSources:
        self._asked_rows = self._budget_rows()
        is_paused = self._held or bool(self._state.head.settings.get(PAUSED))
        return PollSources(self._state.head.positions, self._asked_rows, is_paused)

    def on_polled(self, event: Polled, *, hold: bool = False) -> RunEpoch | None:
        """The epoch to run; None if there is a command to execute first, or nothing to do.

        With `hold` a sink is too far behind: only rows of the inbox in front of a command are admitted, as in
        a paused pond.
        """
        state, head = self._state, self._state.head
        state.on_time(event.now_us)
        now_us = state.now_us
        last, self._last_timer_epoch = self._last_timer_epoch, None
        if event.commands:
            # A command is returned once it is first in the inbox; a backlog of rows must not delay it.
            self.had_input = True
            return None
        self.backlog_rows = sum(
            (p.backlog_rows or 0) + sum(s.rows for s in p.splits) for p in event.polls.values()
        )
        self._held = hold or bool(head.settings.get(PAUSED))
        polls, unpolled = event.polls, event.unpolled
        if self._held or unpolled:
            polls, unpolled = {INBOX: polls.get(INBOX, Poll())}, unpolled or frozenset(polls) - {INBOX}
            if not event.command_waits or not (polls[INBOX].splits or polls[INBOX].rejects):
                self.had_input = False
                return None
        states, steps = head.watermarks, state.program.watermarks
        offered = offers(polls, withheld(polls, steps, states))
        may_shed = head.shedding and not unpolled
        sheds = may_shed and (self.backlog_rows or any(s.owed for s in self._shed_settings().values()))
        self._shedding = self._shed_decision(polls) if sheds else NOTHING_SHED
        admitted = admit(offered, self._budget_rows(), self._bounds().bytes_max)
        decides = self._shedding is not NOTHING_SHED
        admitted = thinned(admitted, self._shedding) if decides else admitted
        rejects = {step: p.rejects for step, p in polls.items() if p.rejects}
        self.had_input = bool(admitted or rejects)
        self._left_rows = rows_left(event.polls, admitted)
        due = state.due(now_us)
        read = caught_up(polls, admitted, self._asked_rows)
        news = arrivals(polls, admitted, head.promised, read, steps, states, now_us, self._unheard, unpolled)
        if not admitted and not rejects:
            if not due and decides and self.backlog_rows == 0:
                admitted = owed_splits(self._shedding, self._budget_rows(recovers=True))
            if not due and not moves(news) and not admitted:
                return None
            if due:
                self._last_timer_epoch = self._timer_epoch(due, last)
        elif decides:
            budget = self._budget_rows(recovers=True)
            admitted, self._shedding = resumed(admitted, self._shedding, budget)
        self._tries = 0
        self._run = RunEpoch(
            head,
            head.epoch + 1,
            state.token,
            now_us,
            head.parallelism,
            {step: tuple(s) for step, s in admitted.items()},
            rejects,
            due,
            state.live.waiting,
            open_buckets(state),
            news,
        )
        return self._run

    def on_ran(self, outcome: EpochOutcome) -> PlannedCommit:
        state, head, run = self._state, self._state.head, self._running()
        self._run = None
        rows = int(outcome.metrics.get("rows", 0))
        ms = float(outcome.metrics.get("ms", 0))
        self._pace, self._cost = self._pace.measured(rows, ms), self._cost.measured(rows, ms)
        self._careful = self._cost.careful()
        self.backlog_rows = max(0, self.backlog_rows - rows)
        watermarks = {**head.watermarks, **outcome.watermarks}
        self._unheard = moved_unheard(state.program.watermarks, head.watermarks, watermarks)
        child = replace(
            state.child("epoch", run.now_us),
            positions={**head.positions, **{step: a.position for step, a in outcome.advances.items()}},
            watermarks=watermarks,
            counts=added_up(head.counts, outcome.counts),
            admitted={step: [record(s) for s in splits] for step, splits in run.admitted.items()},
            shedding=(
                recorded_after(self._shedding, run.admitted, head.shedding, self._shed_settings())
                if head.shedding
                else {}
            ),
            arrivals=run.arrivals,
            clients=executed_after(head.clients, (s.what for s in run.admitted.get(INBOX, ()))),
            promised=still_promised(head.promised, run.arrivals, state.program.watermarks, head.watermarks),
            metrics={**outcome.metrics, "backlog": self._left_rows},
        )
        return PlannedCommit(
            child, outside_dropped_buckets(outcome.runs, outcome.drops), state.live.runs_below(outcome.drops)
        )

    def on_run_failed(self, error: MillpondError) -> RunEpoch | Halt:
        self._tries += 1
        run = self._running()
        if not is_transient(error) or self._tries >= self._state.policy.tries:
            if not any(s.recovers for splits in run.admitted.values() for s in splits):
                return Halt(error)
            # The source no longer has what was shed: the views stay estimates, and the pond continues.
            self._shedding, left = without_owed(self._shedding, run.admitted)
            self._tries = 0
            self._run = run = replace(run, admitted=left)
        return run

    def _budget_rows(self, *, recovers: bool = False) -> int:
        """Rows that an epoch may take; of those that it sheds, more.  Rows that are read again all count."""
        shedding, bounds = self._state.head.shedding, self._bounds()
        lags = [s["target_lag_us"] // 1000 for s in shedding.values() if s.get("target_lag_us") is not None]
        pace = self._pace
        if lags:  # an epoch that takes longer than the target is behind it when it ends
            bounds = bounds.within(min(lags) // 3)
            pace = pace if self._careful is None else Pace(*self._careful)
        most = 1 if recovers else max((int(s.get("divisor", 1)) for s in shedding.values()), default=1)
        return min(bounds.rows_max, budget_rows(bounds, pace, self.backlog_rows) * most)

    def _bounds(self) -> Bounds:
        return live_bounds(self._state.policy.bounds, self._state.head.settings)

    def _shed_decision(self, polls: Mapping[str, Poll]) -> ShedDecision:
        state, head = self._state, self._state.head

        def groups(table: str) -> int:
            return sum(state.live.rows_by_bucket(table).values())

        pace, fixed_ms = self._careful or (self._pace.rows_per_ms, 0.0)
        observed = ShedInput(polls, pace, head.watermarks, head.counts, groups, fixed_ms)
        settings = self._shed_settings()
        if is_calm(settings, observed):
            return NOTHING_SHED
        return decided(settings, state.program.shed_rules, observed)

    def _shed_settings(self) -> Mapping[str, Shedding]:
        """What the head records about shedding; it is read again only when it has changed."""
        recorded = self._state.head.shedding
        if self._shed_read[0] is not recorded:
            self._shed_read = recorded, settings_of(recorded)
        return self._shed_read[1]

    def _running(self) -> RunEpoch:
        if self._run is None:
            raise InternalError("the answer to a run that was not requested")
        return self._run

    def _timer_epoch(self, due: frozenset[str], last: TimerEpoch | None) -> TimerEpoch:
        """The due runs for which an epoch without input runs; raises if they repeatedly stay due."""
        state, live = self._state, self._state.live
        runs = {t: frozenset(run_id(r) for r in live.at((t, live.earliest(t)))) for t in due}
        if last is None or last.runs != runs:
            return TimerEpoch(state.now_us, runs)
        if last.now_us == state.now_us or last.times >= state.policy.tries:
            names = ", ".join(sorted(due))
            raise InternalError(
                f"buckets of {names} stay due",
                detail=f"epoch {state.head.epoch} was run for it at {last.now_us} and left it as it was",
                hint="a step that wakes by the clock must drop or change the bucket it is woken for",
                epoch=state.head.epoch,
            )
        return TimerEpoch(state.now_us, runs, last.times + 1)


def added_up(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """
    >>> added_up({"late/w": 2, "errors/w": 1}, {"late/w": 3})
    {'late/w': 5, 'errors/w': 1}
    """
    sums = dict(before)
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count
    return sums


def rows_left(polls: Mapping[str, Poll], admitted: Mapping[str, Sequence[Split]]) -> dict[str, int]:
    """By source: the rows that it has and an epoch does not admit, as far as the source knows."""
    return {
        step: (poll.backlog_rows or 0)
        + sum(s.rows for s in poll.splits)
        - sum(s.rows for s in admitted.get(step, ()))
        for step, poll in polls.items()
    }
