"""DecodeChanges: picks the changes of one table out of a log of several, and gives them their types.

The log (`CHANGE_LOG`) has a row for each change: the table, what happened, its number, and the values as
texts.
Linear, without state.  A change with a value that does not fit its column becomes an error row (law 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.identity import one_chunk
from millpond.kernels.expression_kernel import error_rows
from millpond.kernels.text_values import typed_columns
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.replicated_table import LOG_FIELDS

PUT_OP, DELETE_OP, TRUNCATE_OP = "put", "delete", "truncate"
CHANGE_LOG = pa.schema(
    [
        ("relation", pa.string()),
        ("op", pa.string()),
        ("seq", pa.int64()),  # the order of all changes
        ("values", pa.list_(pa.string())),  # in the order of the table's columns
        ("unchanged", pa.list_(pa.int32())),  # the numbers of columns whose value is not sent
    ]
)


@dataclass(frozen=True)
class DecodeChanges:
    """Rows of `relation`, as columns of `schema` and the fields of a log."""

    relation: str
    schema: pa.Schema

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        return Binding(Shape(pa.schema([*self.schema, *LOG_FIELDS]), append_only=True), (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(CHANGE_LOG.names),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (log,) = inputs
        if log is None:
            return StepResult()
        mine = pc.and_(pc.equal(log["relation"], self.relation), pc.not_equal(log["op"], TRUNCATE_OP))
        log = log.filter(mine)
        if not log.num_rows:
            return StepResult()
        wide = len(self.schema)
        flat = one_chunk(log["values"]).flatten()
        places = pa.array(range(0, log.num_rows * wide, wide), pa.int64())
        texts = [flat.take(pc.add(places, column)) for column in range(wide)]
        rows, good, bad = typed_columns(texts, self.schema, log.num_rows)
        errors = None
        if good is not None:
            errors = error_rows(log.take(pa.array([row for row, _ in bad])), [reason for _, reason in bad])
            log = log.take(good)
        put = pc.equal(log["op"], PUT_OP)
        columns = [*rows.columns, log["seq"], put, log["unchanged"]]
        return StepResult(pa.table(columns, schema=binding.shape.schema), errors=errors)
