"""Law 3: the same rows give the same outputs, states and timers at any parallelism, in any splits."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.process_model import Collections, Living, Plays, Timed, Values
from tests.oracle.process_world import KEYED_BY, World, programs
from tests.oracle.test_process_model import CAREFULLY

KINDS = [Values, Collections, Timed, Living]
STEP = st.sampled_from([0.000001, 0.25, 1.0, 2.5])  # no two rows at one time


def outcome(
    kind: type[Plays], key: tuple[str, ...], epochs: list[list[Any]], parallelism: int, seed: int | None
) -> list[Any]:
    """Everything that can be read after every epoch; with a seed the splits are shuffled."""
    found: list[Any] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        World(Path(folder) / "pond", kind, key, parallelism=parallelism, delay_s=1) as world,
    ):
        for rows in epochs:
            made = world.rows(rows)
            world.clock.advance(1_500_000)
            if seed is None:
                world.source.push(made)
            else:
                rng = random.Random(seed)
                rng.shuffle(made)
                cut = rng.randint(0, len(made))
                world.source.push(*(part for part in (made[:cut], made[cut:]) if part))
            world.pond.drain()
            pond = world.pond
            found.append([pond.read(view).to_pylist() for view in ("out", "side")])
            found.append([pond.errors().to_pylist()])
            names = [*world.model.specs, *(["timers"] if world.model.fires else [])]
            found.append([pond.state_rows("plays", name) for name in names])
    return [[Counter(map(repr, rows)) for rows in part] for part in found]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=4, derandomize=True, **CAREFULLY)
@given(data=st.data())
def test_the_outcome_does_not_depend_on_tasks_and_splits(kind: type[Plays], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(KEYED_BY))
    rows = st.lists(st.tuples(st.integers(0, 3), STEP, programs(kind)), min_size=1, max_size=12)
    epochs = data.draw(st.lists(rows, min_size=1, max_size=3))
    one = outcome(kind, key, epochs, 1, None)
    assert one == outcome(kind, key, epochs, 7, None)
    assert one == outcome(kind, key, epochs, 3, data.draw(st.integers(0, 999)))
