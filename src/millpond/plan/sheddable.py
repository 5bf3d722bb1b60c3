"""Whether the rows of a source may be shed: which steps can work with a sample, and which cannot.

Law: a source may be shed only if every view that reads it aggregates its rows with functions whose error is
known (count, sum, average), and none of them was defined as exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.kernels.accumulators import LINEAR
from millpond.operators.aggregate import Aggregate
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.filter import Filter
from millpond.operators.filter_rows import FilterRows
from millpond.operators.flat_map import FlatMap
from millpond.operators.map import Map
from millpond.operators.map_batches import MapBatches
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ReadsInbox
from millpond.operators.union import Union
from millpond.operators.unnest import Unnest
from millpond.operators.watermark import Watermark
from millpond.operators.window import Hop, Tumble
from millpond.plan.nodes import Plan, upstream

_LINEAR_STEPS = (Map, Filter, FilterRows, FlatMap, MapBatches, Union, Unnest)
_TIME_STEPS = (Watermark, Tumble, Hop, AssignWindows)
_BOUNDED = frozenset(LINEAR[:3])  # count, sum, avg


def why_not_shed(plan: Plan, source: str) -> str | None:
    """Why the rows of a source cannot be shed, or None if they can."""
    node = plan.nodes.get(source)
    if node is None or not isinstance(node.operator, Scan):
        return f"there is no source {source!r}"
    if isinstance(node.operator.source, ReadsInbox):
        return f"{source!r} is a table: its rows are in the pond already"
    if not node.operator.append_only:
        return f"rows of source {source!r} can be retracted, and a retraction must find its row"
    for view in plan.views.values():
        if view.exact and source in upstream(plan, [view.step]):
            return f"view {view.name!r} is exact, and reads {source!r}"
    consumers, waiting, seen = plan.consumers(), [source], {source}
    shown = {view.step: view.name for view in plan.views.values()}
    while waiting:
        step = waiting.pop()
        if step in shown:
            return f"view {shown[step]!r} shows rows of {source!r} themselves, not aggregates"
        for reader, _ in consumers[step]:
            operator = plan.nodes[reader].operator
            if isinstance(operator, Aggregate):
                bad = [a for a in operator.aggs if a.function not in _BOUNDED or a.distinct]
                if bad:
                    return f"{bad[0]} of step {reader!r} has no error bound for a sample"
            elif not isinstance(operator, (*_LINEAR_STEPS, *_TIME_STEPS)):
                return f"{type(operator).__name__} of step {reader!r} has no error bound for a sample"
            elif reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return None


@dataclass(frozen=True)
class SheddableSource:
    """A source whose rows may be shed."""

    readers: frozenset[str]  # the aggregates that its rows reach
    recovers: bool  # can shed rows be added later?  Not where a watermark has passed them


def sheddable_source(plan: Plan, source: str) -> SheddableSource | None:
    if why_not_shed(plan, source) is not None:
        return None
    consumers, waiting, seen = plan.consumers(), [source], {source}
    readers: set[str] = set()
    recovers = True
    while waiting:
        for reader, _ in consumers[waiting.pop()]:
            operator = plan.nodes[reader].operator
            recovers &= not isinstance(operator, _TIME_STEPS)
            if isinstance(operator, Aggregate):
                readers.add(reader)
            elif reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return SheddableSource(frozenset(readers), recovers)


def sheddable(plan: Plan) -> dict[str, SheddableSource]:
    """The sources whose rows may be shed."""
    scans = [n.step for n in plan.nodes.values() if isinstance(n.operator, Scan)]
    return {step: found for step in scans if (found := sheddable_source(plan, step)) is not None}
