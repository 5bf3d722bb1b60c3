"""Which steps of a level take the rows of a scan piece by piece, and what their pieces come to.

Law: what a step that is `by_piece` gives for a batch is what it gives for the parts
of the batch, put together; so where a batch is cut makes no difference (law 3).

Much of the cost of a large scan is memory that is touched for the first time.
Steps that follow a scan row by row are run over one piece after the other, in
memory that the piece before has left; only what others read of them is kept.
So are near lookups (`plan.near`): what they look up is known before their rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from millpond.engine.blame import blamed
from millpond.engine.placing import concat
from millpond.operators.operator import Change, Result
from millpond.operators.scan import Scan
from millpond.plan.levels import Edge, Levels
from millpond.plan.nodes import Node, Plan
from millpond.sources.source import Split

ROWS_MIN = 100_000  # of a task and scan: fewer are run at once
PIECE_ROWS = 50_000  # splits are put together until they have so many


def behind_scans(plan: Plan, levels: Levels, level: int) -> dict[str, tuple[str, ...]]:
    """By scan: the steps of this level that read nothing but it and each other, piece by piece."""
    found: dict[str, tuple[str, ...]] = {}
    for scan in levels.steps[level]:
        if not isinstance(plan.nodes[scan].operator, Scan):
            continue
        inside = [scan]
        for step in levels.steps[level]:
            node = plan.nodes[step]
            if step in levels.near.lookups:
                follows = node.inputs[0] in inside and node.inputs[1] not in inside
            else:
                follows = getattr(node.operator, "by_piece", False) and all(i in inside for i in node.inputs)
            if follows:
                inside.append(step)
        if len(inside) > 1:
            found[scan] = tuple(inside[1:])
    return found


def read_outside(plan: Plan, steps: Sequence[str]) -> frozenset[str]:
    """Those of some steps that any other step reads."""
    return frozenset(
        source
        for node in plan.nodes.values()
        if node.step not in steps
        for source in node.inputs
        if source in steps
    )


class Kept:
    """What others read of a step's rows, piece by piece: as little as its one reader can do with.

    `edges` are those over which rows go as their reader prepares them.
    """

    def __init__(self, plan: Plan, edges: Sequence[Edge], step: str, epoch: int) -> None:
        readers = [(n, i) for n in plan.nodes.values() for i, source in enumerate(n.inputs) if source == step]
        alone = len(readers) == 1 and step not in {view.step for view in plan.views.values()}
        self._reader = readers[0] if alone else None
        self._epoch = epoch
        self._parts: list[pa.Table] = []
        self.shrunk = False  # did the reader prepare the parts?
        self._may_shrink = alone and any(
            edge.producer == step and edge.prepared_by == readers[0][0].step for edge in edges
        )

    def add(self, rows: pa.Table) -> None:
        if self._reader is None:
            self._parts.append(rows)
            return
        node, index = self._reader
        with blamed(node.step, self._epoch):
            self._parts.append(self._for_reader(node, index, rows))

    def _for_reader(self, node: Node, index: int, rows: pa.Table) -> pa.Table:
        operator: Any = node.operator
        if not self._parts and self._may_shrink and hasattr(operator, "shrinks"):
            self.shrunk = operator.shrinks(node.binding, index, rows)
        if self.shrunk:
            return operator.shrunk(node.binding, index, rows)
        return operator.thin(node.binding, index, rows) if hasattr(operator, "thin") else rows

    def __bool__(self) -> bool:
        return bool(self._parts)

    def all(self) -> pa.Table:
        return concat(self._parts)


def grouped(splits: Sequence[tuple[int, Split]]) -> Iterator[list[tuple[int, Split]]]:
    """Splits in their order, small ones together."""
    group: list[tuple[int, Split]] = []
    rows = 0
    for number, split in splits:
        group.append((number, split))
        rows += split.rows
        if rows >= PIECE_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def summed(results: Sequence[Result]) -> Result:
    """What a step did for all pieces, but for the rows it gave."""
    rows: dict[str, list[pa.Table]] = {}
    counts: dict[str, int] = {}
    for result in results:
        for change in result.changes:
            rows.setdefault(change.table, []).append(change.rows)
        for name, count in result.counts.items():
            counts[name] = counts.get(name, 0) + count
    errors = [result.errors for result in results if result.errors is not None]
    return Result(
        changes=tuple(Change(table, pa.concat_tables(parts)) for table, parts in rows.items()),
        errors=pa.concat_tables(errors) if errors else None,
        counts=counts,
    )
