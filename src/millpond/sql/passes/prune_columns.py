"""Tells each relation which of its columns are read, so that its steps neither compute nor store others.

Reads go from readers to what they read: a common table expression is visited after all its references.
Positions stay as they are: lowering puts another column in the place of one that is not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millpond.sql.bound.expressions import Constant, Reference, columns_read
from millpond.sql.bound.relations import (
    BoundAggregate,
    BoundCte,
    BoundCteReference,
    BoundDistinct,
    BoundFilter,
    BoundFirstRanks,
    BoundJoin,
    BoundListFunction,
    BoundLookupJoin,
    BoundMarkJoin,
    BoundPick,
    BoundProduct,
    BoundProject,
    BoundRelation,
    BoundSetOperation,
    BoundTopN,
    BoundUnnest,
    BoundWindow,
)

Read = frozenset[int] | None  # None if all columns are read

NOBODY_READS = Constant("BOOLEAN", None, type="BOOLEAN")


def prune_columns(relation: BoundRelation) -> BoundRelation:
    return _pruned(relation, None, {})


def _pruned(node: BoundRelation, read: Read, ctes: dict[int, frozenset[int]]) -> BoundRelation:
    """Return the node and all below it with what is read of each; add what is read of CTEs to `ctes`."""
    node = replace(node, read=read)
    if isinstance(node, BoundCte):
        query = _pruned(node.query, read, ctes)
        definition = _pruned(node.definition, ctes.get(node.index, frozenset()), ctes)
        return replace(node, definition=definition, query=query)
    if isinstance(node, BoundCteReference):
        own = frozenset(range(node.width)) if read is None else read
        ctes[node.index] = ctes.get(node.index, frozenset()) | own
    if isinstance(node, BoundProject) and read is not None:
        outputs = (
            e if n in read or isinstance(e, Reference) else NOBODY_READS for n, e in enumerate(node.outputs)
        )
        node = replace(node, outputs=tuple(outputs))
    below = _below(node, read)
    return node.with_inputs([_pruned(one, own, ctes) for one, own in zip(node.inputs, below, strict=True)])


def _below(node: BoundRelation, read: Read) -> Iterable[Read]:
    """Return the columns of each input that are read, by the nodes above and by this one."""
    match node:
        case BoundProject():
            wanted = range(node.width) if read is None else read
            return [columns_read([node.outputs[n] for n in wanted])]
        case BoundAggregate():
            first = len(node.groups)
            calls = [c for n, c in enumerate(node.calls) if read is None or first + n in read]
            return [columns_read([*node.groups, *calls])]
        case BoundLookupJoin():
            # a row that meets a table as of now is recognized by all its columns when it is retracted
            return [None if read is None else frozenset(range(node.left.width)), node.sides_read[1]]
        case BoundMarkJoin():
            return [node.sides_read[0], columns_read([right for _, right, _ in node.pairs])]
        case BoundJoin():
            return node.sides_read
        case BoundProduct():
            return _of_parts(node, read)
        case _ if read is None:
            return [None] * len(node.inputs)
        case BoundFilter() | BoundTopN():
            return [read | columns_read(node.expressions)]
        case BoundDistinct() if node.targets is not None:
            return [read | columns_read(node.expressions)]
        case BoundPick():
            return [frozenset(node.places[n] for n in read)]
        case BoundWindow():
            width = node.input.width
            asked = [c for n, c in enumerate(node.calls) if width + n in read]
            return [frozenset(n for n in read if n < width) | columns_read(asked)]
        case BoundFirstRanks() | BoundUnnest():
            return [frozenset(n for n in read if n < node.input.width) | columns_read(node.expressions)]
        case BoundListFunction():
            first, arguments = len(node.columns), range(len(node.argument_types))
            return [frozenset([*arguments, *(node.passed[n - first] for n in read if n >= first)])]
        case BoundSetOperation() if node.word == "UNION" and node.all:
            return [read or frozenset([0])] * len(node.parts)
    return [None] * len(node.inputs)


def _of_parts(node: BoundProduct, read: Read) -> list[Read]:
    wanted = frozenset(range(node.width) if read is None else read) | columns_read(node.expressions)
    found: list[Read] = []
    for number, (part, first) in enumerate(zip(node.parts, node.starts, strict=True)):
        own = frozenset(n - first for n in wanted if first <= n < first + part.width)
        if node.as_of_now:  # as for a lookup join
            found.append(None if number in node.as_of_now else frozenset(range(part.width)))
        else:
            found.append(own)
    return found
