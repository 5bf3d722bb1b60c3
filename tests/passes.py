"""Chooses the passes of the physical plan that a test runs without.

A third of all tests run with all passes, a third with none and a third with a random subset.  The choice follows
from the name of the test and MILLPOND_PASSES_SEED, so a failure repeats; another seed gives every test another one.
"""

from __future__ import annotations

import os
import random

import pytest

from millpond.engine.task.optimizer import NAMES, VARIABLE

SEED = "MILLPOND_PASSES_SEED"


def switched_off(test: str) -> str:
    """The value of MILLPOND_PASSES_OFF for a test.

    >>> switched_off("a") == switched_off("a")
    True
    """
    rng = random.Random(f"{os.environ.get(SEED, '0')} {test}")
    way = rng.choice(("on", "off", "some"))
    if way == "some":
        return ",".join(rng.sample(NAMES, rng.randrange(1, len(NAMES))))
    return "" if way == "on" else "all"


@pytest.fixture(autouse=True)
def some_passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with all, no or some passes; a conftest.py that imports this does so for its folder."""
    off = switched_off(request.node.nodeid)
    monkeypatch.setenv(VARIABLE, off)
    print(f"{VARIABLE}={off}")  # pytest shows it if the test fails
