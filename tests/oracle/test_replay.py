"""Replays of random histories: all operators, with restarts, rescales, merges, rollbacks and forks between."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.oracle.pipeline import VIEWS
from tests.oracle.replays import replay_all
from tests.oracle.world import World
from tests.sampling import seeds

SEEDS = int(os.environ.get("MILLPOND_ORACLE_SEEDS", "25"))
FIRST = int(os.environ.get("MILLPOND_ORACLE_FIRST", "0"))


@pytest.mark.parametrize("seed", seeds(1, FIRST + 9000, max(1, SEEDS // 5), "MILLPOND_ORACLE_SEEDS"))
def test_every_kept_epoch_comes_out_the_same(seed: int, tmp_path: Path) -> None:
    with closing(World(tmp_path / "pond", seed)) as world:
        compared = 0
        for _ in range(6):
            world.step()
            compared += replay_all(world.pond, last=5)
        replay_all(world.pond)
        assert compared > 20


def test_all_kinds_of_views_at_once(tmp_path: Path) -> None:
    with closing(World(tmp_path / "pond", 4242, cases=VIEWS)) as world:
        compared = 0
        for _ in range(4):
            world.step()
            compared += replay_all(world.pond, last=3)
        assert compared > 40
