"""What a soak makes of its series, and that its check can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from benchmarks.soak import pipeline, verdict
from benchmarks.soak.pipeline import Soak
from millpond.clock import ManualClock


def test_noise_is_flat_and_a_leak_is_not() -> None:
    noisy = [100.0 + (n * 37 % 11) for n in range(60)]
    assert verdict.judge("memory", "MiB", noisy, 0.05).flat
    leak = [value + n for n, value in enumerate(noisy)]
    assert not verdict.judge("memory", "MiB", leak, 0.05).flat
    assert verdict.judge("memory", "MiB", [*noisy[:-1], 900.0], 0.05).flat  # one spike is not a slope
    assert verdict.judge("memory", "MiB", noisy[::-1], 0.05).flat


def test_what_came_out_of_nothing_is_not_flat() -> None:
    assert not verdict.judge("disk", "MiB", [0.0] * 4 + [float(n) for n in range(8)], 0.05).flat


def test_too_few_samples_tell_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        verdict.judge("disk", "MiB", [1.0, 2.0], 0.05)


def test_a_chart_is_as_wide_as_its_series() -> None:
    assert verdict.chart([1.0] * 5) == "█████"
    assert len(verdict.chart([float(n) for n in range(500)])) == 60


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> millpond.Pond:
    clock = ManualClock(0)
    place = tmp_path_factory.mktemp("soak")
    pond = millpond.open(place / "pond", engine="inline", parallelism=2, clock=clock, durable=False)
    pipeline.define(pond, SMALL, clock)
    for _ in range(SMALL.seconds // 4 + 2):
        clock.advance(4_000_000)
        pond.drain()
    return pond


SMALL = Soak(rate=200, seconds=50, disorder_s=6.0)


@pytest.mark.slow
def test_a_soak_ends_with_the_batch_answer(soaked: millpond.Pond, tmp_path: Path) -> None:
    """Law 1, with rows that came too late."""
    late = pipeline.late_counts(soaked)
    assert late["bid"] > 100
    assert late["person"] > 0
    assert pipeline.differences(soaked, SMALL, tmp_path / "check") == {}


def test_a_soak_notices_a_row_that_is_missing(soaked: millpond.Pond, tmp_path: Path) -> None:
    class Lying:
        late = soaked.late

        def read(self, view: str) -> object:
            return soaked.read(view).slice(1)

    wrong = pipeline.differences(Lying(), SMALL, tmp_path / "check")  # type: ignore[arg-type]
    assert {*wrong} == {view.name for view in pipeline.VIEWS}
