"""Runs the rows of many keys through user code, with one call for the next row of each.

Law: states and rows are the same as when the code runs key by key and row by
row.  If that is in doubt, nothing has been changed yet, and the result is None.
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

from millpond import tuning
from millpond.operators.operator import Change
from millpond.process.columns import ColumnHandle
from millpond.process.function import Code, Process
from millpond.process.lanes.lane import LanesDisagree, Unfit
from millpond.process.lanes.lane_inputs import LaneColumns, LaneSelection, LaneState
from millpond.process.lanes.lane_output import LaneOutput
from millpond.process.lanes.rounds import Rounds
from millpond.process.outputs import OutputColumns
from millpond.process.row_order import Ordered
from millpond.process.spec import StateSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


# Exceptions of code that lanes do not fit.  Run row by row, it succeeds or fails again for the row at fault.
_UNSUITED = (Unfit, ArithmeticError, AttributeError, NameError, TypeError, ValueError)

_unfit: Counter[CodeType] = Counter()


@dataclass(frozen=True)
class LanesResult:
    columns: list[pa.Array]  # of the rows of the main output
    has_row: Bools  # which input rows returned an output row, round by round
    rounds: Rounds
    changes: list[Change]

    @property
    def keys(self) -> Ints:
        """The key of each output row."""
        lanes = np.concatenate([np.arange(size) for size in self.rounds.sizes])
        keys: Ints = self.rounds.keys[lanes[self.has_row]]
        return keys

    def part(self, latest: bool) -> OutputColumns:
        """The output as columns; with one row per key, only the last row of each."""
        if not latest:
            return OutputColumns(self.columns)
        row_keys = self.keys
        keys, last = np.unique(row_keys[::-1], return_index=True)
        places = pa.array(len(row_keys) - 1 - last)
        return OutputColumns([c.take(places) for c in self.columns], keys, np.ones(len(keys), np.bool_))


def is_tried(code: Code) -> bool:
    """Is this code still tried in lanes?  Not after too many failed attempts."""
    return _unfit[_inner(code)] < tuning.LANES_TRIES


def run(
    code: Code,
    states: Sequence[tuple[StateSpec, ColumnHandle]],  # of the keys that take part, in the order of keys
    schema: pa.Schema,
    rows: Ordered,
    rounds: Rounds,
) -> LanesResult | None:
    """Run all rounds; returns None if user code must be called row by row."""
    try:
        with np.errstate(all="ignore"):
            return _run(code, states, schema, rows, rounds)
    except _UNSUITED:
        _unfit[_inner(code)] += 1
        return None


def _run(
    code: Code,
    states: Sequence[tuple[StateSpec, ColumnHandle]],
    schema: pa.Schema,
    rows: Ordered,
    rounds: Rounds,
) -> LanesResult:
    selection = LaneSelection()
    columns = _columns(rows, rounds.places)
    lane_columns = LaneColumns(selection, columns)
    output = LaneOutput(schema, rounds.rows, columns)
    order = np.argsort(np.argsort(rounds.keys))  # lane -> the rank of its key
    lane_states = {spec.name: LaneState(spec, handle, order, selection) for spec, handle in states}
    call = code.bound(lane_states)["on_row"]
    calls = 0
    for size in rounds.sizes:
        selection.size = size
        todo: list[Ints | None] = [None]
        while todo:
            selection.chosen = todo.pop()
            lane_columns.refresh()
            calls += 1
            try:
                output.put(selection, call(lane_columns.row, None))
            except LanesDisagree as split:
                for state in lane_states.values():
                    state.forget()
                mine = np.arange(size) if selection.chosen is None else selection.chosen
                todo += [mine[~split.holds], mine[split.holds]]
                continue
            for state in lane_states.values():
                state.keep()
        selection.begin += size
        if (
            calls > tuning.LANES_CALLS_MIN
            and calls * tuning.LANES_ROUND_NS > selection.begin * tuning.LANES_ROW_NS
        ):
            raise Unfit("too many ways through the code")
    for spec, handle in states:
        lane_states[spec.name].store(handle, order)
    changes = [change for _, handle in states for change in handle.changes()]
    return LanesResult(output.columns(), output.has_row, rounds, changes)


def _columns(rows: Ordered, places: Ints) -> Callable[[str], pa.Array | None]:
    """A function that returns a column of the rows, round by round; each column is built on first use."""
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
