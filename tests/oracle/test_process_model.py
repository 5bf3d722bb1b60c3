"""Python per key against a dict per key, whatever happens to the pond (laws 1, 3 and 9).

After every epoch the outputs, the side outputs, the error rows, the states and
the timers are what a naive model says, across restarts, rescales, compactions,
rollbacks and forks.  MILLPOND_PROCESS_EXAMPLES says how many histories the slow
test plays for each kind of step.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from millpond.process import batch, feed, outputs
from tests.oracle.process_model import Collections, Living, LivingUntimed, Plays, Timed, Values
from tests.oracle.process_world import World, histories, run, settings_of

EXAMPLES = int(os.environ.get("MILLPOND_PROCESS_EXAMPLES", "300"))
KINDS = [Values, Collections, Timed, Living, LivingUntimed]
CAREFULLY = dict(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate, Phase.shrink]
)


def check(kind: type[Plays], options: dict[str, Any], history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, World(Path(folder) / "pond", kind, **options) as world:
        run(world, history)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=12, derandomize=True, **CAREFULLY)
@given(data=st.data())
def test_states_are_dicts_and_timers_a_sorted_list(kind: type[Plays], data: st.DataObject) -> None:
    check(kind, data.draw(settings_of(kind)), data.draw(histories(kind)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=4, derandomize=True, **CAREFULLY)
@given(data=st.data())
def test_the_same_over_many_epochs(kind: type[Plays], data: st.DataObject) -> None:
    check(kind, data.draw(settings_of(kind)), data.draw(histories(kind, steps=6, rows_min=4)))


@pytest.mark.parametrize("kind", [Values, Timed], ids=lambda kind: kind.__name__)
@settings(max_examples=5, derandomize=True, **CAREFULLY)
@given(data=st.data())
def test_the_same_in_stretches_of_two_rows(kind: type[Plays], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (batch, feed, outputs):
            patch.setattr(module, "CHUNK_ROWS", 2)
        check(kind, data.draw(settings_of(kind)), data.draw(histories(kind, steps=4, rows_min=6)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=EXAMPLES, **CAREFULLY)
@given(data=st.data())
def test_the_same_for_longer(kind: type[Plays], data: st.DataObject) -> None:
    check(
        kind,
        data.draw(settings_of(kind)),
        data.draw(histories(kind, steps=12, rows_min=data.draw(st.sampled_from([0, 3])))),
    )
