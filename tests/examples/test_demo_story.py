"""The demo's whole story on the inline engine: killed, recovered, rescaled, checked; no Java needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.arguments import open_reader
from millpond.cli.demo import story
from millpond.cli.demo.feed import DemoFeed
from millpond.cli.output import OutputColumn
from millpond.cli.screen import SilentScreen
from millpond.errors import InvalidError


class Heard(SilentScreen):
    """A screen that remembers."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.said: list[tuple[str, bool | None]] = []
        self.rows: list[Mapping[str, Any]] = []

    def act(self, text: str) -> None:
        self.acts.append(text)

    def say(self, text: str, *, good: bool | None = None) -> None:
        self.said.append((text, good))

    def progress(self, columns: Sequence[OutputColumn], row: Mapping[str, Any]) -> None:
        self.rows.append(row)


def test_the_whole_story_without_spark(tmp_path: Path) -> None:
    """A process is killed with SIGKILL, another goes on; two rescales; two comparisons with DuckDB."""
    heard = Heard()
    path = str(tmp_path / "pond")
    facts = story.play(path, DemoFeed(events=3_000, per_second=1_500, slices=12), heard, engine="inline")
    assert [act[0] for act in heard.acts] == ["1", "2", "3", "W", "4", "5"]
    assert facts["takeovers"] == 1
    assert {n for n, epochs in facts["epochs_by_tasks"].items() if epochs} == {1, 2, 5}
    assert len(facts["checked"]) == 2
    assert all(good is not False for _, good in heard.said)
    assert sum(row["rows"] or 0 for row in heard.rows) == 3_000 * 49 // 50  # all but the people
    head = open_reader(path).head()
    assert head.parallelism == 1
    with pytest.raises(InvalidError, match="there is a pond here already"):
        story.play(path, DemoFeed(1_000, 1_000), heard, engine="inline")
