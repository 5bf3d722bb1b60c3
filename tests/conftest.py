"""What suites share: the seeds of random tests, and one Kafka broker for the whole run.

Random tests use fixed seeds, so that a run gives the same verdict on every machine.  MILLPOND_FRESH_SEEDS=1
(`make fuzz`) makes Hypothesis choose new examples in every run; what fails is printed so that it can be repeated.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from benchmarks.broker import running
from benchmarks.maven import MissingError

if TYPE_CHECKING:
    from tests.kafka.topic import Topic

_numbers = itertools.count()

FRESH = os.environ.get("MILLPOND_FRESH_SEEDS") == "1"
hypothesis.settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile(
    "fresh", derandomize=False, database=None, deadline=None, print_blob=True
)
hypothesis.settings.load_profile("fresh" if FRESH else "fixed")


@pytest.fixture(scope="session")
def brokers() -> Iterator[str]:
    """Of a broker that this run starts; MILLPOND_TEST_BROKERS names one that runs already."""
    given = os.environ.get("MILLPOND_TEST_BROKERS")
    if given:
        yield given
        return
    try:
        with running(("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")) as found:
            yield found.address
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def make_topic(brokers: str) -> Callable[..., Topic]:
    from tests.kafka.topic import Topic

    def made(partitions: int = 2, **config: str) -> Topic:
        return Topic(brokers, f"t{os.getpid()}-{next(_numbers)}", partitions, **config)

    return made
