"""The state of watermarks after an epoch, from the last one, the observations and the arrivals.

The state of a watermark step in the manifest:

    {"max": us, "bound": us, "scans": {scan: {"parts": {partition: entry}, "past": entry}}, ...}

`bound` is the watermark.  An *entry* is what is known of one partition: its newest time and its own bound.
The watermark of a source is the least of its active partitions; that of the step is the least of its active
sources.  What else a state may have:

    past     of a source: what its partitions reached that have ended and are forgotten; it stands for the
             source while no partition of it is active
    held     the sources that know partitions which they have not read
    unread   by source that is held: the least time in these partitions; without it nothing is known of them
    floors   by source: the time that a user or the source itself promised
    late     of an entry: how many of its rows were late
    at, idle of an entry or a source: when its last row came, and that this is too long ago
    idle     of the step: all its sources are idle
    delays   the histogram of delays, of the current window (`now`) and the one before it

A step without `scans` (an older release wrote it, or a backfill) has only its bound.

Law: a bound never falls (law 8), and every task of a level and the driver settle the same (law 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from millpond.engine.task.watermarks import ANY, Observed, WatermarkStates, bound, joined, most
from millpond.kernels.watermark_strategies import LEARN_WINDOW_US, Percentile, quantile_us, summed
from millpond.plan.watermark_steps import WatermarkStep, WatermarkSteps

Arrivals = Mapping[str, Mapping[str, Any]]  # by scan: see `engine.coordinator.arrivals`
Seen = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by scan and partition

END_US = 253_402_300_799_999_999  # the last microsecond of the year 9999: nothing comes after it


def settled(
    before: Mapping[str, Any], observed: Observed, arrivals: Arrivals, now_us: int, steps: WatermarkSteps
) -> WatermarkStates:
    """The watermarks after the epoch."""
    states = dict(before)
    for each in steps.steps:
        state = _after(each, before.get(each.step), _seen(each, observed), arrivals, now_us)
        if state is not None:
            states[each.step] = state
    for _ in range(len(steps.steps) + 1):  # a watermark may follow one that follows another
        known = {step: bound(states, step) for step in states}
        _inherit(states, steps)
        _follow(states, steps)
        if known == {step: bound(states, step) for step in states}:
            break
    return with_least(states, steps)


def with_least(before: Mapping[str, Any], steps: WatermarkSteps) -> WatermarkStates:
    """The watermarks, with those of unions and closed windows: the least of several."""
    states = dict(before)
    for name, of in steps.least:
        bounds = [(bound(states, step), shift) for step, shift in of]
        known = [at_us - shift for at_us, shift in bounds if at_us is not None]
        newest = most([states.get(step, {}).get("max") for step, _ in of])
        if known and len(known) == len(bounds):
            states[name] = {"max": newest, "bound": most([bound(states, name), min(known)])}
    return states


def idle_steps(states: Mapping[str, Any], now_us: int, steps: WatermarkSteps) -> list[WatermarkStep]:
    """The steps of which a partition or a source becomes idle now."""
    return [each for each in steps.steps if _goes_idle(each, states.get(each.step), now_us)]


# -- one step --------------------------------------------------------------------------------


def _seen(each: WatermarkStep, observed: Observed) -> Seen:
    tasks = observed.get(each.step, {})
    by_scan: dict[str, dict[str, Any]] = {}
    for task in sorted(tasks):
        for scan, parts in tasks[task].items():
            mine = by_scan.setdefault(scan, {})
            for part, one in parts.items():
                mine[part] = one if part not in mine else joined(each.operator.rule, mine[part], one)
    return by_scan


def _after(
    each: WatermarkStep, before: Mapping[str, Any] | None, seen: Seen, arrivals: Arrivals, now_us: int
) -> dict[str, Any] | None:
    """The state of one step; None if there is none, or it stays as it is."""
    news = [arrivals[scan] for scan in each.scans if scan in arrivals]
    if before is None:
        starts = any(mine.get(name) for mine in news for name in ("waiting", "held", "reach"))
        if not seen and not starts and each.operator.idle_us is None:
            return None
    elif not seen and not news and not _goes_idle(each, before, now_us):
        return None
    state: dict[str, Any] = {"max": None, "bound": None, **(before or {})}
    sides: dict[str, Any] = dict(state.get("scans", {}))
    if each.by_partition:
        if before is None:  # a source that has sent nothing yet holds the watermark back, too
            sides = {scan: {} if each.operator.idle_us is None else {"at": now_us} for scan in each.scans}
        observed = {scan: (seen.get(scan, {}), arrivals.get(scan, {})) for scan in each.scans}
    else:
        active = sorted({part for mine in news for part in mine.get("read", ())})
        sides = sides or {ANY: {} if each.operator.idle_us is None else {"at": now_us}}
        observed = {ANY: (seen.get(ANY, {}), {"read": active} if active else {})}
    delay_us = _learn(each, state, seen)
    for scan, (rows, news_of) in observed.items():
        if rows or news_of or scan in sides:
            sides[scan] = _side(each, sides.get(scan, {}), rows, news_of, delay_us, now_us)
    _note(state, "scans", {scan: sides[scan] for scan in sorted(sides)})
    held = {*state.get("held", ())} - {s for s in each.scans if arrivals.get(s, {}).get("held") is False}
    held |= {scan for scan in each.scans if each.by_partition and arrivals.get(scan, {}).get("held")}
    _note(state, "held", sorted(held))
    unread = _unread(each, state.get("unread", {}), held, arrivals)
    _note(state, "unread", unread)
    floors = {**state.get("floors", {})}
    for scan in each.scans:
        if "reach" in arrivals.get(scan, {}):
            floors[scan] = most([floors.get(scan), arrivals[scan]["reach"]])
    _note(state, "floors", {scan: floors[scan] for scan in sorted(floors)})
    newest = most([state["max"], *(s["max"] for parts in seen.values() for s in parts.values())])
    state["max"] = newest
    _note(state, "idle", bool(sides) and all(side.get("idle") for side in sides.values()))
    state["bound"] = most([state["bound"], _bound(each, sides, held, unread, floors)])
    return state


def _note(state: dict[str, Any], name: str, value: Any) -> None:
    """Store what there is to say, and nothing else: manifests stay small."""
    state.pop(name, None)
    if value:
        state[name] = value


def _bound(
    each: WatermarkStep,
    sides: Mapping[str, Any],
    held: set[str],
    unread: Mapping[str, int],
    floors: Mapping[str, int],
) -> int | None:
    """The bound that follows from all sources; None if one of them says nothing."""
    promised = {ANY: min(floors.values())} if len(floors) == len(each.scans) and floors else {}
    floors = floors if each.by_partition else promised
    active: list[int | None] = []
    idle: list[int | None] = []
    for scan in {*sides, *floors}:
        side = sides.get(scan, {})
        value = _value(side)
        if scan in held:
            value = min(value, unread[scan]) if value is not None and scan in unread else None
        value = most([value, floors.get(scan)])
        (idle if side.get("idle") else active).append(value)
    if active:
        return None if None in active else min(v for v in active if v is not None)
    return most(idle)


def _unread(
    each: WatermarkStep, before: Mapping[str, int], held: set[str], news_by_scan: Arrivals
) -> dict[str, int]:
    """By source that is held: the least time in what it has not read."""
    least_of = {}
    for scan in sorted(held):
        news = news_by_scan.get(scan, {})
        if "read" not in news and "ended" not in news:  # it read nothing
            least = before.get(scan)
        else:
            least = news.get("unread", {}).get(each.columns.get(scan))
        if least is not None:
            least_of[scan] = least
    return least_of


def _value(side: Mapping[str, Any]) -> int | None:
    """The watermark of one source: the least of its active partitions; if all are idle, the latest."""
    parts, past = side.get("parts", {}), side.get("past", {}).get("bound")
    active = [entry["bound"] for entry in parts.values() if not entry.get("idle")]
    if active:
        return None if None in active else min(active)
    return most([past, *(entry["bound"] for entry in parts.values())])


# -- one source ------------------------------------------------------------------------------


def _side(
    each: WatermarkStep,
    side: Mapping[str, Any],
    seen: Mapping[str, Any],
    news: Mapping[str, Any],
    delay_us: int,
    now_us: int,
) -> dict[str, Any]:
    """What is known of one source after the epoch."""
    rule, idle_us = each.operator.rule, each.operator.idle_us
    parts: dict[str, Any] = {part: dict(entry) for part, entry in side.get("parts", {}).items()}
    for part in news.get("waiting", ()):
        parts.setdefault(part, {"max": None, "bound": None})
    for part in news.get("read", ()):
        if part not in seen and part in parts and parts[part]["max"] is None:
            del parts[part]  # no row of it reached the step
    for part, one in seen.items():
        entry = joined(rule, parts[part], one) if parts.get(part, {}).get("max") is not None else dict(one)
        entry.pop("delays", None)
        parts[part] = {**entry, "bound": parts.get(part, {}).get("bound")}
    for entry in parts.values():
        if entry["max"] is not None:
            entry["bound"] = most([entry["bound"], rule.bound(entry, delay_us), entry.get("reach")])
    after: dict[str, Any] = {}
    active = {*seen, *news.get("read", ()), *news.get("waiting", ())}
    if idle_us is not None:
        after["at"] = now_us if active or "at" not in side else side["at"]
        for part, entry in parts.items():
            entry["at"] = now_us if part in active or "at" not in entry else entry["at"]
            _note(entry, "idle", now_us - entry["at"] >= idle_us)
    past = side.get("past")
    for part in news.get("ended", ()):
        ended = parts.pop(part, None)
        if ended is not None and ended["max"] is not None:
            best = most([ended["bound"], None if past is None else past["bound"]])
            summary = {name: value for name, value in ended.items() if name not in ("at", "idle")}
            past = summary if past is None else joined(rule, past, summary)
            past["bound"] = most([best, rule.bound(past, delay_us)])
    if idle_us is not None:
        silent = now_us - after["at"] >= idle_us
        _note(after, "idle", all(e.get("idle") for e in parts.values()) if parts else silent)
    _note(after, "parts", {part: parts[part] for part in sorted(parts)})
    _note(after, "past", past)
    return after


def _goes_idle(each: WatermarkStep, state: Mapping[str, Any] | None, now_us: int) -> bool:
    idle_us = each.operator.idle_us
    if idle_us is None or state is None:
        return False
    for side in state.get("scans", {}).values():
        for one in side.get("parts", {}).values() or (side,):
            if not one.get("idle") and "at" in one and now_us - one["at"] >= idle_us:
                return True
    return False


# -- learning and following --------------------------------------------------------------------


def _learn(each: WatermarkStep, state: dict[str, Any], seen: Seen) -> int:
    """Add the delays of the epoch; returns the delay of a strategy that learns it."""
    rule = each.operator.rule
    if not (rule.learns or each.operator.learns):
        return 0
    delays = [one.get("delays", {}) for parts in seen.values() for one in parts.values()]
    newest = most([state["max"], *(one["max"] for parts in seen.values() for one in parts.values())])
    if newest is None:
        return 0
    learnt = state.get("delays") or {"since": newest, "now": {}, "before": {}}
    learnt = {**learnt, "now": summed(learnt["now"], *delays)}
    window_us = rule.window_us if isinstance(rule, Percentile) else LEARN_WINDOW_US
    share = rule.share if isinstance(rule, Percentile) else 1.0
    delay_us = quantile_us(summed(learnt["now"], learnt["before"]), share)
    if newest - learnt["since"] >= window_us:
        learnt = {"since": newest, "now": {}, "before": learnt["now"]}
    state["delays"] = learnt
    return delay_us


def _follow(states_by_step: WatermarkStates, steps: WatermarkSteps) -> None:
    """Raise idle steps to the active ones with which they bound rows together.

    So an idle input does not hold later steps back, and its own rows that come later are judged by what
    those steps have already closed.  If all are idle, the latest counts, whichever became idle first.
    """
    raised: dict[str, int] = {}
    for group in steps.together:
        states = [states_by_step.get(step) for step in group]
        active = [None if s is None else s["bound"] for s in states if s is None or not s.get("idle")]
        if None in active:
            continue
        known = [s["bound"] for s in states if s is not None]
        limit = min(v for v in active if v is not None) if active else most(known)
        for step, state in zip(group, states, strict=True):
            if state is not None and state.get("idle") and limit is not None:
                raised[step] = max(limit, raised.get(step, limit))
    for step, limit in raised.items():
        states_by_step[step] = {**states_by_step[step], "bound": most([states_by_step[step]["bound"], limit])}


def _inherit(states: WatermarkStates, steps: WatermarkSteps) -> None:
    """Raise the steps that take over the watermark of the rows before them."""
    for each in steps.steps:
        follows = each.operator.follows
        if follows is None:
            continue
        known = with_least(states, steps)
        limit = follows.limit(partial(bound, known))
        if limit is None:
            continue
        state = {"max": None, "bound": None, **states.get(each.step, {})}
        state["bound"] = most([state["bound"], limit])
        _note(state, "idle", all(known.get(step, {}).get("idle") for step, _ in follows.marks))
        states[each.step] = state
