"""Draws the pictures of docs/event-time.md: what Millpond does with a few rows.

    python scripts/event_time_pictures.py

Law: panes, late rows and windows in the pictures come from running the pipeline; two runs give equal bytes.
Colours are readable on light and dark pages; there is no background.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import millpond
from millpond.flow.window_steps import Mode
from millpond.sources.memory import MemorySource
from millpond.triggers import after_count, after_watermark
from millpond.windows import WindowAssigner, calendar, everything, sessions, sliding, tumbling

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
NOON = datetime.datetime(2026, 3, 1, 12)
MINUTE = datetime.timedelta(minutes=1)
DELAY, SIZE, LATENESS, EARLY = 2, 10, 5, 3  # minutes, minutes, minutes, rows
GREY, BLUE, GREEN, ORANGE, RED = "#808080", "#3b82f6", "#2e9e5b", "#d97706", "#dc4a4a"
OF_TIMING = {"early": BLUE, "on_time": GREEN, "late": ORANGE}


class Arrival(NamedTuple):
    """A row: the minute in which it arrives, the minute in which it happened, and its points."""

    arrives: int
    happened: int
    points: int


ROWS = [
    Arrival(2, 1, 5),
    Arrival(4, 3, 7),
    Arrival(7, 6, 3),
    Arrival(9, 4, 4),
    Arrival(12, 11, 8),
    Arrival(14, 13, 2),
    Arrival(16, 8, 6),
    Arrival(19, 19, 1),
    Arrival(22, 2, 9),
    Arrival(25, 23, 4),
]


class Pane(NamedTuple):
    arrives: int  # when it was emitted
    start: int
    points: int | None
    timing: str
    weight: int


class Played(NamedTuple):
    panes: list[Pane]
    late: set[Arrival]
    view: list[int]  # what is read at the end, of the window from 12:00


def minute(time: datetime.datetime) -> int:
    return (time - NOON) // MINUTE


def play(mode: Mode) -> Played:
    """Run the rows, one in an epoch, through windows of ten minutes."""
    source = MemorySource({"team": str, "points": int, "at": datetime.datetime})
    panes: list[Pane] = []
    with millpond.open("memory://", engine="inline") as pond:
        stream = pond.stream("scores", source, event_time="at", delay=f"{DELAY}m")
        windowed = stream.key_by("team").window(
            tumbling(f"{SIZE}m"),
            trigger=after_watermark(early=after_count(EARLY), late=after_count(1)),
            allowed_lateness=f"{LATENESS}m",
            mode=mode,
            panes=True,
        )
        windowed.aggregate(points="sum(points)").view("totals")
        windowed.late().view("too_late")
        seen = 0
        for row in ROWS:
            at = NOON + row.happened * MINUTE
            source.push([{"team": "red", "points": row.points, "at": at}])
            pond.drain()
            for delta in pond.changes("totals", since=seen):
                for one in sorted(delta.table.to_pylist(), key=lambda one: one["_w"]):
                    start, points, timing = minute(one["window_start"]), one["points"], one["pane_timing"]
                    panes.append(Pane(row.arrives, start, points, timing, one["_w"]))
            seen = pond.status.epoch or 0
        late = {minute(row["at"]) for row in pond.read("too_late").to_pylist()}
        rows = sorted(pond.read("totals").to_pylist(), key=lambda row: row["pane"])
        view = [row["points"] for row in rows if row["window_start"] == NOON]
    return Played(panes, {row for row in ROWS if row.happened in late}, view)


# -- svg ----------------------------------------------------------------------------


def text(x: float, y: float, words: str, colour: str = GREY, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}">{words}</text>'


def line(points: Sequence[tuple[float, float]], colour: str, more: str = "") -> str:
    places = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}"{more}/>'


def box(x: float, y: float, width: float, height: float, colour: str, opacity: str = "0.15") -> str:
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {size} fill="{colour}" fill-opacity="{opacity}" stroke="{colour}" stroke-opacity="0.5"/>'


def dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{colour}"/>'


def svg(width: int, height: int, title: str, parts: Iterator[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'font-family="sans-serif" font-size="12" role="img"><title>{title}</title>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


# -- pictures -----------------------------------------------------------------------


def model() -> str:
    """Rows over event time and processing time, with the watermark, two windows and their panes."""
    played = play("accumulating")

    def x(happened: float) -> float:
        return 60 + 18 * happened

    def y(arrives: float) -> float:
        return 480 - 16 * arrives

    def parts() -> Iterator[str]:
        for start in (0, SIZE):
            yield box(x(start), y(27), 18 * SIZE, 16 * 27, GREY, "0.08")
            yield text(x(start + SIZE / 2), y(27) - 8, f"window 12:{start:02}", GREY, "middle")
        yield line([(x(0), y(27)), (x(0), y(0)), (x(27), y(0))], GREY)
        for tick in range(0, 26, 5):
            yield text(x(tick), y(0) + 16, f"12:{tick:02}", GREY, "middle")
            yield text(x(0) - 6, y(tick) + 4, f"12:{tick:02}", GREY, "end")
        yield text(x(13.5), y(0) + 34, "event time: when it happened", GREY, "middle")
        words = text(14, 264, "processing time: when it arrives", GREY, "middle")
        yield f'<g transform="rotate(-90 14 264)">{words}</g>'
        yield line([(x(0), y(0)), (x(27), y(27))], GREY, ' stroke-dasharray="2 5"')
        newest, path = 0, []
        for row in ROWS:
            if row.happened > newest:
                before = max(newest - DELAY, 0)
                newest = row.happened
                path += [(x(before), y(row.arrives)), (x(max(newest - DELAY, 0)), y(row.arrives))]
        path.append((path[-1][0], y(27)))
        yield line([(x(0), y(0)), *path], RED, ' stroke-width="2"')
        yield text(path[-1][0] + 6, y(26) + 4, "watermark", RED)
        for pane in played.panes:
            where = y(pane.arrives)
            colour = OF_TIMING[pane.timing]
            ends = [(x(pane.start), where), (x(pane.start + SIZE), where)]
            yield line(ends, colour, ' stroke-width="2" stroke-dasharray="6 3"')
            words = f"{pane.timing.replace('_', ' ')}: {pane.points}"
            yield text(x(pane.start + SIZE) - 4, where - 5, words, colour, "end")
        for row in ROWS:
            late = row in played.late
            yield dot(x(row.happened), y(row.arrives), RED if late else GREY)
            words = f"{row.points}: too late" if late else str(row.points)
            yield text(x(row.happened) + 7, y(row.arrives) + 13, words, RED if late else GREY)

    return svg(600, 530, "Rows by event time and processing time, the watermark, windows and panes", parts())


def modes() -> str:
    """What each mode emits for the window from 12:00."""

    def parts() -> Iterator[str]:
        for number, mode in enumerate(get_args(Mode)):
            top = 34 + 52 * number
            yield text(10, top + 24, mode)
            of_timing: dict[int, list[Pane]] = {}
            played = play(mode)
            for pane in played.panes:
                if pane.start == 0:
                    of_timing.setdefault(pane.arrives, []).append(pane)
            for place, (arrives, panes) in enumerate(of_timing.items()):
                timing = panes[-1].timing
                left, colour = 120 + 150 * place, OF_TIMING[timing]
                if number == 0:
                    said = f"{timing.replace('_', ' ')}, at 12:{arrives:02}"
                    yield text(left + 65, 20, said, colour, "middle")
                yield box(left, top, 130, 38, colour)
                shown = [("+" if pane.weight > 0 else "\N{MINUS SIGN}") + str(pane.points) for pane in panes]
                yield text(left + 65, top + 24, "\N{NO-BREAK SPACE} ".join(shown), colour, "middle")
            yield text(570, top + 24, f"view: {', '.join(map(str, played.view))}")

    return svg(680, 200, "The panes of one window in each of the three modes", parts())


KINDS: list[tuple[str, WindowAssigner]] = [
    ("tumbling", tumbling("10m")),
    ("sliding", sliding("10m", "5m")),
    ("sessions", sessions("5m")),
    ("calendar", calendar("day", "Asia/Tokyo")),
    ("everything", everything()),
]
TIMES = [1, 3, 4, 11, 13, 16, 24, 27]  # minutes after 14:45 UTC; Tokyo's midnight is at 15:00


def kinds() -> str:
    """The windows of each kind that the same rows are in."""
    first = datetime.datetime(2026, 3, 1, 14, 45)

    def x(at: float) -> float:
        return 110 + 15 * (min(max(at, -4), 32) + 4)

    def windows(assigner: WindowAssigner) -> list[tuple[int, int]]:
        source = MemorySource({"team": str, "at": datetime.datetime})
        with millpond.open("memory://", engine="inline") as pond:
            stream = pond.stream("scores", source, event_time="at", delay="1h")
            stream.key_by("team").window(assigner).aggregate(n="count(*)").view("v")
            times = [first + at * MINUTE for at in TIMES]
            source.push([{"team": "red", "at": at} for at in times])
            pond.drain()
            found = pond.read("v").to_pylist()
        return sorted(
            ((r["window_start"] - first) // MINUTE, (r["window_end"] - first) // MINUTE) for r in found
        )

    def parts() -> Iterator[str]:
        top = 14
        for name, assigner in KINDS:
            yield text(10, top + 24, name)
            for at in TIMES:
                yield dot(x(at), top + 4, BLUE)
            below = 14
            for number, (start, end) in enumerate(windows(assigner)):
                lane = number % 2 if name == "sliding" else 0
                yield box(x(start) + 1, top + below + 16 * lane, x(end) - x(start) - 2, 12, GREEN, "0.25")
            top += 62 if name == "sliding" else 46
        yield line([(x(-4), top), (x(32), top)], GREY)
        for at in range(0, 31, 5):
            clock = first + at * MINUTE
            yield text(x(at), top + 16, f"{clock:%H:%M}", GREY, "middle")

    return svg(670, 280, "The windows of each kind for the same rows", parts())


PICTURES = {"event-time.svg": model, "pane-modes.svg": modes, "window-kinds.svg": kinds}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, draw in PICTURES.items():
        (FOLDER / file).write_text(draw())
