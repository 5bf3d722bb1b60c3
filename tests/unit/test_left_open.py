"""Ponds that a test leaves open are closed, and no others."""

from __future__ import annotations

from pathlib import Path

import millpond
from tests.left_open import closed_at_the_end


def test_only_the_ponds_of_the_block_are_closed(tmp_path: Path) -> None:
    wider = millpond.open(tmp_path / "wider", engine="inline")
    wider.sql("CREATE TABLE t (x int)")
    with closed_at_the_end():
        left = millpond.open(tmp_path / "left", engine="inline")
        left.sql("CREATE TABLE t (x int)")
        left.start()
        read = millpond.open(tmp_path / "wider", engine="inline")
        thread = left._execution.thread
        assert thread is not None and thread.is_alive()
    assert not thread.is_alive()
    assert [pond._execution.closed for pond in (left, read, wider)] == [True, True, False]
    assert left._execution.keeper is None and wider._execution.keeper is not None
