"""The meaning of windows, triggers and panes in plain Python: slow, one row at a time, and short.

Law: it agrees with Apache Beam's driver on every transcript (the comparison runs both), and Millpond agrees with it.
When two of the three differ, this is the one to read.

A window holds its rows and a tree of trigger nodes. Rows of one step are added first; then the tree of each window
that got rows is asked once, with the watermark before the step. When the watermark moves, windows whose tree has
a timer at or before it are asked once. Where the meaning is Millpond's own choice, the comment says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NO_WATERMARK = -(10**12)  # seconds; before every window
NO_END = 10**12


@dataclass(frozen=True)
class Moment:
    """What a trigger may look at: the watermark, the clock, and the end of its window."""

    watermark: int
    now: int
    end: int

    @property
    def ended(self) -> bool:
        return self.watermark >= self.end


class Node:
    """A trigger in one window. A subclass without state overrides only what it means."""

    parts: Sequence[Node] = ()
    timer = False  # must the watermark ask this window when it reaches the end?

    def add(self, at: Moment) -> None:
        """A row arrived."""
        for part in self.parts:
            part.add(at)

    def wants(self, at: Moment) -> bool:
        raise NotImplementedError

    def fire(self, at: Moment) -> bool:
        """Record a firing; returns whether this trigger is finished."""
        raise NotImplementedError

    def reset(self) -> None:
        for part in self.parts:
            part.reset()

    def absorb(self, other: Any, *, same_end: bool) -> None:
        """Take over the state of a window that merges into this one; a timer survives only at the same end."""
        self.timer |= other.timer and same_end
        for mine, its in zip(self.parts, other.parts, strict=True):
            mine.absorb(its, same_end=same_end)

    def all(self) -> Iterable[Node]:
        yield self
        for part in self.parts:
            yield from part.all()


class AfterCount(Node):
    def __init__(self, n: int) -> None:
        self.n, self.count = n, 0

    def add(self, at: Moment) -> None:
        self.count += 1

    def wants(self, at: Moment) -> bool:
        return self.count >= self.n

    def fire(self, at: Moment) -> bool:
        return True

    def reset(self) -> None:
        self.count = 0

    def absorb(self, other: AfterCount, *, same_end: bool) -> None:
        self.count += other.count


class AfterDelay(Node):
    """From the first row since the last reset. Beam asks it only through its own timer, see `compare.SANE_DELAYS`."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.due: int | None = None

    def add(self, at: Moment) -> None:
        if self.due is None:
            self.due = at.now + self.seconds

    def wants(self, at: Moment) -> bool:
        return self.due is not None and at.now >= self.due

    def fire(self, at: Moment) -> bool:
        return True

    def reset(self) -> None:
        self.due = None

    def absorb(self, other: AfterDelay, *, same_end: bool) -> None:
        self.due = min((due for due in (self.due, other.due) if due is not None), default=None)


class Always(Node):
    def wants(self, at: Moment) -> bool:
        return True

    def fire(self, at: Moment) -> bool:
        return False


class Never(Node):
    def wants(self, at: Moment) -> bool:
        return False

    def fire(self, at: Moment) -> bool:
        raise AssertionError("it never fires")


class Repeatedly(Node):
    def __init__(self, part: Node) -> None:
        self.parts = (part,)

    def wants(self, at: Moment) -> bool:
        return self.parts[0].wants(at)

    def fire(self, at: Moment) -> bool:
        if self.parts[0].fire(at):
            self.parts[0].reset()
        return False


class AfterAny(Node):
    """Parts that do not want to fire are not told of a firing; they keep counting."""

    def __init__(self, *parts: Node) -> None:
        self.parts = parts

    def wants(self, at: Moment) -> bool:
        return any(part.wants(at) for part in self.parts)

    def fire(self, at: Moment) -> bool:
        return any([part.fire(at) for part in self.parts if part.wants(at)])


class AfterAll(AfterAny):
    def wants(self, at: Moment) -> bool:
        return all(part.wants(at) for part in self.parts)

    def fire(self, at: Moment) -> bool:
        return all([part.fire(at) for part in self.parts if part.wants(at)])


