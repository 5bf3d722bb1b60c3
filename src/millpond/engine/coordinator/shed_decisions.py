"""Applies load shedding to the input of an epoch, and brings shed rows back when there is no backlog.

The decision itself is `control.shedding`; this file turns it into splits, and splits into what the manifest
records: the settings of each source, the divisor of the epoch, and the splits that owe rows.

Law: of a source whose keys stay shed (`SheddableSource.sticky`), a key that was shed receives nothing until
all that it missed was read again, in order.  So a retraction shares the fate of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.control.shedding import OWED_MAX, Shedding, divisor_of_error, next_divisor
from millpond.plan.sheddable import SheddableSource, ShedRules
from millpond.sources.sample import Sample
from millpond.sources.source import Poll, Split

SHED = "_shed"  # in the record of an admitted split: how many rows it kept

Splits = Mapping[str, Sequence[Split]]


@dataclass(frozen=True)
class ShedDecision:
    """What an epoch sheds: the settings of each source with the divisor, and what the plan says about it."""

    sources: Mapping[str, Shedding]
    allowed: Mapping[str, SheddableSource]
    calm: frozenset[str] = frozenset()  # sources that need not shed anything now

    def changed(self, source: str, **fields: Any) -> ShedDecision:
        return replace(self, sources={**self.sources, source: replace(self.sources[source], **fields)})


NOTHING_SHED = ShedDecision({}, {})


@dataclass(frozen=True)
class ShedInput:
    """What a decision depends on besides the settings."""

    polls: Mapping[str, Poll]
    rows_per_ms: float | None
    watermarks: Mapping[str, Any]
    counts: Mapping[str, int]  # of the head
    groups: Callable[[str], int]  # rows of a table
    fixed_ms: float = 0.0  # of an epoch, whatever its rows


def settings_of(recorded: Mapping[str, Any]) -> dict[str, Shedding]:
    return {step: Shedding.from_json(data) for step, data in recorded.items()}


def is_calm(settings: Mapping[str, Shedding], observed: ShedInput) -> bool:
    """Is there nothing to decide: nothing shed or owed, and no backlog for which anything should be?

    `decided` would leave all settings as they are.
    """
    return all(
        mine.divisor == 1
        and not (mine.owed or mine.lost or mine.fates)
        and _wanted(step, mine, observed, None) == 1
        for step, mine in settings.items()
    )


def decided(settings: Mapping[str, Shedding], rules: ShedRules, observed: ShedInput) -> ShedDecision:
    """The settings of each source, with the divisor of the next epoch.

    A source that a new view made exact is not shed, whatever its settings say.  Rows are not read again for a
    view that did not see the others: what was owed before it was defined is lost.
    """
    allowed = rules.of({step: mine.chosen_by for step, mine in settings.items()})
    needed = {step: _needed(step, mine, allowed.get(step), observed) for step, mine in settings.items()}
    sources = {}
    for step, mine in settings.items():
        rule = allowed.get(step)
        if mine.owed:
            readers = frozenset[str]() if rule is None else rule.readers
            mine = mine.without(tuple(o for o in mine.owed if readers <= {*o["readers"]}))
        if rule is None:
            sources[step] = replace(mine, divisor=1)
            continue
        divisor = max(needed[p] for p in (step, *(p for p in rule.partners if p in needed)))
        if rule.sticky:
            divisor = max(divisor, mine.divisor_min)
        if rule.window is not None:
            newest = [(observed.watermarks.get(step) or {}).get("max") for step in rule.window.watermarks]
            known = [at_us for at_us in newest if at_us is not None]
            sources[step] = mine.with_windows(divisor, rule.window, max(known, default=None))
        else:
            sources[step] = mine if divisor == mine.divisor else replace(mine, divisor=divisor)
    calm = frozenset(step for step, divisor in needed.items() if divisor == 1)
    return ShedDecision(sources, allowed, calm)


def _needed(step: str, mine: Shedding, rule: SheddableSource | None, seen: ShedInput) -> int:
    if rule is None:
        return 1
    most = None
    if rule.error_bounds:
        rows = seen.counts.get(f"rows/{step}", 0) + seen.counts.get(f"shed/{step}", 0)
        most = min(divisor_of_error(bound, rows, seen.groups(table)) for table, bound in rule.error_bounds)
    return _wanted(step, mine, seen, most)


def _wanted(step: str, mine: Shedding, observed: ShedInput, most: int | None) -> int:
    poll = observed.polls.get(step)
    backlog = 0 if poll is None else (poll.backlog_rows or 0) + sum(s.rows for s in poll.splits)
    pace = observed.rows_per_ms
    if pace is not None and mine.target_lag_us:  # half of the target is what rows and the fixed cost share
        pace *= max(0.1, 1 - observed.fixed_ms * 2_000 / mine.target_lag_us)
    return next_divisor(mine, pace, backlog, most)


def thinned(admitted: Splits, decision: ShedDecision) -> dict[str, list[Split]]:
    """The splits with the share of rows that the epoch keeps of each."""
    admitted_rows = {}
    for step, splits in admitted.items():
        mine, rule = decision.sources.get(step), decision.allowed.get(step)
        sample = None if mine is None or rule is None else mine.sample(rule.window)
        admitted_rows[step] = [
            s if sample is None or s.recovers else replace(s, sample=sample) for s in splits
        ]
    return admitted_rows


def resumed(
    admitted: Mapping[str, list[Split]], decision: ShedDecision, rows_max: int
) -> tuple[dict[str, list[Split]], ShedDecision]:
    """Read what was shed again, before new rows, as soon as there is time for it.

    If keys stay shed, and all that is owed is read, new rows are no longer shed.  What these keys can be owed
    is bounded: at the limit, rows are read again whether there is time or not.
    """
    with_owed = dict(admitted)
    left = max(1, rows_max - sum(s.rows for splits in admitted.values() for s in splits))
    for step in admitted:
        mine, rule = decision.sources.get(step), decision.allowed.get(step)
        if mine is None or rule is None or not mine.owed:
            continue
        full = rule.sticky and len(mine.owed) >= OWED_MAX
        if step not in decision.calm and not full:
            continue
        owed = owed_splits(replace(decision, sources={step: mine}), left).get(step, [])
        fresh = with_owed[step]
        if rule.sticky and len(owed) == len(mine.owed) and step in decision.calm:
            decision = decision.changed(step, divisor=1)
            fresh = [replace(s, sample=None) for s in fresh]
        with_owed[step] = [*owed, *fresh]
        left = max(1, left - sum(s.rows for s in owed))
    return with_owed, decision


def owed_splits(decision: ShedDecision, rows_max: int) -> dict[str, list[Split]]:
    """Splits to read again, the oldest first, with about `rows_max` rows."""
    chosen: dict[str, list[Split]] = {}
    left = rows_max
    for step, mine in sorted(decision.sources.items()):
        rule = decision.allowed.get(step)
        for owed in mine.owed if mine.recover and rule is not None and rule.recovers else ():
            if left <= 0:
                break
            chosen.setdefault(step, []).append(
                Split(
                    owed["what"],
                    int(owed["rows"]),
                    0,
                    str(owed["partition"]),
                    sample=Sample.from_json(owed),
                    recovers=True,
                )
            )
            left -= int(owed["rows"])
    return chosen


def recorded_after(
    decision: ShedDecision, admitted: Splits, recorded: Mapping[str, Any], settings: Mapping[str, Shedding]
) -> Mapping[str, Any]:
    """What the manifest records after an epoch that read these splits.

    `recorded` is what the last manifest has, and `settings` what it means: without a change it stays.
    """
    found = {}
    for step, mine in decision.sources.items():
        splits, rule = admitted.get(step, ()), decision.allowed.get(step)
        again = sum(s.recovers for s in splits)
        owed = tuple(
            {
                "what": dict(s.what),
                "rows": s.rows,
                "partition": s.partition,
                **s.sample.to_json(),
                "readers": sorted(() if rule is None else rule.readers),
            }
            for s in splits
            if s.sample is not None and not s.recovers
        )
        after = (mine.recovered(again) if again else mine).shed(owed) if again or owed else mine
        if after.owed and (rule is None or not rule.recovers):
            after = after.without(())
        found[step] = recorded[step] if after is settings.get(step) else after.to_json()
    return recorded if all(found[step] is recorded.get(step) for step in found) else found


def without_owed(
    decision: ShedDecision, admitted: Splits
) -> tuple[ShedDecision, dict[str, tuple[Split, ...]]]:
    """After a recovery that failed, what these splits shed is lost; new rows are shed as before."""
    for step, splits in admitted.items():
        if again := sum(s.recovers for s in splits):
            mine = decision.sources[step]
            mine = mine.without(mine.owed[again:])
            rule = decision.allowed.get(step)
            least = mine.divisor_min if rule is not None and rule.sticky else mine.divisor
            decision = replace(
                decision, sources={**decision.sources, step: replace(mine, divisor=max(mine.divisor, least))}
            )
    fresh = {step: [s for s in splits if not s.recovers] for step, splits in admitted.items()}
    left = thinned({step: splits for step, splits in fresh.items() if splits}, decision)
    return decision, {step: tuple(splits) for step, splits in left.items()}


def record(split: Split) -> dict[str, Any]:
    """An admitted split as the manifest records it."""
    what = dict(split.what)
    if split.sample is not None:
        what[SHED] = {**split.sample.to_json(), "recovers": split.recovers}
    return what


def unrecorded(what: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a split reads, and the fields of `Split` that say which rows it keeps.

    >>> unrecorded({"n": 1, SHED: {"keeps": 2, "by": [], "recovers": False}})[0]
    {'n': 1}
    """
    plain = {key: value for key, value in what.items() if key != SHED}
    shed = what.get(SHED)
    if shed is None:
        return plain, {}
    return plain, {"sample": Sample.from_json(shed), "recovers": shed["recovers"]}
