"""Decisions about shedding: where there is nothing to decide, a decision changes nothing."""

from __future__ import annotations

import random

import millpond
from millpond.control.shedding import Shedding
from millpond.engine.coordinator.shed_decisions import ShedInput, decided, is_calm
from millpond.plan.sheddable import ShedRules
from millpond.sources.memory import MemorySource
from millpond.sources.source import Poll, Split


def test_a_calm_source_needs_no_decision() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        source = MemorySource({"k": int})
        pond.stream("in", source).key_by("k").aggregate(n="count(*)").view("v", error_bound=0.01)
        rules = ShedRules(pond.plan)
    chance, calm = random.Random(0), 0
    for _ in range(2_000):
        owed = ({"what": {}, "rows": 1, "readers": ["v"]},) if chance.random() < 0.1 else ()
        divisor = chance.choice((1, 1, 1, 2, 4))
        mine = Shedding(
            chance.choice((None, 1_000_000, 2_000_000)),
            by=chance.choice(("row", "key")),
            key=("k",),
            divisor=divisor,
            divisor_max=max(divisor, chance.choice((1, 3))),
            owed=owed,
            lost=int(chance.random() < 0.1),
        )
        split = Split({}, chance.choice((10, 1_000, 100_000)), 0)
        polls = {"in": Poll((split,), backlog_rows=chance.choice((0, 10, 100_000)))}
        pace = chance.choice((None, 1.0, 100.0, 1_000.0))
        given = ShedInput(polls, pace, {}, {"rows/in": 10**6}, lambda table: 5, chance.choice((0.0, 300.0)))
        if is_calm({"in": mine}, given):
            calm += 1
            found = decided({"in": mine}, rules, given)
            assert found.sources == {"in": mine} and found.calm == {"in"}
    assert 100 < calm < 1_500
