"""Apache Beam's answer to a transcript: runs in a Python that has Beam, reads transcripts as JSON lines, writes panes.

Law: what is printed comes from Beam's `GeneralTriggerDriver`; this file decides only what a runner decides.
Those decisions are three: rows of one step are one bundle, judged with the watermark before it; event-time
timers fire when the watermark moves (and after a bundle that set one in the past); state of a window is
collected once no row can reach the window any more. Beam's driver leaves the last to its runner.

Imports nothing of ours, so that it runs in the environment that has nothing but Beam.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from apache_beam.runners.direct.clock import TestClock
from apache_beam.transforms import trigger, window
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp
from apache_beam.utils.windowed_value import PaneInfoTiming, WindowedValue

TIMINGS = {
    PaneInfoTiming.EARLY: "early",
    PaneInfoTiming.ON_TIME: "on_time",
    PaneInfoTiming.LATE: "late",
}
MODES = {
    "accumulating": trigger.AccumulationMode.ACCUMULATING,
    "retracting": trigger.AccumulationMode.ACCUMULATING,  # Beam has no retractions; they follow from the panes
    "discarding": trigger.AccumulationMode.DISCARDING,
}
PARTS = {
    "repeatedly": trigger.Repeatedly,
    "after_any": trigger.AfterAny,
    "after_all": trigger.AfterAll,
    "after_each": trigger.AfterEach,
    "or_finally": trigger.OrFinally,
}


_without_extraction = trigger._CombiningValueStateTag.without_extraction
_tags: dict[tuple[str, int], Any] = {}


def _remembered(tag: Any) -> Any:
    """Beam defines a class for every access to a counter; defining it once makes the driver four times as fast."""
    place = tag.tag, id(tag.combine_fn)
    if place not in _tags:
        _tags[place] = _without_extraction(tag)
    return _tags[place]


trigger._CombiningValueStateTag.without_extraction = _remembered


def trigger_of(spec: list[Any]) -> trigger.TriggerFn:
    """The trigger of ["after_count", 2], ["after_watermark", early or null, late or null], ..."""
    name, *arguments = spec
    if name == "after_watermark":
        early, late = (part and trigger_of(part) for part in arguments)
        return trigger.AfterWatermark(early=early, late=late)
    if name == "after_count":
        return trigger.AfterCount(*arguments)
    if name == "after_delay":
        return trigger.AfterProcessingTime(*arguments)
    if name == "always":
        return trigger.Always()
    if name == "never":
        return trigger._Never()
    return PARTS[name](*map(trigger_of, arguments))


def windows_of(spec: list[Any]) -> window.WindowFn:
    name, *sizes = spec
    if name == "tumbling":
        return window.FixedWindows(*sizes)
    if name == "sliding":
        return window.SlidingWindows(*sizes)
    if name == "sessions":
        return window.Sessions(*sizes)
    return window.GlobalWindows()


class Key:
    """The driver's state of one key, and what a runner does for it."""

    def __init__(self, driver: trigger.GeneralTriggerDriver, clock: TestClock) -> None:
        self.driver, self.clock = driver, clock
        self.state = trigger.InMemoryUnmergedState()

    def add(self, rows: list[tuple[int, int]], watermark: Timestamp) -> tuple[list[WindowedValue], list[int]]:
        """(panes, rows that were dropped)"""
        assign = self.driver.window_fn.assign
        bundle = [
            WindowedValue(row, Timestamp(at), assign(window.WindowFn.AssignContext(Timestamp(at), row)))
            for at, row in rows
        ]
        panes = list(self.driver.process_elements(self.state, bundle, watermark, watermark))
        self.due(
            watermark
        )  # timers that rows set at a time already past: the driver has asked that window just now
        return panes, self.dropped(bundle, panes)

    def dropped(self, bundle: list[WindowedValue], panes: list[WindowedValue]) -> list[int]:
        """The rows that the driver kept in fewer windows than they belong to, as often as that."""
        merged = trigger.MergeableStateAdapter(self.state)
        kept = {of: set(merged.get_state(of, self.driver.ELEMENTS)) for of in merged.known_windows()}
        for pane in panes:
            kept.setdefault(pane.windows[0], set()).update(pane.value)
        missing = [
            (one.value, len(one.windows) - sum(one.value in rows for rows in kept.values())) for one in bundle
        ]
        return [row for row, times in missing for _ in range(times)]

    def buried(self) -> list[int]:
        """Rows that the driver holds and will not deliver: their session has merged with a finished one."""
        merged = trigger.MergeableStateAdapter(self.state)
        found = []
        for of in merged.known_windows():
            if merged.get_state(of, self.driver.TOMBSTONE):
                found += merged.get_state(of, self.driver.ELEMENTS)
                merged.clear_state(of, self.driver.ELEMENTS)
        return found

    def due(self, watermark: Timestamp) -> list[tuple[Any, TimeDomain, Timestamp]]:
        """Take the timers that are due, one a window: (the window's identity, domain, time).

        Two parts of a trigger can both wait for the end of the window. One moment asks a window once."""
        merged = trigger.MergeableStateAdapter(self.state)
        timers, _ = self.state.get_timers(clear=True, watermark=watermark, processing_time=self.clock.time())
        found = {}
        for identity, (_, domain, at, _) in timers:
            of = merged.get_window(identity)
            if domain == TimeDomain.REAL_TIME:
                found.setdefault((of, domain), (identity, domain, watermark))
            elif at == of.end:  # otherwise it is left from a session that has merged into a longer one
                found.setdefault((of, domain), (identity, domain, at))
        return list(found.values())

    def pass_time(self, watermark: Timestamp) -> list[WindowedValue]:
        """Fire the timers. A processing-time timer gets the watermark as its time, as in Beam's Java runners:
        the driver compares it with the ends of windows, where the time of a wall clock would mean nothing."""
        panes: list[WindowedValue] = []
        for identity, domain, at in self.due(watermark):
            panes.extend(self.driver.process_timer(identity, "", domain, at, self.state))
        return panes

    def expire(self, watermark: Timestamp) -> list[tuple[Any, list[int], int, int]]:
        """Drop windows that no row can reach any more; returns (window, rows held, panes, panes not early)."""
        merged = trigger.MergeableStateAdapter(self.state)
        expired = []
        for known in merged.known_windows():
            if watermark > known.end + self.driver.allowed_lateness:
                held = list(merged.get_state(known, self.driver.ELEMENTS))
                panes = merged.get_state(known, self.driver.INDEX)
                ended = merged.get_state(known, self.driver.NONSPECULATIVE_INDEX)
                finished = merged.get_state(known, self.driver.TOMBSTONE)
                for identity in merged.window_ids.pop(known):
                    self.state.timers.pop(identity, None)
                    self.state.state.pop(identity, None)
                merged._persist_window_ids()
                if not finished:
                    expired.append((known, held, panes, ended))
        return expired


