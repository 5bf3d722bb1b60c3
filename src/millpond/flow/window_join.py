"""The windows of two streams together, for joins of windows that merge, that close, or that have a trigger.

Law: windows that merge are those of the rows of both sides.  So rows that follow each other within the gap
are in one session, whichever side they are on, and meet in a join by key and window.  Windows that close do
so for both sides in one epoch: when the watermarks of both have passed the end.  So a join of what is
emitted sees the complete window, and never takes a pair back.  A trigger, too, is asked about the window of
both sides: it counts the rows of both, and each firing releases those of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.window_steps import end_bound
from millpond.kernels.bounds import Bound
from millpond.kernels.duck import quoted
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.operators.merge_windows import MergeWindows
from millpond.operators.pad_columns import SIDE, PadColumns
from millpond.operators.union import Union
from millpond.operators.window import END, START

if TYPE_CHECKING:
    from millpond.flow.stream import Stream


@dataclass(frozen=True)
class BothSides:
    """One stream with the rows of two, each with the window that it has by itself."""

    builder: Builder
    step: str
    padded: tuple[str, str]  # the steps of the two
    base: str  # how the ids of steps begin
    schemas: tuple[pa.Schema, pa.Schema]
    stored: tuple[Mapping[str, str], Mapping[str, str]]  # what the columns of a side are called in it

    @staticmethod
    def of(builder: Builder, sides: tuple[str, str], key: tuple[str, ...]) -> BothSides:
        left, right = (builder.shape(step).schema for step in sides)
        common = (*key, START, END)
        for name in common:
            types = [schema.field(name).type for schema in (left, right)]
            if types[0] != types[1]:
                raise InvalidError(
                    "windows of two sides need keys and times of the same types",
                    detail=f"column {name!r} is {types[0]} on the left and {types[1]} on the right",
                    hint="cast one of them with select() before window()",
                    step=sides[0],
                )
        own = [
            {name: f"_{number}_{name}" for name in schema.names if name not in common}
            for number, schema in enumerate((left, right))
        ]
        fields = [left.field(name) for name in common]
        for schema, names in zip((left, right), own, strict=True):
            fields += [schema.field(name).with_name(stored) for name, stored in names.items()]
        full = pa.schema([*fields, pa.field(SIDE, pa.int8())])
        base = f"{sides[0]}.with-{sides[1]}"
        padded: list[str] = []
        for number, (step, names) in enumerate(zip(sides, own, strict=True)):
            pairs = (
                *((name, name) for name in common),
                *((stored, name) for name, stored in names.items()),
            )
            operator = PadColumns(full, pairs, number)
            padded.append(builder.add(None, operator, (step,), f"{base}.side{number}"))
        both = builder.add(None, Union(), tuple(padded), f"{base}.both")
        return BothSides(builder, both, (padded[0], padded[1]), base, (left, right), (own[0], own[1]))

    def side(self, number: int, step: str, more: tuple[str, ...] = ()) -> str:
        """The rows of one side among those of both, under their own names; `more` are added columns."""
        mine = self.builder.add(None, Filter(f"{SIDE} = {number}"), (step,), f"{self.base}.rows{number}")
        stored = self.stored[number]
        columns = [(name, quoted(stored.get(name, name))) for name in self.schemas[number].names]
        columns += [(name, quoted(name)) for name in more]
        return self.builder.add(None, Map(tuple(columns)), (mine,), f"{self.base}.given{number}")


def bound_of_both(
    builder: Builder, both: BothSides, watermarks: tuple[Bound | None, Bound | None]
) -> Bound | None:
    """The bound of the times of both sides: the least of their watermarks; None if one has none."""
    left, right = watermarks
    if left is None or right is None:
        return None
    until = end_bound(builder, both.step)
    own = end_bound(builder, both.padded[0])
    if until is None or own is None:  # windows that do not end
        return replace(left, marks=tuple(dict.fromkeys((*left.marks, *right.marks))))
    return replace(left, marks=until.moved(left.marks[0][1] - own.marks[0][1]))


def with_key(joined: Stream, key: tuple[str, ...], hidden: tuple[str, ...], suffix: str) -> str:
    """The rows of an outer join with the key of the right side where there is no left one.

    Without the columns that the right side has for the `hidden` ones.
    """
    texts = {name: quoted(name) for name in joined.columns if name not in {h + suffix for h in hidden}}
    texts |= {name: f"coalesce({quoted(name)}, {quoted(name + suffix)})" for name in key}
    return joined._builder.add(None, Map(tuple(texts.items())), (joined.step,), f"{joined.step}.keyed")


def windows_of_both(
    builder: Builder,
    sides: tuple[str, str],
    key: tuple[str, ...],
    *,
    closes: bool,
    merges: bool,
    merge: Any = None,
) -> tuple[str, str]:
    """The steps with the rows of each side and the windows that both make together.

    `sides` are the steps with the window that each row has by itself.  With `closes` rows are emitted when
    their window closes for both; `merge` is a user's function, instead of merging where windows overlap.
    """
    both = BothSides.of(builder, sides, key)
    until = end_bound(builder, both.step)
    step = both.step
    if merges:
        step = builder.add(None, MergeWindows(key, until, merge), (step,), f"{both.base}.merged")
    if closes and until is not None:
        operator = EmitOnClose((*key, START, END), until)
        step = builder.add(None, operator, (step,), f"{both.base}.closed")
    return both.side(0, step), both.side(1, step)
