"""What the admission of an epoch knows of the partitions of its sources, as far as watermarks need it.

The arrivals of a scan may have:

    read        the partitions of which rows were admitted
    ended       the partitions of which the last rows were admitted
    waiting     the partitions whose rows were not admitted
    held        true if the source knows partitions that it has not read, false once it has read all
    unread      by column: the least time in such partitions, if the source knows it
    reach       a time before which no further row will come
    clock       true if time alone moves its watermarks, or if steps learn now of the last move
    partitions  the partition of each admitted split

Law 3: all of it is in the manifest, so that a replay settles the same watermarks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from millpond.engine.coordinator.inbox_polling import by_scan
from millpond.engine.task.settled_watermarks import END_US, idle_steps
from millpond.engine.task.watermarks import bound
from millpond.plan.watermark_steps import WatermarkSteps
from millpond.sources.source import Poll, Split


def arrivals(
    polls: Mapping[str, Poll],
    admitted: Mapping[str, Sequence[Split]],
    promised: Mapping[str, int],
    read: Collection[str],
    steps: WatermarkSteps,
    states: Mapping[str, Any],
    now_us: int,
    unheard: bool = False,
    unpolled: Collection[str] = (),
) -> dict[str, dict[str, Any]]:
    """The arrivals of an epoch; empty if it has none that a watermark needs to know.

    With `unheard` the last epoch moved a watermark of which steps hear only now.  `read` are the sources that
    are `caught_up`.  A promise speaks of what a source sends from now on, so it counts when all that was sent
    before is read.  Commands come in turn with the rows of the inbox.  Of sources that are `unpolled` nothing
    is known.
    """
    if not steps.steps:
        return {}
    taken, offered = by_scan(admitted), by_scan({step: poll.splits for step, poll in polls.items()})
    by_clock = {scan for each in idle_steps(states, now_us, steps) for scan in each.scans}
    if unheard:
        waiting = {step for mark, heard in steps.unheard for step in (mark, *heard)}
        by_clock |= {scan for each in steps.steps if each.step in waiting for scan in each.scans}
    by_source: dict[str, dict[str, Any]] = {}
    for scan in sorted({scan for each in steps.steps for scan in each.scans}.difference(unpolled)):
        mine = taken.get(scan, [])
        news = _recorded_read(mine, _without(offered.get(scan, []), mine), is_held(states, scan))
        reach = []
        if scan not in polls or scan in read:
            reach += [promised[scan]] if scan in promised else []
            reach += _heartbeats(steps, scan, states)
        if scan in polls and polls[scan].finished and len(mine) == len(offered.get(scan, [])):
            reach.append(END_US)
        if reach and max(reach) > _floor(states, scan):
            news["reach"] = max(reach)
        if scan in by_clock:
            news["clock"] = True
        if news:
            by_source[scan] = news
    return by_source


def moved_unheard(steps: WatermarkSteps, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Did an epoch move a watermark that an idle one follows, behind the steps that wait for both?"""
    for mark, heard in steps.unheard:
        moved = bound(after, mark) not in (None, bound(before, mark))
        if moved and any(after.get(step, {}).get("idle") for step in heard):
            return True
    return False


def caught_up(
    polls: Mapping[str, Poll], admitted: Mapping[str, Sequence[Split]], asked_rows: int
) -> frozenset[str]:
    """The sources of which the epoch admits all rows that there are."""
    return frozenset(
        scan
        for scan, poll in polls.items()
        if len(admitted.get(scan, ())) == len(poll.splits)
        and not poll.backlog_rows
        and (not poll.splits or sum(split.rows for split in poll.splits) < asked_rows)
    )


def _heartbeats(steps: WatermarkSteps, scan: str, states: Mapping[str, Any]) -> list[int]:
    """The times that streams of heartbeats said before this epoch's rows were polled."""
    beats = [each.operator.heartbeats for each in steps.fed_by(scan)]
    limits = [beat.limit(partial(bound, states)) for beat in beats if beat is not None]
    return [
        limit for limit in limits if limit is not None and limit < END_US
    ]  # heartbeats that end say nothing


