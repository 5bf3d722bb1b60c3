"""The simulation of large ponds runs the real coordinator, and its listing is complete."""

from __future__ import annotations

from benchmarks.scale import Size, measure


def test_a_small_simulation() -> None:
    found = measure(Size(tasks=5, views=4, touched=3, runs=600), epochs=9, latency_s=0.0)
    assert found.puts >= 1 and found.epoch_cpu_ms > 0 and found.manifest_kb > 1
    assert Size(1, 1, 1, 1_600_000).state_tb > 100
