"""The demo's parts; the whole story is played in tests/examples and tests/spark."""

from __future__ import annotations

import doctest
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import millpond
from millpond.cli import program_name
from millpond.cli.arguments import open_reader
from millpond.cli.commands import demo as command
from millpond.cli.demo import feed as feeds
from millpond.cli.demo import story
from millpond.cli.demo.feed import DemoFeed, SliceClock
from millpond.cli.demo.pipeline import BATCH, batch, define, same
from millpond.cli.demo.process import PipelineProcess
from millpond.cli.output import OutputColumn, TablePart
from millpond.cli.screen import LiveScreen, LogScreen, SilentScreen
from millpond.clock import ManualClock
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.state.manifest import history

FEED = DemoFeed(events=2_000, per_second=100_000, slices=4)


class Heard(SilentScreen):
    """A screen that remembers what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bool | None]] = []

    def say(self, text: str, *, good: bool | None = None) -> None:
        self.said.append((text, good))


def run_to_the_end(path: Path, feed: DemoFeed) -> None:
    clock = ManualClock(0)
    with millpond.open(path, engine="inline", durable=False, parallelism=2) as pond:
        define(pond, feed, clock)
        pond.drain()
        for _ in range(3):
            clock.advance(10**9)
            pond.drain()


def test_the_views_are_those_of_the_batch_query(tmp_path: Path) -> None:
    run_to_the_end(tmp_path / "pond", FEED)
    reader = open_reader(str(tmp_path / "pond"))
    head = reader.head()
    assert FEED.done(head.positions) == FEED.events
    for view, wanted in batch(FEED, head).items():
        assert wanted.num_rows > 0
        assert same(reader.read(view), wanted), view


def test_same_is_about_rows_not_their_order() -> None:
    rows = pa.table({"k": [1, 2, 2], "v": [1.0, 2.0, 3.0]})
    assert same(rows, rows.take([2, 0, 1]))
    assert not same(rows, rows.take([0, 1, 1]))
    assert not same(rows, rows.slice(1))


def test_a_view_that_differs_stops_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_to_the_end(tmp_path / "pond", FEED)
    reader = open_reader(str(tmp_path / "pond"))
    heard = Heard()
    stage = story.Stage(str(tmp_path / "pond"), FEED, heard, reader, "inline", tmp_path / "log")
    story.compare(stage, reader.head())
    monkeypatch.setitem(BATCH, "auction_bids", BATCH["auction_bids"] + " HAVING count(*) > 1")
    with pytest.raises(DataError, match="'auction_bids' differs from the batch query"):
        story.compare(stage, reader.head())
    assert [good for _, good in heard.said] == [True, False]


def test_the_feed_knows_what_is_done_and_how_late_it_is() -> None:
    positions = {
        "bids": {"next": 1_000, "start_us": 0},
        "auctions": {"next": 500, "start_us": 0},
        "inbox": 3,
    }
    feed = DemoFeed(events=2_000, per_second=1_000)
    assert feed.done(positions) == 500
    assert feed.done({"bids": {"next": 9}}) == 0
    assert feed.lag_s(positions, now_us=1_200_000) == 0.7
    assert feed.lag_s(positions, now_us=10**12) == 1.5  # no more than there are
    assert feed.lag_s({}, now_us=10**12) == 0
    assert DemoFeed.decode(feed.encode()) == feed
    clock = feed.clock(positions)
    assert clock.now_us() == 500_000
    assert clock.next_slice() == 500_000 + 67_000


def test_a_slice_is_never_in_the_future() -> None:
    clock = SliceClock(ManualClock(10), 100, None)
    assert [clock.now_us(), clock.next_slice()] == [10, 10]
    assert doctest.testmod(feeds).failed == 0


def test_a_process_that_dies_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = PipelineProcess("nowhere://x", FEED, "inline", log)
    process._process.wait(60)
    with pytest.raises(UnavailableError, match="process ended") as told:
        process.check()
    assert "nowhere" in str(told.value) and str(log) in str(told.value)
    process.end()


def test_no_java_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(InvalidError, match="needs java 17") as told:
        story.play(str(tmp_path / "pond"), FEED, Heard())
    assert told.value.hint is not None and "install" in told.value.hint
    assert history.read_head(millpond.open(tmp_path / "pond").store) is None


def told(screen: LogScreen) -> None:
    with screen:
        screen.act("1. begins")
        screen.waiting("looking")
        for n in range(20):
            screen.progress(
                (OutputColumn("epoch", right=True, width=6), OutputColumn("note")), {"epoch": n, "note": None}
            )
        screen.say("it holds", good=True)
        screen.show(TablePart("top", (OutputColumn("k"),), [{"k": "x"}]))


def test_a_log_has_a_line_for_everything_and_no_control_codes() -> None:
    out = io.StringIO()
    told(LogScreen(Console(file=out, width=80)))
    text = out.getvalue()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[:5] == ["", "1. begins", "  looking ...", "   epoch  note", "       0  -   "]
    assert "  ok: it holds" in lines and len(lines) == 27


def test_a_terminal_keeps_the_end_of_the_table() -> None:
    out = io.StringIO()
    told(LiveScreen(Console(file=out, width=80, force_terminal=True)))
    text = out.getvalue()
    assert "\x1b" in text
    before, after = text.split("ok: it holds")
    rows = before.rsplit("epoch", 1)[1]
    assert [n for n in range(20) if f"{n:5}  -" in rows] == list(range(20))  # what moved stays, all of it
    assert "epoch" not in after


def test_the_command_chooses_the_feed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.unit.cli.ponds import ask_json

    played: list[tuple[str, DemoFeed]] = []

    def play(path: str, feed: DemoFeed, screen: object) -> dict[str, Any]:
        played.append((path, feed))
        return {"seconds": 1.0}

    monkeypatch.setattr(command, "play", play)
    assert ask_json("demo", "--fast", "--path", str(tmp_path / "p")) == {"seconds": 1.0}
    ask_json("demo", "--events", "80000")
    (path, small), (chosen, large) = played
    assert path == str(tmp_path / "p") and small.events == command.FAST_EVENTS
    assert (large.events, large.per_second) == (80_000, 2_000)
    assert Path(chosen).parent.is_dir() and not Path(chosen).exists()


def test_printed_commands_name_the_program_as_the_shell_finds_it(tmp_path: Path) -> None:
    assert doctest.testmod(program_name).failed == 0
    ours, theirs = tmp_path / "a" / "millpond", tmp_path / "b" / "millpond"
    for path in (ours, theirs):
        path.parent.mkdir()
        path.touch()
    other = program_name.program(str(ours), lambda name: str(theirs), str(tmp_path / "elsewhere"))
    assert other == str(ours), "another program of that name is found first"
    (link := tmp_path / "millpond").symlink_to(ours)
    assert program_name.program(str(ours), lambda name: str(link), "/") == "millpond"
    assert program_name.program("/x/millpond/__main__.py").endswith(" -m millpond")