def still_promised(
    promised: Mapping[str, int],
    arrivals: Mapping[str, Mapping[str, Any]],
    steps: WatermarkSteps,
    states: Mapping[str, Any],
) -> dict[str, int]:
    """The promises that wait until their sources are read."""
    return {
        scan: at_us
        for scan, at_us in promised.items()
        if steps.fed_by(scan)
        and at_us > _floor(states, scan)
        and arrivals.get(scan, {}).get("reach", -END_US) < at_us
    }


def _recorded_read(mine: Sequence[Split], rest: Sequence[Split], was_held: bool) -> dict[str, Any]:
    news: dict[str, Any] = {
        "read": sorted({s.partition for s in mine if s.rows}),
        "ended": sorted({s.partition for s in mine if s.ends}),
    }
    if not any(s.ends or s.more for s in (*mine, *rest)):  # else `held` says it
        news["waiting"] = sorted({s.partition for s in rest if s.rows} - {s.partition for s in mine})
    if any(s.partition for s in mine):
        news["partitions"] = [s.partition for s in mine]
    news = {name: value for name, value in news.items() if value}
    is_held_now = mine[-1].more if mine else bool(rest) and was_held
    if is_held_now and mine and mine[-1].more_from:
        news["unread"] = dict(mine[-1].more_from)
    return news if is_held_now == was_held else {**news, "held": is_held_now}


def _without(offered: Sequence[Split], taken: Sequence[Split]) -> list[Split]:
    ids = {id(split) for split in taken}
    return [split for split in offered if id(split) not in ids]


def moves(arrivals: Mapping[str, Mapping[str, Any]]) -> bool:
    """Do these arrivals move watermarks even if no row comes?"""
    return any(one.get("held") is False or "reach" in one or "clock" in one for one in arrivals.values())


def is_held(states: Mapping[str, Any], scan: str) -> bool:
    """Does a source hold watermarks back by partitions that it has not read?"""
    return any(scan in state.get("held", ()) for state in states.values())


def _floor(states: Mapping[str, Any], scan: str) -> int:
    return min((s["floors"][scan] for s in states.values() if scan in s.get("floors", {})), default=-END_US)


# -- alignment ---------------------------------------------------------------------------------


def withheld(
    polls: Mapping[str, Poll], steps: WatermarkSteps, states: Mapping[str, Any]
) -> dict[str, Collection[str] | None]:
    """By source: the partitions that are too far ahead of the slowest one; None stands for all of them.

    Sources whose splits must be admitted in order are withheld as a whole.
    """
    partitions: dict[str, Collection[str] | None] = {}
    for each in steps.steps:
        drift_us = each.operator.drift_us
        if drift_us is None:
            continue
        peers = {each.step} | {s for group in steps.together if each.step in group for s in group}
        aligned = [p for p in steps.steps if p.step in peers and p.operator.drift_us is not None]
        values = [v for p in aligned for v in _values(states.get(p.step, {})).values()]
        if not values or None in values:
            continue
        least = min(v for v in values if v is not None)
        mine = _values(states.get(each.step, {}))
        ahead = {where for where, v in mine.items() if v is not None and v > least + drift_us}
        for scan in sorted({scan for scan, _ in ahead}):
            parts = {part for of, part in ahead if of == scan}
            poll = polls.get(scan)
            if poll is not None and poll.independent:
                partitions[scan] = parts
            elif parts == {part for of, part in mine if of == scan}:
                partitions[scan] = None
    return partitions


def _values(state: Mapping[str, Any]) -> dict[tuple[str, str], int | None]:
    """The bounds of the active partitions of a step."""
    bounds: dict[tuple[str, str], int | None] = {}
    for scan, side in state.get("scans", {}).items():
        if side.get("idle") or state.get("floors", {}).get(scan) == END_US:
            continue
        parts = {part: entry for part, entry in side.get("parts", {}).items() if not entry.get("idle")}
        for part, entry in (parts or {"": side.get("past", {"bound": None})}).items():
            bounds[scan, part] = entry["bound"]
    return bounds


def offers(
    polls: Mapping[str, Poll], withheld: Mapping[str, Collection[str] | None]
) -> dict[str, tuple[Split, ...]]:
    """The splits that may be admitted."""
    offered: dict[str, tuple[Split, ...]] = {}
    for step, poll in polls.items():
        parts = withheld.get(step, ())
        offered[step] = () if parts is None else tuple(s for s in poll.splits if s.partition not in parts)
    return offered
