"""Rows on their way between tasks: concatenates, hashes and splits them by the task that owns them.

Law: on any path, a task receives every row of its hash range once, with its hash and its weight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from millpond import hashing, tuning
from millpond.delta import HASH, ORIGIN, WEIGHT
from millpond.operators.operator import Binding, Placement
from millpond.operators.traits import PreparesInput
from millpond.plan.nodes import Node

OWN_COLUMNS = (WEIGHT, HASH, ORIGIN)  # Millpond's columns, in addition to those of users


def selected(rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    """The rows where a mask is true; if all are, nothing is copied."""
    if sum(chunk.true_count for chunk in mask.chunks) == rows.num_rows:
        return rows
    return rows.filter(mask)


def one_chunk_if_few(rows: pa.Table) -> pa.Table:
    """Combine few rows into one chunk: otherwise every step that reads them would combine the chunks."""
    return rows.combine_chunks() if rows.num_rows <= tuning.ONE_CHUNK_ROWS_MAX else rows


def concat(tables: list[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    if any("_w" in t.column_names for t in tables):
        tables = [
            t if "_w" in t.column_names else t.append_column("_w", pa.array(np.ones(t.num_rows, np.int64)))
            for t in tables
        ]
    # A sender may leave out columns without values; they are restored as NULL.
    return pa.concat_tables(_same_encoding(tables), promote_options="default")


def _same_encoding(tables: list[pa.Table]) -> list[pa.Table]:
    """Decode columns that are dictionaries in some of the tables but not in all."""
    kinds: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            kinds.setdefault(field.name, set()).add(field.type)
    mixed = {name for name, types in kinds.items() if len(types) > 1}
    if not any(pa.types.is_dictionary(kind) for name in mixed for kind in kinds[name]):
        return tables
    return [plain(table, mixed) for table in tables]


def plain(rows: pa.Table, names: Collection[str]) -> pa.Table:
    """The rows with these columns decoded from dictionaries."""
    for index, field in enumerate(rows.schema):
        if field.name in names and pa.types.is_dictionary(field.type):
            kind = field.type.value_type
            rows = rows.set_column(index, field.with_type(kind), rows.column(index).cast(kind))
    return rows


def received_rows(tables: list[pa.Table], placement: Placement) -> pa.Table:
    """The rows received over an exchange, with hashes; a sender may leave these out."""
    if placement.kind == "hash":
        tables = [t if "_h" in t.column_names else with_hash(t, placement.key) for t in tables]
    return one_chunk_if_few(concat(tables)) if len(tables) > 1 else tables[0]


def with_hash(delta: pa.Table, key: tuple[str, ...]) -> pa.Table:
    hashes = hashing.hash_columns([delta.column(k) for k in key], delta.num_rows)
    return delta.append_column("_h", pa.array(hashes))


def prepared(delta: pa.Table, consumer: Node, index: int, shrunk: bool = False) -> pa.Table:
    """Rows as a step expects them after an exchange; `shrunk` if the step already reduced them in batches."""
    binding: Binding = consumer.binding
    operator: Any = consumer.operator
    if shrunk:
        return operator.united(binding, index, delta)
    return operator.prepare(binding, index, delta)


def placed(delta: pa.Table, node: Node, index: int, key: tuple[str, ...]) -> pa.Table:
    """Rows as an input would be after an exchange, for rows that are already in the right task."""
    if isinstance(node.operator, PreparesInput):
        return prepared(delta, node, index)
    return with_hash(delta, key)


def cut_by_owner(delta: pa.Table, targets: int) -> Iterator[tuple[int, pa.Table]]:
    """Split rows by the task that owns their hash; sorted rows are sliced without a copy."""
    if delta.num_rows == 0:
        return
    if targets == 1:
        yield 0, delta
        return
    column = delta.column("_h")
    hashes = (column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()).to_numpy()
    if len(hashes) > 1 and not bool(np.all(hashes[1:] >= hashes[:-1])):
        yield from _dealt(delta, targets)
        return
    cuts = np.searchsorted(hashes, hashing.bounds(targets))
    for target, (start, end) in enumerate(pairwise([*cuts, delta.num_rows])):
        if end > start:
            yield target, delta.slice(int(start), int(end - start))


def _dealt(delta: pa.Table, targets: int) -> Iterator[tuple[int, pa.Table]]:
    """Split unsorted rows by owner, chunk by chunk: `take` over many chunks searches for each row's chunk."""
    batches = delta.to_batches()
    if len(batches) * tuning.DEAL_CHUNK_ROWS_MIN > delta.num_rows:
        batches = delta.combine_chunks().to_batches()
    pieces: list[list[pa.RecordBatch]] = [[] for _ in range(targets)]
    for batch in batches:
        owners = hashing.owners(batch.column("_h").to_numpy(), targets).astype(np.uint16)
        order = np.argsort(owners, kind="stable")
        rows = batch.take(pa.array(order))
        cuts = np.searchsorted(owners[order], np.arange(targets + 1, dtype=np.uint32))
        for part, (start, end) in zip(pieces, pairwise(cuts.tolist()), strict=True):
            if end > start:
                part.append(rows.slice(start, end - start))
    for target, part in enumerate(pieces):
        if part:
            yield target, pa.Table.from_batches(part, delta.schema)
