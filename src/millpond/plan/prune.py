"""Column pruning: finds the columns that each step must produce, in a backward pass over the plan.

Law 5 for width: a source reads, and an exchange carries, only the columns that some view needs.
The origin of rows (`_o`) is needed like a column, but only where every step up to the sources carries it;
otherwise no step creates it.

A watermark stores late rows with all their columns.
Over a source that can cheaply read a split again, it gets all columns only for splits that have late rows.
Columns that a step needs only to show rows on which user code failed are left out until some rows fail; then
the epoch runs again with all columns (`full_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.delta import ORIGIN
from millpond.operators.scan import Scan
from millpond.operators.source_traits import RereadsColumns
from millpond.operators.traits import CarriesOrigin, MayNeedFullRows, ShowsFailedRows
from millpond.plan.nodes import Plan


@dataclass(frozen=True)
class Needs:
    columns: dict[
        str, frozenset[str]
    ]  # the output columns of each step; with `_o` where the origin is needed
    origins: frozenset[tuple[str, int]]  # the inputs (step, index) that carry `_o`
    inputs: dict[tuple[str, int], frozenset[str]]  # the columns that each input needs
    full_rows_for: dict[str, tuple[str, ...]]  # scans with fewer columns until one of these steps needs all


def needed_columns(plan: Plan) -> dict[str, frozenset[str]]:
    return needs(plan).columns


def needs(plan: Plan, full_rows: bool = False) -> Needs:
    carried = _carried(plan)
    needed: dict[str, frozenset[str]] = {step: frozenset() for step in plan.nodes}
    for view in plan.views.values():
        needed[view.step] = frozenset(plan.shape(view.step).schema.names)
    origins: set[tuple[str, int]] = set()
    inputs: dict[tuple[str, int], frozenset[str]] = {}
    full_rows_for: dict[str, tuple[str, ...]] = {}
    for node in reversed(list(plan.topological())):
        if not node.inputs:
            continue
        wanted = node.operator.requires(node.binding, needed[node.step])
        for index, (source, columns) in enumerate(zip(node.inputs, wanted, strict=True)):
            if ORIGIN in columns and source in carried:
                origins.add((node.step, index))
            else:
                columns -= {ORIGIN}
            if (
                not full_rows
                and index == 0
                and ORIGIN in columns
                and isinstance(node.operator, ShowsFailedRows)
            ):
                read = node.operator.reads(node.binding)
                columns = columns if read is None else columns & (read | {ORIGIN})
            inputs[node.step, index] = columns
            if isinstance(node.operator, MayNeedFullRows) and _reads_again(plan, source):
                columns &= node.operator.suffices(node.binding, needed[node.step])
                full_rows_for[source] = (*full_rows_for.get(source, ()), node.step)
            needed[source] = needed[source] | columns
    return Needs(needed, frozenset(origins), inputs, full_rows_for)


def _reads_again(plan: Plan, step: str) -> bool:
    operator = plan.nodes[step].operator
    source = operator.source if isinstance(operator, Scan) else None
    return isinstance(source, RereadsColumns) and source.reads_again


def _carried(plan: Plan) -> set[str]:
    """The steps that the origin of rows can reach: all steps before them carry it."""
    carried: set[str] = set()
    for node in plan.topological():
        carries = isinstance(node.operator, CarriesOrigin)
        if carries and (isinstance(node.operator, Scan) or all(i in carried for i in node.inputs)):
            carried.add(node.step)
    return carried
