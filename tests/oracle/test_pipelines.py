"""Law 1: whatever happens to a pond, after every epoch each view is the batch query over the accounted input.

MILLPOND_ORACLE_SEEDS says how many random histories are played, from seed MILLPOND_ORACLE_FIRST on.
The seed of one that fails is in its name.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.oracle.pipeline import VIEWS
from tests.oracle.world import World
from tests.sampling import seeds

SEEDS = int(os.environ.get("MILLPOND_ORACLE_SEEDS", "12"))
FIRST = int(os.environ.get("MILLPOND_ORACLE_FIRST", "0"))


@pytest.mark.parametrize("seed", seeds(2, FIRST, SEEDS, "MILLPOND_ORACLE_SEEDS"))
def test_views_are_batch_queries_whatever_happens(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", seed)
    try:
        world.run(steps=8)
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(FIRST + 1000, FIRST + 1000 + max(1, SEEDS // 8)))
def test_with_merges_and_collections_beside_the_chain(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path / "pond", seed, threads=True)
    try:
        world.run(steps=6)
    finally:
        world.close()


def test_all_kinds_of_views_at_once(tmp_path: Path) -> None:
    world = World(tmp_path / "pond", 4242, cases=VIEWS)
    try:
        world.run(steps=6)
    finally:
        world.close()
