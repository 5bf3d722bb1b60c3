"""Settings and fixtures of all suites: seeds of random tests, short retry pauses, no pond left open by a test,
one Kafka broker per run.

Random tests use fixed seeds, so a run gives the same verdict on every machine.  They run a tenth of the examples
that they state, but at least four: the examples are the same in every run, so more of them would find nothing new.
MILLPOND_FRESH_SEEDS=1 (`make fuzz`) runs all examples and chooses new ones in every run.  A failure prints how to
repeat it.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.left_open import closed_at_the_end

if TYPE_CHECKING:
    from tests.kafka.topic import Topic

_numbers = itertools.count()

# A shell makes what it starts in the background ignore Ctrl-C, and every child inherits that: some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The sessions of tests are short: the first compiler of the JVM is enough.
for _options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_options, "-XX:TieredStopAtLevel=1")

FRESH = os.environ.get("MILLPOND_FRESH_SEEDS") == "1"
# How long an example takes to make says something about the machine, nothing about the test.
_ANY_SPEED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("fixed", derandomize=True, database=None, **_ANY_SPEED)
hypothesis.settings.register_profile("fresh", derandomize=False, database=None, print_blob=True, **_ANY_SPEED)
hypothesis.settings.load_profile("fresh" if FRESH else "fixed")
EXAMPLES_MIN = 4


def examples_in_normal_run(stated: int) -> int:
    """Return how many of the examples that a random test states a run with fixed seeds tries."""
    return min(stated, max(EXAMPLES_MIN, stated // 10))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reduce the examples of every Hypothesis test that is not slow, here instead of in a hundred decorators."""
    gc.freeze()  # the modules of all tests: every collection of garbage would look at them again
    if FRESH:
        return
    normal = (item for item in items if item.get_closest_marker("slow") is None)
    tests = {item.obj for item in normal if isinstance(item, pytest.Function)}
    for test in tests:
        stated = getattr(test, "_hypothesis_internal_use_settings", None)
        if stated is not None:
            count = examples_in_normal_run(stated.max_examples)
            test._hypothesis_internal_use_settings = hypothesis.settings(stated, max_examples=count)


@pytest.fixture(autouse=True)
def close_ponds() -> Iterator[None]:
    """Close what a test has left open; a fixture with a wider scope is set up before this one."""
    with closed_at_the_end():
        yield


@pytest.fixture(autouse=True)
def short_pauses(close_ponds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pipelines in this process retry after milliseconds; the unit test of the runner checks the real pauses."""
    runner = sys.modules.get("millpond.engine.coordinator.runner")
    if runner is not None:
        sleep = runner.Runner._sleep
        monkeypatch.setattr(runner.Runner, "_sleep", lambda self, seconds: sleep(self, min(seconds, 0.005)))


@pytest.fixture(scope="session")
def brokers() -> Iterator[str]:
    """The address of a broker that this run starts, or of the running one that MILLPOND_TEST_BROKERS names."""
    given = os.environ.get("MILLPOND_TEST_BROKERS")
    if given:
        yield given
        return
    from benchmarks.broker import running
    from benchmarks.maven import MissingError

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
