"""The benchmark of passes: how its ratios are computed, and that every pass is measured or has a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from benchmarks import passes
from millpond.engine.task.optimizer import NAMES
from millpond.state.manifest import history


def test_the_ratio_is_that_of_epochs_without_to_epochs_with_the_pass() -> None:
    block = [0.010, 0.030, 0.010, 0.010]  # on, off, off, on
    found = passes.figure("hash_order", "some", [*block, *block, 9.0])
    assert (found.blocks, found.ratio, found.low, found.high) == (2, 2.0, 2.0, 2.0)
    assert (found.on_ms, found.off_ms) == (10.0, 20.0)


def test_every_pass_is_measured_or_has_a_reason() -> None:
    assert {*passes.choose("all"), *passes.NOT_MEASURED} == {*NAMES}
    assert passes.choose("hash_order, single_task") == ["hash_order", "single_task"]
    with pytest.raises(ValueError, match="decision 18"):
        passes.choose("plan_parts")
    with pytest.raises(ValueError, match="no pass named 'x'"):
        passes.choose("x")


def test_passes_alternate_by_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch's own record says which passes it ran without."""
    monkeypatch.setattr(passes, "WARM", 0)
    passes.measured("single_task", passes.ONE_VIEW, 1, tmp_path)
    with millpond.open(tmp_path / "pond") as pond:
        manifests = [history.read_manifest(pond.store, epoch) for epoch in history.epochs(pond.store)]
    ran = [m.metrics.get("passes_off", []) for m in manifests if m.kind == "epoch" and m.metrics.get("rows")]
    assert ran[:5] == [[], ["single_task"], ["single_task"], [], []]
