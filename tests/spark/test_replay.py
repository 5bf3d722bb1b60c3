"""What Spark committed comes out the same inline: a replay needs no cluster (laws 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tests.oracle import pipeline
from tests.oracle.pipeline import VIEWS
from tests.oracle.replays import replay_all
from tests.oracle.world import World


@pytest.fixture(autouse=True, scope="module")
def functions_by_value() -> Iterator[None]:
    """The workers cannot import the tests: what a view's Python is goes with the plan."""
    cloudpickle.register_pickle_by_value(pipeline)
    yield
    cloudpickle.unregister_pickle_by_value(pipeline)


@pytest.mark.slow
def test_epochs_of_spark_are_replayed_inline(session: Any, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", 7300, cases=VIEWS, engine="spark", spark=session, turn=3)
    with closing(world):
        for _ in range(4):
            world.step()
        assert replay_all(world.pond) > 0