def bounds(of: Any) -> list[int | None]:
    return [None, None] if isinstance(of, window.GlobalWindow) else [int(of.start), int(of.end)]


def run(case: dict[str, Any], steps: list[list[Any]]) -> list[dict[str, list[Any]]]:
    """Per step: panes [key, start, end, rows, number, timing, last]; windows that expired before they had finished,
    [key, start, end, rows held, panes, panes not early]; rows that were
    dropped, [key, id] for every window; and rows, dropped or delivered before, of sessions that merged with a finished one."""
    clock = TestClock()
    windowing = Windowing(
        windows_of(case["window"]),
        trigger_of(case["trigger"]),
        MODES[case["mode"]],
        allowed_lateness=Duration(case["lateness"]),
    )
    driver = trigger.GeneralTriggerDriver(windowing, clock)
    keys: dict[str, Key] = {}
    watermark = MIN_TIMESTAMP
    answers = []
    for action, what in steps:
        panes: list[list[Any]] = []
        dropped: list[list[Any]] = []
        buried: list[list[Any]] = []
        if action == "rows":
            given: dict[str, list[tuple[int, int]]] = {}
            for key, at, row in what:
                given.setdefault(key, []).append((at, row))
            for key, rows in given.items():
                held = keys.setdefault(key, Key(driver, clock))
                fired, missing = held.add(rows, watermark)
                panes += [pane_of(key, pane) for pane in fired]
                dropped += [[key, row] for row in missing]
                buried += [[key, row] for row in held.buried()]
        else:
            if action == "watermark":
                watermark = max(watermark, Timestamp(what))
            else:
                clock.advance_time(what)
            panes = [pane_of(key, pane) for key, held in keys.items() for pane in held.pass_time(watermark)]
        expired = [
            [key, *bounds(of), sorted(rows), count, ended]
            for key, held in keys.items()
            for of, rows, count, ended in held.expire(watermark)
        ]
        answers.append({"panes": panes, "expired": expired, "dropped": dropped, "buried": buried})
    return answers


def pane_of(key: str, pane: WindowedValue) -> list[Any]:
    info = pane.pane_info
    rows = sorted(pane.value)
    return [key, *bounds(pane.windows[0]), rows, info.index, TIMINGS[info.timing], bool(info.is_last)]


def main() -> None:
    """Per line {"steps": [...], "cases": [...]} one line: the answers of each case."""
    logging.disable(logging.WARNING)  # "late data moved window end forward" is an expected answer here
    for line in sys.stdin:
        transcript = json.loads(line)
        answers = [run(case, transcript["steps"]) for case in transcript["cases"]]
        print(json.dumps(answers, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
