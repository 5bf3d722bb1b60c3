"""Seeded runs of the whole protocol; a failing seed is printed by its test id."""

from __future__ import annotations

import os

import pytest

from tests.sampling import seeds

from .bank_world import BankWorld
from .control_world import ControlWorld
from .world import World

SEEDS = int(os.environ.get("MILLPOND_SIM_SEEDS", "40"))
FIRST = int(os.environ.get("MILLPOND_SIM_FIRST", "0"))


@pytest.mark.parametrize("seed", seeds(15, FIRST, SEEDS, "MILLPOND_SIM_SEEDS"))
def test_nothing_is_lost_or_doubled(seed: int) -> None:
    world = World(seed)
    world.run()
    assert world.log.items


@pytest.mark.parametrize("seed", seeds(2, FIRST, SEEDS, "MILLPOND_SIM_SEEDS"))
def test_every_transaction_is_whole(seed: int) -> None:
    world = BankWorld(seed)
    world.run()
    assert seed or world.moved, "the first seed moves money"


@pytest.mark.parametrize("seed", seeds(4, FIRST, SEEDS, "MILLPOND_SIM_SEEDS"))
def test_a_pond_under_control_keeps_its_promises(seed: int) -> None:
    world = ControlWorld(seed)
    world.run()
    assert world.noted