class AfterEach(Node):
    """Only the current part sees rows; the next one has seen nothing of the rows before, nor set a timer."""

    def __init__(self, *parts: Node) -> None:
        self.parts, self.turn = parts, 0

    def add(self, at: Moment) -> None:
        if self.turn < len(self.parts):
            self.parts[self.turn].add(at)

    def wants(self, at: Moment) -> bool:
        return self.turn < len(self.parts) and self.parts[self.turn].wants(at)

    def fire(self, at: Moment) -> bool:
        self.turn += self.parts[self.turn].fire(at)
        return self.turn == len(self.parts)

    def reset(self) -> None:
        self.turn = 0
        super().reset()

    def absorb(self, other: AfterEach, *, same_end: bool) -> None:
        super().absorb(other, same_end=same_end)
        self.turn = max(self.turn, other.turn)


class AfterWatermark(Node):
    """`reset` leaves the timer: the end of the window is still ahead."""

    def __init__(self, early: Node | None, late: Node | None) -> None:
        self.parts = (Repeatedly(early or Never()), Repeatedly(late or Never()))
        self.has_late, self.late = late is not None, False

    def add(self, at: Moment) -> None:
        self.timer |= not self.late
        self.parts[self.late].add(at)

    def wants(self, at: Moment) -> bool:
        if self.late:
            return self.parts[True].wants(at)
        return at.ended or self.parts[False].wants(at)

    def fire(self, at: Moment) -> bool:
        if self.late or not at.ended:
            return self.parts[self.late].fire(at)
        self.late = self.has_late
        return not self.has_late

    def reset(self) -> None:
        self.late = False
        super().reset()

    def absorb(self, other: AfterWatermark, *, same_end: bool) -> None:
        super().absorb(other, same_end=same_end)
        self.late |= other.late


NODES: dict[str, Callable[..., Node]] = {
    "after_count": AfterCount,
    "after_delay": AfterDelay,
    "always": Always,
    "never": Never,
    "repeatedly": Repeatedly,
    "after_any": AfterAny,
    "or_finally": AfterAny,
    "after_all": AfterAll,
    "after_each": AfterEach,
}


def node_of(spec: Sequence[Any]) -> Node:
    """The tree of ["after_watermark", ["after_count", 2], null]."""
    name, *arguments = spec
    if name == "after_watermark":
        return AfterWatermark(*(part and node_of(part) for part in arguments))
    return NODES[name](*(node_of(one) if isinstance(one, list | tuple) else one for one in arguments))


@dataclass
class Window:
    start: int
    end: int
    tree: Node
    rows: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)  # those that no pane has delivered
    panes: int = 0
    ended_panes: int = 0  # those that are not early
    finished: bool = False

    def moment(self, watermark: int, now: int) -> Moment:
        return Moment(watermark, now, self.end)

    def pane(self, timing: str, last: bool) -> list[Any]:
        bounds = [None, None] if self.end == NO_END else [self.start, self.end]
        return [*bounds, sorted(self.rows), self.panes, timing, last]


Bounds = tuple[int, int]


def assigned(spec: Sequence[Any], at: int) -> list[Bounds]:
    name, *sizes = spec
    if name == "tumbling":
        start = at - at % sizes[0]
        return [(start, start + sizes[0])]
    if name == "sliding":
        size, period = sizes
        return [(start, start + size) for start in range(at - at % period, at - size, -period)]
    return [(at, at + sizes[0])] if name == "sessions" else [(-NO_END, NO_END)]


