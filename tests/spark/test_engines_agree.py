"""Law 3: both engines, at any parallelism, make the same of the same input, epoch by epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from millpond.state.manifest.history import read_manifest
from tests.oracle import pipeline
from tests.oracle.pipeline import VIEWS, ViewCase
from tests.oracle.world import World
from tests.sampling import seeds

SEEDS = int(os.environ.get("MILLPOND_ENGINE_SEEDS", "3"))
STEPS = 8


@pytest.fixture(autouse=True, scope="module")
def functions_by_value() -> Iterator[None]:
    """The workers cannot import the tests: what a view's Python is goes with the plan."""
    cloudpickle.register_pickle_by_value(pipeline)
    yield
    cloudpickle.unregister_pickle_by_value(pipeline)


def bits(table: pa.Table) -> list[str]:
    """The rows in some order, spelled out: `repr` tells every bit of a float."""
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def agree(one: World, two: World, since: int) -> int:
    """All epochs after `since` are the same in both ponds; the last of them."""
    assert one.pond.epoch == two.pond.epoch
    for epoch in range(since + 1, one.pond.epoch + 1):
        left, right = (read_manifest(w.pond.store, epoch) for w in (one, two))
        for field in ("kind", "positions", "watermarks", "counts", "admitted", "restores", "savepoints"):
            assert getattr(left, field) == getattr(right, field), f"{field} of epoch {epoch}"
        assert left.parallelism != right.parallelism
        for case in one.cases:
            where = f"view {case.name!r} at epoch {epoch}"
            assert bits(one.pond.read(case.name, epoch=epoch)) == bits(
                two.pond.read(case.name, epoch=epoch)
            ), where
            if epoch:
                changes = [bits(w.pond.diff(case.name, epoch - 1, epoch)) for w in (one, two)]
                assert changes[0] == changes[1], f"changes of {where}"
        assert bits(one.pond.late("e.watermark", epoch=epoch)) == bits(
            two.pond.late("e.watermark", epoch=epoch)
        )
        assert bits(one.pond.errors(epoch=epoch)) == bits(two.pond.errors(epoch=epoch))
    return one.pond.epoch


def play(session: Any, folder: Path, seed: int, cases: tuple[ViewCase, ...] | None, steps: int) -> None:
    inline = World(folder / "inline", seed, cases=cases, compact=False)
    with closing(inline):
        spark = World(
            folder / "spark", seed, cases=inline.cases, compact=False, engine="spark", spark=session, turn=3
        )
        with closing(spark):
            epoch, forks = -1, 0
            for _ in range(steps):
                inline.step()
                spark.step()
                if inline.forks > forks:
                    epoch, forks = -1, inline.forks
                epoch = agree(inline, spark, epoch)
            inline.check()  # and both are right
            counts = inline.pond.head().counts
            assert counts.get("rows/a", 0) + counts.get("rows/e", 0), "the seed played nothing"


@pytest.mark.parametrize("seed", seeds(0, 7000, SEEDS, "MILLPOND_ENGINE_SEEDS"))
def test_inline_and_spark_agree(seed: int, session: Any, tmp_path: Path) -> None:
    play(session, tmp_path, seed, None, STEPS)


def test_they_agree_on_every_kind_of_view_at_once(session: Any, tmp_path: Path) -> None:
    play(session, tmp_path, 7100, VIEWS, 6)
