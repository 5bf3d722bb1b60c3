"""The windows of two streams together, for joins of windows that merge, and of windows that close.

Law: windows that merge are those of the rows of both sides.  So rows that follow each other within the gap
are in one session, whichever side they are on, and meet in a join by key and window.  Windows that close do
so for both sides in one epoch: when the watermarks of both have passed the end.  So a join of what is
emitted sees the complete window, and never takes a pair back.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.window_steps import end_bound
from millpond.kernels.duck import quoted
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.operators.merge_windows import MergeWindows
from millpond.operators.pad_columns import SIDE, PadColumns
from millpond.operators.union import Union
from millpond.operators.window import END, START


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
    schemas = [builder.shape(step).schema for step in sides]
    common = (*key, START, END)
    for name in common:
        types = [schema.field(name).type for schema in schemas]
        if types[0] != types[1]:
            raise InvalidError(
                "windows of two sides need keys and times of the same types",
                detail=f"column {name!r} is {types[0]} on the left and {types[1]} on the right",
                hint="cast one of them with select() before window()",
                step=sides[0],
            )
    own = [
        {name: f"_{number}_{name}" for name in schema.names if name not in common}
        for number, schema in enumerate(schemas)
    ]
    fields = [schemas[0].field(name) for name in common]
    for schema, names in zip(schemas, own, strict=True):
        fields += [schema.field(name).with_name(stored) for name, stored in names.items()]
    full = pa.schema([*fields, pa.field(SIDE, pa.int8())])
    base = f"{sides[0]}.with-{sides[1]}"
    padded = []
    for number, (step, names) in enumerate(zip(sides, own, strict=True)):
        pairs = (*((name, name) for name in common), *((stored, name) for name, stored in names.items()))
        operator = PadColumns(full, pairs, number)
        padded.append(builder.add(None, operator, (step,), f"{base}.side{number}"))
    both = builder.add(None, Union(), tuple(padded), f"{base}.both")
    until = end_bound(builder, both)
    step = both
    if merges:
        step = builder.add(None, MergeWindows(key, until, merge), (both,), f"{base}.merged")
    if closes and until is not None:
        step = builder.add(None, EmitOnClose(common, until), (step,), f"{base}.closed")
    found = []
    for number, (schema, names) in enumerate(zip(schemas, own, strict=True)):
        mine = builder.add(None, Filter(f"{SIDE} = {number}"), (step,), f"{base}.rows{number}")
        columns = tuple((name, quoted(names.get(name, name))) for name in schema.names)
        found.append(builder.add(None, Map(columns), (mine,), f"{base}.given{number}"))
    return found[0], found[1]
