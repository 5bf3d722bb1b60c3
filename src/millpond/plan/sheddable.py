"""Whether the rows of a source may be shed: which steps can work with a sample, and which cannot.

Law: rows that are chosen by their place or a score must reach nothing but counts, sums and averages, whose
error is known.  Rows that are chosen by key or window must reach only steps that never combine rows of
different keys or windows: for them, what is kept is exact.  A view that was defined as exact reads no source
that sheds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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
from millpond.plan.nodes import Node, Plan, upstream
from millpond.plan.sampled_keys import CannotSample, KeyRules, SampledBy, ShedWindow, key_rules

_LINEAR_STEPS = (Map, Filter, FilterRows, FlatMap, MapBatches, Union, Unnest)
_TIME_STEPS = (Watermark, Tumble, Hop, AssignWindows)
_BOUNDED = frozenset(LINEAR[:3])  # count, sum, avg


@dataclass(frozen=True)
class SheddableSource:
    """A source whose rows may be shed."""

    readers: frozenset[str]  # the first steps with state that its rows reach
    recovers: bool  # can shed rows be added later?  Not where a watermark has passed them
    sticky: bool = False  # must a key that was shed stay shed until its rows are recovered?
    partners: frozenset[str] = frozenset()  # sources whose rows meet its own: they keep the same keys
    window: ShedWindow | None = None
    error_bounds: tuple[tuple[str, float], ...] = ()  # (table of a view, the relative error it allows)


@dataclass(frozen=True)
class ShedRules:
    """What a plan says about the sources that shed, for any choice of rows."""

    plan: Plan = field(default_factory=Plan)
    _known: dict[frozenset[tuple[str, SampledBy]], dict[str, SheddableSource]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of(self, chosen: Mapping[str, SampledBy]) -> Mapping[str, SheddableSource]:
        """Those of the chosen sources that may be shed."""
        asked = frozenset(chosen.items())
        if asked not in self._known:
            rules = {}
            for source in chosen:
                try:
                    rules[source] = sheddable_source(self.plan, chosen, source)
                except CannotSample:
                    continue
            self._known[asked] = rules
        return self._known[asked]


def why_not_shed(plan: Plan, chosen: Mapping[str, SampledBy], source: str) -> str | None:
    """Why the rows of a source cannot be shed, or None if they can."""
    try:
        sheddable_source(plan, chosen, source)
    except CannotSample as reason:
        return str(reason)
    return None


def sheddable_source(plan: Plan, chosen: Mapping[str, SampledBy], source: str) -> SheddableSource:
    """What holds for a source that is shed in the chosen way, or `CannotSample` with the reason."""
    by, operator = chosen[source].by, _scan(plan, source)
    reached = _reached(plan, source)
    _check_exact_views(plan, source)
    recovers = not any(_passes_rows_once(plan.nodes[step]) for step in reached)
    if by in ("row", "score"):
        if not operator.append_only:
            raise CannotSample(
                f"rows of source {source!r} can be retracted, and a retraction must find its row: shed by key"
            )
        readers = _aggregates(plan, source)
        return SheddableSource(readers, recovers, error_bounds=_error_bounds(plan, reached))
    if bounded := _error_bounds(plan, reached):
        raise CannotSample(f"table {bounded[0][0]!r} is of a view with an error bound: shed by row")
    rules = key_rules(plan, chosen, source)
    if not operator.append_only and not recovers:
        raise CannotSample(f"rows of source {source!r} can be retracted, and cannot be read again in order")
    linear = operator.append_only and _only_sums(plan, source)
    return SheddableSource(
        rules.readers,
        recovers and by == "key",
        sticky=by == "key" and recovers and not linear,
        partners=rules.partners,
        window=rules.window,
    )


def rules_of_key(plan: Plan, chosen: Mapping[str, SampledBy], source: str) -> KeyRules:
    """How the key of a source reaches each step; the source can be shed."""
    return key_rules(plan, chosen, source)


def _scan(plan: Plan, source: str) -> Scan:
    node = plan.nodes.get(source)
    if node is None or not isinstance(node.operator, Scan):
        raise CannotSample(f"there is no source {source!r}")
    if isinstance(node.operator.source, ReadsInbox):
        raise CannotSample(f"{source!r} is a table: its rows are in the pond already")
    return node.operator


def _check_exact_views(plan: Plan, source: str) -> None:
    for view in plan.views.values():
        if view.exact and source in upstream(plan, [view.step]):
            raise CannotSample(f"view {view.name!r} is exact, and reads {source!r}")


def _aggregates(plan: Plan, source: str) -> frozenset[str]:
    """The aggregates that the rows reach; there is nothing else, or it is refused."""
    consumers, waiting, seen = plan.consumers(), [source], {source}
    shown = {view.step: view.name for view in plan.views.values()}
    aggregates: set[str] = set()
    while waiting:
        step = waiting.pop()
        if step in shown:
            raise CannotSample(f"view {shown[step]!r} shows rows of {source!r} themselves, not aggregates")
        for reader, _ in consumers[step]:
            operator = plan.nodes[reader].operator
            if isinstance(operator, Aggregate):
                bad = [a for a in operator.aggs if a.function not in _BOUNDED or a.distinct]
                if bad:
                    raise CannotSample(f"{bad[0]} of step {reader!r} has no error bound for a sample")
                aggregates.add(reader)
            elif not isinstance(operator, (*_LINEAR_STEPS, *_TIME_STEPS)):
                raise CannotSample(
                    f"{type(operator).__name__} of step {reader!r} has no error bound for a sample"
                )
            elif reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return frozenset(aggregates)


def _only_sums(plan: Plan, source: str) -> bool:
    """Do rows reach only aggregates that add them up, in any order?"""
    try:
        _aggregates(plan, source)
    except CannotSample:
        return False
    return True


def _reached(plan: Plan, source: str) -> set[str]:
    consumers, waiting, seen = plan.consumers(), [source], {source}
    while waiting:
        for reader, _ in consumers[waiting.pop()]:
            if reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return seen


def _passes_rows_once(node: Node) -> bool:
    """Does a watermark make rows of this step late when they are read again?"""
    operator = node.operator
    if isinstance(operator, AssignWindows):
        return operator.watermark is not None
    return isinstance(operator, Watermark)


def _error_bounds(plan: Plan, reached: Iterable[str]) -> tuple[tuple[str, float], ...]:
    steps = set(reached)
    bounds = []
    for view in plan.views.values():
        if view.error_bound is None or view.step not in steps:
            continue
        operator = plan.nodes[view.step].operator
        if isinstance(operator, Aggregate) and operator.until is not None:
            raise CannotSample(f"groups of view {view.name!r} expire, so its error bound says too little")
        bounds.append((view.table, view.error_bound))
    return tuple(sorted(bounds))