class Key:
    """The windows of one key."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = case
        self.windows: dict[Bounds, Window] = {}

    def new(self, bounds: Bounds) -> Window:
        return Window(*bounds, node_of(self.case["trigger"]))

    def expired(self, end: int, watermark: int) -> bool:
        return watermark > end + int(self.case["lateness"])

    def add(self, rows: Iterable[tuple[int, int]], watermark: int, now: int) -> tuple[list[Any], list[int]]:
        """(panes, rows that are late: once for every window that has expired or finished)."""
        panes, late = [], []
        got: dict[Bounds, list[int]] = {}
        for at, row in rows:
            for bounds in assigned(self.case["window"], at):
                if self.expired(bounds[1], watermark):
                    late.append(row)
                else:
                    got.setdefault(bounds, []).append(row)
        if self.case["window"][0] == "sessions":
            got = self.merge(got)
            late += self.buried()
        for bounds, ids in got.items():
            window = self.windows.setdefault(bounds, self.new(bounds))
            if window.finished:
                late += ids
                continue
            at_ = window.moment(watermark, now)
            for _ in ids:
                window.tree.add(at_)
            window.rows += ids
            window.waiting += ids
            if window.tree.wants(at_):
                panes.append(self.emit(window, at_, by_time=False))
            if at_.ended:  # the end was reached before; there is nothing to wait for
                for node in window.tree.all():
                    node.timer = False
        return panes, late

    def merge(self, got: Mapping[Bounds, list[int]]) -> dict[Bounds, list[int]]:
        """Sessions that overlap become one. It keeps its pane number only if its bounds are those of a part."""
        groups: list[list[Bounds]] = []
        end = 0
        for bounds in sorted({*self.windows, *got}):
            if groups and end > bounds[0]:
                groups[-1].append(bounds)
                end = max(end, bounds[1])
            else:
                groups.append([bounds])
                end = bounds[1]
        merged: dict[Bounds, list[int]] = {}
        for group in groups:
            whole = (group[0][0], max(end for _, end in group))
            parts = [self.windows.pop(bounds) for bounds in group if bounds in self.windows]
            if len(group) == 1 and parts:
                self.windows[whole] = parts[0]
            elif parts:
                self.windows[whole] = self.joined(whole, parts)
            rows = [row for bounds in group for row in got.get(bounds, [])]
            if rows:
                merged[whole] = rows
        return merged

    def buried(self) -> list[int]:
        """Rows of a session that merged with a finished one: no pane will deliver them, so they are late.

        Beam forgets them."""
        found = []
        for window in self.windows.values():
            if window.finished:
                found += window.waiting
                window.rows, window.waiting = [], []
        return found

    def joined(self, whole: Bounds, parts: Sequence[Window]) -> Window:
        window = self.new(whole)
        for part in parts:
            window.tree.absorb(part.tree, same_end=part.end == whole[1])
            window.rows += part.rows
            window.waiting += part.waiting
            window.finished |= part.finished
            if (part.start, part.end) == whole:
                window.panes, window.ended_panes = part.panes, part.ended_panes
        return window

    def pass_time(self, watermark: int, now: int, *, clock: bool) -> list[Any]:
        """The watermark or the clock moved: ask the windows that have a timer for it, once each."""
        panes = []
        for window in self.windows.values():
            at = window.moment(watermark, now)
            nodes = list(window.tree.all())
            due = any(isinstance(n, AfterDelay) and n.wants(at) for n in nodes) if clock else False
            if at.ended and any(n.timer for n in nodes):
                due = True
                for node in nodes:
                    node.timer = False
            if due and not window.finished and window.tree.wants(at):
                panes.append(self.emit(window, at, by_time=not clock))
        return panes

    def expire(self, watermark: int) -> list[Any]:
        """Drop windows that no row can reach. Rows that no pane has delivered come in a last one: Millpond's choice."""
        panes = []
        for bounds, window in list(self.windows.items()):
            if self.expired(window.end, watermark):
                del self.windows[bounds]
                if window.waiting and not window.finished:
                    timing = "late" if window.ended_panes else "on_time"
                    panes.append(window.pane(timing, last=True))
        return panes

    def emit(self, window: Window, at: Moment, *, by_time: bool) -> list[Any]:
        last = window.tree.fire(at)
        timing = "early"
        if at.ended:
            timing = "on_time" if by_time and not window.ended_panes else "late"
            window.ended_panes += 1
        pane = window.pane(timing, last)
        window.panes += 1
        window.waiting = []
        window.finished |= last
        if last or self.case["mode"] == "discarding":
            window.rows = []
        return pane


def run(case: Mapping[str, Any], steps: Sequence[Sequence[Any]]) -> list[dict[str, list[Any]]]:
    """Per step: panes [key, start, end, rows, number, timing, last], and late rows [key, id]."""
    keys: dict[str, Key] = {}
    watermark, now = NO_WATERMARK, 0
    answers = []
    for action, what in steps:
        answer: dict[str, list[Any]] = {"panes": [], "late": []}
        if action == "rows":
            given: dict[str, list[tuple[int, int]]] = {}
            for key, at, row in what:
                given.setdefault(key, []).append((at, row))
            for key, rows in given.items():
                panes, late = keys.setdefault(key, Key(case)).add(rows, watermark, now)
                answer["panes"] += [[key, *pane] for pane in panes]
                answer["late"] += [[key, row] for row in late]
        else:
            if action == "watermark":
                watermark = max(watermark, what)
            else:
                now += what
            for key, of_key in keys.items():
                panes = of_key.pass_time(watermark, now, clock=action == "clock")
                answer["panes"] += [[key, *pane] for pane in panes]
        for key, of_key in keys.items():
            answer["panes"] += [[key, *pane] for pane in of_key.expire(watermark)]
        answers.append(answer)
    return answers
