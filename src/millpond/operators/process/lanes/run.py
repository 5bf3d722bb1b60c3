"""The rows of many keys through user code, one call for the next row of each.

Law: states and rows are those that the same code gives key by key and row by
row.  Where that is in doubt nothing has happened yet, and the answer is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.operators.operator import Change
from millpond.operators.process.columns import ColumnHandle
from millpond.operators.process.function import Code, Process
from millpond.operators.process.in_order import Ordered
from millpond.operators.process.lanes.given import Given
from millpond.operators.process.lanes.lane import Split, Unfit
from millpond.operators.process.lanes.rounds import ROUND_NS, ROW_NS, Rounds
from millpond.operators.process.lanes.turn import LaneState, Rows, Turn
from millpond.operators.process.outputs import Part
from millpond.operators.process.spec import StateSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TRIES = 3  # epochs in which code may turn out to be unfit before it is no longer tried here
PATIENCE = 64  # calls, before it is asked whether they are worth it

# What comes of code that lanes do not fit.  Row by row it comes right, or again, for the row that caused it.
_TOLD = (Unfit, ArithmeticError, AttributeError, NameError, TypeError, ValueError)

_unfit: Counter[CodeType] = Counter()


@dataclass(frozen=True)
class Outcome:
    columns: list[pa.Array]  # the rows of the main output
    gave: Bools  # which rows gave one, round after round
    rounds: Rounds
    changes: list[Change]

    @property
    def keys(self) -> Ints:
        """The key of each row of the output."""
        lanes = np.concatenate([np.arange(size) for size in self.rounds.sizes])
        keys: Ints = self.rounds.keys[lanes[self.gave]]
        return keys

    def part(self, latest: bool) -> Part:
        """Of the output; where a key has one row, the last that was given."""
        if not latest:
            return Part(self.columns)
        given = self.keys
        keys, last = np.unique(given[::-1], return_index=True)
        places = pa.array(len(given) - 1 - last)
        return Part([c.take(places) for c in self.columns], keys, np.ones(len(keys), np.bool_))


def is_tried(code: Code) -> bool:
    """Has this code not been tried in vain too often?"""
    return _unfit[_inner(code)] < TRIES


def run(
    code: Code,
    states: Sequence[tuple[StateSpec, ColumnHandle]],  # of the keys that take part, in the order of keys
    schema: pa.Schema,
    rows: Ordered,
    some: Rounds,
) -> Outcome | None:
    """All rounds; None if user code must be called row by row."""
    try:
        with np.errstate(all="ignore"):
            return _run(code, states, schema, rows, some)
    except _TOLD:
        _unfit[_inner(code)] += 1
        return None


def _run(
    code: Code,
    states: Sequence[tuple[StateSpec, ColumnHandle]],
    schema: pa.Schema,
    rows: Ordered,
    some: Rounds,
) -> Outcome:
    turn = Turn()
    columns = _columns(rows, some.places)
    at = Rows(turn, columns)
    given = Given(schema, some.rows, columns)
    order = np.argsort(np.argsort(some.keys))  # the place of each lane's key among the keys
    held = {spec.name: LaneState(spec, handle, order, turn) for spec, handle in states}
    call = code.bound(held)["on_row"]
    calls = 0
    for size in some.sizes:
        turn.size = size
        todo: list[Ints | None] = [None]
        while todo:
            turn.chosen = todo.pop()
            at.turned()
            calls += 1
            try:
                given.put(turn, call(at.row, None))
            except Split as split:
                for state in held.values():
                    state.forget()
                mine = np.arange(size) if turn.chosen is None else turn.chosen
                todo += [mine[~split.holds], mine[split.holds]]
                continue
            for state in held.values():
                state.keep()
        turn.begin += size
        if calls > PATIENCE and calls * ROUND_NS > turn.begin * ROW_NS:
            raise Unfit("too many ways through the code")
    for spec, handle in states:
        held[spec.name].store(handle, order)
    changes = [change for _, handle in states for change in handle.changes()]
    return Outcome(given.columns(), given.rows, some, changes)


def _columns(rows: Ordered, places: Ints) -> Callable[[str], pa.Array | None]:
    """Columns of the rows, round after round, made when they are asked for."""
    known: dict[str, pa.Array] = {}

    def column(name: str) -> pa.Array | None:
        if name not in rows.rows.column_names:
            return None
        if name not in known:
            known[name] = rows.column(name, places)
        return known[name]

    return column


def _inner(code: Code) -> Any:
    function = type(code.target).on_row if isinstance(code.target, Process) else code.target
    return getattr(function, "__code__", None)
