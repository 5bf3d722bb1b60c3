"""States as plain attributes, rows of some columns and lanes are states and rows (laws 1 and 9).

Code whose bytecode shows what it does is run without handles and with fewer
columns, or for many keys at once.  The oracle is the same code run as if nothing were known of it: what
is given, the error rows and the states are the same after every epoch, across
restarts and parallelism.
"""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import millpond
from millpond import Process, ValueState, tuning
from millpond.process import epoch
from millpond.process.value_handle import ValueHandle
from millpond.sources.memory import MemorySource

BYTECODE_READERS = ("allowed", "always_set", "columns_read", "never_emptied")
START = datetime.datetime(2024, 3, 1)
ROW = {"k": int, "x": int, "op": int, "text": str, "ts": datetime.datetime}
GIVES = {"k": int, "a": int, "b": int}


class Always(Process):
    """Both states are set by every row."""

    n = ValueState(int, default=0)
    m = ValueState(float, default=2.0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n.value += 1
        self.m.value = self.m.value + row.x
        if row.op == 0:
            raise ValueError("as told")
        return row.k, self.n.value, int(self.m.value)


class Sometimes(Process):
    """A state may stay without a value, and may be set to its default."""

    n = ValueState(int, default=0)
    m = ValueState(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.op == 1:
            self.n.value = 0
        elif row.op == 2:
            self.n.value += row.x
        elif row.op == 3:
            self.m.value = self.n.value
        elif row.op == 4:
            self.m.clear()
        elif row.op == 5:
            self.m.value = None
        elif row.op == 0:
            self.n.value += 100
            raise ValueError("as told")
        yield row.k, self.n.value, self.m.value
        if row.op == 6:
            yield row.k, "no number", 0


class Emptied(Process):
    """None takes the value away, and the default shows again."""

    n = ValueState(int, default=5)
    m = ValueState(str, default="-")

    def on_row(self, row: Any, ctx: Any) -> Any:
        before = self.n.value
        self.n.value = row.x if row.op else None
        if row.op == 3:
            self.m.value += row.text
        return row.k, before, self.n.value


class Ticks(Sometimes):
    """With timers, which come to keys without rows too."""

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.op == 7:
            ctx.set_timer("tick", after=row.x)
        if row.op == 2:
            self.n.value += row.x
        if row.op == 3:
            self.m.value = row.x
        return row.k, self.n.value, self.m.value

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        self.m.value = None
        return ctx.key.k, self.n.value, -1


def function(row: Any, n: Any = ValueState(int, default=0), m: Any = ValueState(int)) -> Any:
    n.value += row.x
    if row.op > 3:
        m.value = n.value
    return {"k": row.k, "a": n.value, "b": m.value}


class Lanes(Process):
    """Runs in lanes; where x and op are not both small it does not, and the sum of a key is an error."""

    n = ValueState(int, default=0)
    m = ValueState(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n.value += row.x
        if row.op > 5 and (self.m.value is None or row.x > self.m.value):
            self.m.value = row.x
        if row.op == 0:
            return None
        return row.k, self.n.value, 12 // (row.op + row.x + 1)


rows = st.fixed_dictionaries(
    {
        "k": st.integers(0, 3),
        "x": st.integers(-2, 9),
        "op": st.integers(0, 7),
        "text": st.sampled_from(["", "a"]),
        "ts": st.integers(0, 30).map(lambda s: START + datetime.timedelta(seconds=s)),
    }
)
epochs = st.lists(st.tuples(st.lists(rows, max_size=8), st.integers(1, 3)), min_size=1, max_size=4)


def histories(
    code: Any,
    timed: bool,
    latest: bool,
    pushed: list[tuple[list[dict[str, Any]], int]],
    place: Path,
    **options: Any,
) -> list[Any]:
    """What can be seen of the pond after every epoch."""
    source, seen = MemorySource(ROW), []
    for given_rows, parallelism in pushed:
        with millpond.open(place, engine="inline", parallelism=parallelism, **options) as pond:
            clock = {"event_time": "ts", "delay": "5s"} if timed else {}
            stream = pond.stream("s", source, **clock)
            stream.key_by("k").process(code, GIVES, latest=latest, id="it").view("v")
            source.push(given_rows)
            pond.drain()
            seen.append(
                [
                    Counter(tuple(row.values()) for row in table.to_pylist())
                    for table in (
                        pond.read("v"),
                        pond.errors().select(["row", "reason"]),
                        pond.state("it", "n"),
                        pond.state("it", "m"),
                    )
                ]
            )
    return seen


def unread(*_: Any) -> Any:
    raise AssertionError("bytecode is read")


def forbid_bytecode(patch: pytest.MonkeyPatch) -> None:
    for name in BYTECODE_READERS:
        patch.setattr(epoch, name, unread)


def in_doubt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(epoch, "columns_read", lambda code, names: None)
    patch.setattr(epoch, "allowed", lambda code: False)
    patch.setattr(ValueHandle, "shared", lambda handle, emptied, always: None)


@pytest.mark.parametrize(
    ("code", "timed", "latest"),
    [
        (Always, False, False),
        (Sometimes, False, False),
        (Sometimes, True, False),
        (Emptied, False, False),
        (Ticks, True, False),
        (function, False, False),
        (function, True, True),
        (Lanes, False, False),
        (Lanes, True, True),
    ],
)
@settings(
    max_examples=4,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
@given(pushed=epochs, round_ns=st.sampled_from([0, 1500, tuning.LANES_ROUND_NS]))
def test_what_is_known_of_code_changes_nothing(
    code: Callable[..., Any],
    timed: bool,
    latest: bool,
    pushed: list[tuple[list[dict[str, Any]], int]],
    round_ns: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "LANES_ROUND_NS", round_ns)  # all keys, some, or few go through lanes
        patch.setattr(tuning, "LANES_TRIES", 2**30)
        found = histories(code, timed, latest, pushed, Path(folder) / "known")
        with pytest.MonkeyPatch.context() as without:
            forbid_bytecode(without)
            off = histories(code, timed, latest, pushed, Path(folder) / "off", vectorize_user_code=False)
        assert found == off
        in_doubt(patch)
        assert found == histories(code, timed, latest, pushed, Path(folder) / "unknown")
