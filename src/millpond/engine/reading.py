"""What a task reads of a source: rows, input that is none, and times that it has reached.

Law: nothing that a source gives is lost (law 9): what it could not read is an error row, with the step that
would have had it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.delta import WEIGHT
from millpond.engine.placing import concat, whole
from millpond.operators.materialize import ERRORS_SPEC
from millpond.operators.scan import with_origin
from millpond.sources.file_format import ERROR
from millpond.sources.source import BOUND, Source, Split
from millpond.sources.unavailable import named
from millpond.state.store import Store


@dataclass(frozen=True)
class ReadRows:
    rows: pa.Table | None
    bad: tuple[pa.Table, ...]
    bounds: tuple[int, ...]


def read(
    step: str,
    source: Source,
    columns: tuple[str, ...],
    splits: Sequence[tuple[int, Split]],
    store: Store,
    texts: frozenset[str] = frozenset(),
    numbered: bool = False,
) -> ReadRows:
    """Some columns of splits; some of `texts` may be dictionaries; `numbered` rows tell their origin."""
    parts: list[pa.Table] = []
    bad: list[pa.Table] = []
    bounds: list[int] = []
    for number, split in splits:
        before = 0
        if split.blob is not None and split.data is None:
            split = replace(split, data=store.get(split.blob))
        for table in _tables(step, source, split, columns, texts):
            if ERROR in table.column_names:  # rows that the source could not read
                told = [pa.array([step] * table.num_rows, pa.string()), table["_row"], table[ERROR]]
                bad.append(pa.table(told, schema=ERRORS_SPEC.schema))
            elif BOUND in table.column_names:  # time that moves on without rows
                bounds += table[BOUND].to_pylist()
            elif table.num_rows:
                if not table.num_columns:  # none is asked for: weights keep the rows from being lost
                    table = table.append_column(WEIGHT, pa.array(np.ones(table.num_rows, np.int64)))
                parts.append(with_origin(table, number, before) if numbered else table)
                before += table.num_rows
    return ReadRows(whole(concat(parts)) if parts else None, tuple(bad), tuple(bounds))


def _tables(
    step: str, source: Any, split: Split, columns: tuple[str, ...], texts: frozenset[str]
) -> Iterator[pa.Table]:
    with named(step):
        yield from source.read_encoded(split, columns, texts) if texts else source.read(split, columns)
