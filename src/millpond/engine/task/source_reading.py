"""Reads a source in a task: rows, input that cannot be parsed, and times that the source has reached.

Law: no input of a source is lost (law 9): input that it could not read becomes an error row of the step that
would have received it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.delta import WEIGHT
from millpond.engine.task.partitioning import concat, one_chunk_if_few
from millpond.engine.task.shed_rows import with_key, without_shed_rows
from millpond.operators.scan import with_origin
from millpond.secret_references import secrets_from
from millpond.sources.file_format import ERROR
from millpond.sources.source import BOUND, Source, Split
from millpond.sources.unavailable import named
from millpond.state.secret_files import SecretFiles
from millpond.state.store.store import Store
from millpond.state.tables.error_rows import ERRORS_SPEC


@dataclass(frozen=True)
class ReadRows:
    rows: pa.Table | None
    bad: tuple[pa.Table, ...]
    bounds: tuple[tuple[str, int], ...]  # (partition, time)
    shed: int = 0  # rows that were left out, less those that were read again


def read(
    step: str,
    source: Source,
    columns: tuple[str, ...],
    splits: Sequence[tuple[int, Split]],
    store: Store,
    texts: frozenset[str] = frozenset(),
    numbered: bool = False,
) -> ReadRows:
    """Read columns of splits; those in `texts` may be dictionaries; with `numbered`, rows have an origin."""
    parts: list[pa.Table] = []
    bad: list[pa.Table] = []
    bounds: list[tuple[str, int]] = []
    shed = 0
    for number, split in splits:
        before = 0
        if split.blob is not None and split.data is None:
            split = replace(split, data=store.get(split.blob))
        asked = with_key(columns, split)
        for table in _tables(step, source, split, asked, texts, store):
            if ERROR in table.column_names:  # input that the source could not read
                error_columns = [pa.array([step] * table.num_rows, pa.string()), table["_row"], table[ERROR]]
                bad.append(pa.table(error_columns, schema=ERRORS_SPEC.schema))
            elif BOUND in table.column_names:  # event time that advances without rows
                bounds += [(split.partition, at_us) for at_us in table[BOUND].to_pylist()]
            elif table.num_rows:
                length = table.num_rows
                if split.sample is not None:
                    table, left_out = without_shed_rows(table, columns, split, before)
                    shed += left_out
                if not table.num_columns:  # no column is read: the weights preserve the number of rows
                    table = table.append_column(WEIGHT, pa.array(np.ones(table.num_rows, np.int64)))
                parts.append(with_origin(table, number, before) if numbered else table)
                before += length
    return ReadRows(one_chunk_if_few(concat(parts)) if parts else None, tuple(bad), tuple(bounds), shed)


def _tables(
    step: str, source: Any, split: Split, columns: tuple[str, ...], texts: frozenset[str], store: Store
) -> Iterator[pa.Table]:
    with named(step), secrets_from(SecretFiles(store).value):
        yield from source.read_encoded(split, columns, texts) if texts else source.read(split, columns)
