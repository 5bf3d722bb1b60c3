"""Python per key on Spark: what a dict per key says, epoch by epoch, as in this process (law 3)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import millpond
from millpond.errors import InvalidError
from millpond.sources.memory import MemorySource
from tests.oracle import process_model
from tests.oracle.process_model import Collections, Living, Plays, Timed, Values
from tests.oracle.process_world import World, histories, run, settings_of
from tests.oracle.test_process_model import CAREFULLY

ONCE = {**CAREFULLY, "phases": [Phase.generate]}  # to shrink takes minutes here

# The workers cannot import these files: send what is defined here by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(process_model)

KINDS = [Values, Collections, Timed, Living]


def check(session: Any, kind: type[Plays], data: st.DataObject, steps: int) -> None:
    options = {**data.draw(settings_of(kind)), "near": 32, "page": 4096, "engine": "spark", "spark": session}
    options["parallelism"] = min(options["parallelism"], 4)
    with tempfile.TemporaryDirectory() as folder, World(Path(folder) / "pond", kind, **options) as world:
        run(world, data.draw(histories(kind, steps=steps)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=2, derandomize=True, **ONCE)
@given(data=st.data())
def test_states_are_dicts_and_timers_a_sorted_list(
    session: Any, kind: type[Plays], data: st.DataObject
) -> None:
    check(session, kind, data, 4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25, **ONCE)
@given(data=st.data())
def test_the_same_for_longer(session: Any, kind: type[Plays], data: st.DataObject) -> None:
    check(session, kind, data, 8)


def loops(row: Any) -> Any:
    while row.v == 13:
        pass
    return {"k": row.k, "v": row.v}


@pytest.mark.slow
def test_code_that_does_not_come_back(session: Any, tmp_path: Path) -> None:
    """The worker says which step and key it was, and lives on."""
    with millpond.open(tmp_path / "pond", spark=session, parallelism=2, durable=False, checks=True) as pond:
        source = MemorySource(pa.schema([("k", pa.string()), ("v", pa.int64())]))
        made = pond.stream("in", source).key_by("k")
        made.process(loops, {"k": str, "v": int}, id="mine", timeout="500ms").view("out")
        source.push([{"k": "a", "v": 1}, {"k": "b", "v": 13}])
        with pytest.raises(InvalidError, match="does not come back") as caught:
            pond.drain()
        assert caught.value.step == "mine" and "k='b'" in (caught.value.detail or "")
