"""The plan of a backfill: how new steps get all that old steps ever gave them.

Law: each input of a new step is the sum of the deltas that it would have had
from the beginning.  For an old step it is found, in this order:

1. in a table: the step's own view table, or that of a view over it;
2. for a watermark's late rows, in the table that keeps them;
3. by a copy of the step over inputs that are found in the same way; a watermark
   is copied as `OnTime`, which leaves out exactly what was late;
4. from a source that can be read again up to its position.

What was given in an order that nobody holds any more (to a process step), or
by a step that is no function of its input's sum, cannot be found; then the
change is refused with the reason.

Where all of it is read from tables, the same plan run over what has changed in
these tables brings its state from one epoch to a later one, as one epoch of its own
would: such a plan *follows*.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.delta import ORIGIN
from millpond.errors import InvalidError
from millpond.operators.late import LateRows
from millpond.operators.lookup_join import LookupJoin
from millpond.operators.materialize import Materialize
from millpond.operators.on_time import OnTime
from millpond.operators.operator import Operator, Shape
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
from millpond.operators.watermark import Watermark
from millpond.plan.nodes import Node, Plan
from millpond.state.table_spec import TableSpec
from millpond.stored_code import Stored

FROM_NOW = (
    "begin with the rows that come next: name the new view in pond.replace(view, backfill=False) "
    "before the pond runs"
)


@dataclass(frozen=True)
class BackfillPlan:
    plan: Plan
    first: tuple[str, ...]  # scans that must be read whole before the others: late rows
    second: tuple[str, ...]  # scans that must be read before the rest, in this order: what is looked up
    tables: tuple[str, ...]  # scans of tables
    sources: tuple[str, ...]  # scans of sources that are read again
    constants: tuple[str, ...]  # new scans whose rows are all there: they need not wait for an epoch

    @property
    def follows(self) -> bool:
        """Can the state that it fills be brought to a later epoch by the changes of the tables it reads?"""
        return not self.sources and all(map(_follows, self.plan.nodes.values()))

    def part(self, scan: str) -> int:
        """Scans of a lower part are read whole before those of a higher one, unless all come together."""
        return 0 if scan in self.first else 1 if scan in self.second else 2


def backfill_plan(
    old: Plan, plan: Plan, new: Collection[str], positions: Collection[str], *, from_now: bool = False
) -> BackfillPlan:
    """What to run for the `new` steps of `plan` over what `old` gave; `positions` tell what was read.

    With `from_now` the new steps get nothing of what append-only steps gave so far: they begin with the
    rows that come next.  What can be retracted is still read whole, or a retraction would meet no row.
    """
    return _Finder(old, plan, new, positions, from_now).found()


def is_filled_from_tables(plan: Plan, step: str) -> bool:
    """Could all that a step was ever given be found again in tables of the pond, and nowhere else?"""
    finder = _Finder(plan, plan, frozenset(), {*plan.nodes, "inbox"}, False)
    try:
        for source in plan.nodes[step].inputs:
            finder._take(source)
    except InvalidError:  # nowhere: no new view can be built on the step
        return False
    return not finder.sources


class _Finder:
    def __init__(
        self, old: Plan, plan: Plan, new: Collection[str], positions: Collection[str], from_now: bool
    ) -> None:
        self.from_now = from_now
        self.old = old
        self.plan = plan
        self.new = new
        self.positions = positions
        self.nodes: dict[str, Node] = {}
        self.copies: dict[str, str] = {}  # old step -> its copy: it keeps state of its own beside the old one
        self.first: list[str] = []
        self.tables: list[str] = []
        self.sources: list[str] = []

    def found(self) -> BackfillPlan:
        for node in self.plan.topological():
            if node.step not in self.new:
                continue
            for source in node.inputs:
                self._take(source)
            self._add_new(node)
        views = {n: v for n, v in self.plan.views.items() if v.step in self.nodes and v.step in self.new}
        plan = Plan(self.nodes, views)
        readers = {step: {reader for reader, _ in found} for step, found in self.plan.consumers().items()}
        # A constant that an old step reads as well waits for the next epoch, which gives it to all of them.
        constants = tuple(
            step
            for step, node in self.nodes.items()
            if step in self.new and is_constant(node) and readers[step] <= self.nodes.keys()
        )
        second = tuple(self._looked_up(plan, constants))
        return BackfillPlan(
            plan, tuple(self.first), second, tuple(self.tables), tuple(self.sources), constants
        )

    def _looked_up(self, plan: Plan, constants: Collection[str]) -> list[str]:
        """The scans behind what new steps look rows up in: it must be whole before rows come."""
        read = {*self.tables, *self.sources, *constants} - {*self.first}
        found: list[str] = []
        for node in plan.topological():
            if node.step not in self.new or not isinstance(node.operator, LookupJoin):
                continue
            rows, table = (_behind(plan, step) & read for step in node.inputs)
            if rows & table and self.old.nodes:  # in a new pond all of it comes at once
                raise InvalidError(
                    f"step {node.step!r} is new, and what it reads was already read",
                    detail=f"both sides of the join read {', '.join(sorted(rows & table))}",
                    hint="create the view before there are rows, or join with a table of its own",
                    step=node.step,
                )
            found += [step for step in plan.nodes if step in table and step not in found]
        return found

    def _add_new(self, node: Node) -> None:
        mark = node.operator.watermark if isinstance(node.operator, LateRows) else None
        if mark is not None and mark not in self.new:
            self._read(node.step, self._late(mark), node.binding.shape)
            return
        if _remembers_order(node) and self._was_read(node) and not self._begins_now(node):
            raise InvalidError(
                f"step {node.step!r} is new, and what it reads was already read",
                detail="it sees rows in the order in which they come, and the pond does not hold their order",
                hint=f"read the source under a new name, or {FROM_NOW}",
                step=node.step,
            )
        self.nodes[node.step] = replace(node, inputs=self._named(node.inputs))

    def _begins_now(self, node: Node) -> bool:
        """Are all its inputs, as far as they are old, empty so far?"""
        return self.from_now and all(
            self.plan.nodes[i].binding.shape.append_only for i in node.inputs if i not in self.new
        )

    def _add_empty(self, step: str, shape: Shape) -> None:
        """A scan of a table that has no rows, in the place of a step."""
        nothing = TableSpec(f"{step}!nothing", shape.schema, key=())
        self._add(step, StateScan(nothing, shape), ())

    def _named(self, steps: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.copies.get(step, step) for step in steps)

    def _take(self, step: str) -> None:
        """What a step gave, under its own name in the new plan, or that of its copy."""
        if step in self.nodes or step in self.copies or step in self.new:
            return
        node = self.old.nodes[step]
        if self.from_now and node.binding.shape.append_only:
            self._add_empty(step, node.binding.shape)
            return
        held = self._held(node)
        if held is not None:
            self._read(step, held, node.binding.shape)
        elif isinstance(node.operator, LateRows):
            self._read(step, self._late(node.operator.watermark), node.binding.shape)
        elif isinstance(node.operator, Scan):
            self._read_again(node, node.operator)
        elif isinstance(node.operator, Watermark):
            self._take(node.inputs[0])
            late = f"{step}!late"  # no step of a user has such a name
            self._read(late, self._late(step), node.binding.shape)
            self.first.append(late)
            (rows,) = self._named(node.inputs)
            self._add(step, OnTime(node.operator.time, node.binding.shape), (rows, late))
        elif _remembers_order(node) or getattr(node.operator, "once", False):
            what = "order in which" if _remembers_order(node) else "times at which"
            raise InvalidError(
                f"what step {step!r} gave so far is nowhere",
                detail=f"no view holds it, and it depends on the {what} rows came",
                hint=f"a view of its output, defined before the first run, would hold it; or {FROM_NOW}",
                step=step,
            )
        else:
            for source in node.inputs:
                self._take(source)
            self.copies[step] = f"{step}!again"  # no step of a user has such a name
            inputs = self._named(node.inputs)
            reads = node.reads or (None,) * len(inputs)
            shapes = tuple(map(_known, (self.nodes[i].binding.shape for i in inputs), reads))
            binding = node.operator.bind(self.copies[step], shapes)
            self.nodes[self.copies[step]] = replace(
                node, step=self.copies[step], inputs=inputs, binding=binding
            )

    def _read(self, step: str, table: TableSpec, shape: Shape) -> None:
        self.tables.append(step)
        self._add(step, StateScan(table, shape), ())

    def _read_again(self, node: Node, scan: Scan) -> None:
        name = "inbox" if getattr(scan.source, "inbox", False) else node.step
        if name in self.positions:
            if not isinstance(scan.source, Stored) and not hasattr(scan.source, "history"):
                raise InvalidError(
                    f"source {node.step!r} was already read, and cannot be read again",
                    detail=f"no view holds its rows, and a {type(scan.source).__name__} gives them once",
                    hint=f"build on a table or a view that holds the rows, or {FROM_NOW}",
                    step=node.step,
                )
            self.sources.append(node.step)
        self.nodes[node.step] = node

    def _add(self, step: str, operator: Operator, inputs: tuple[str, ...]) -> None:
        shapes = tuple(self.nodes[i].binding.shape for i in inputs)
        self.nodes[step] = Node(step, operator, inputs, operator.bind(step, shapes))

    def _held(self, node: Node) -> TableSpec | None:
        """The table whose rows are what the step gave, if there is one."""
        found = _view_table(node)
        if found is not None:
            return found
        for other in self.old.nodes.values():
            if isinstance(other.operator, Materialize) and other.inputs == (node.step,):
                return _view_table(other)
        return None

    def _late(self, step: str) -> TableSpec:
        (late,) = (t for t in self.old.nodes[step].binding.tables if t.name == f"{step}/late")
        return late

    def _was_read(self, node: Node) -> bool:
        """Is anything behind the step that the pond has read before?"""
        seen: set[str] = set()
        waiting = list(node.inputs)
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            operator = self.plan.nodes[step].operator
            if isinstance(operator, Scan) and step not in self.new:
                name = "inbox" if getattr(operator.source, "inbox", False) else step
                if name in self.positions:
                    return True
            waiting += self.plan.nodes[step].inputs
        return False


def is_constant(node: Node) -> bool:
    """Are the rows of a step known before any input comes?"""
    return bool(getattr(getattr(node.operator, "source", None), "constant", False))


def _behind(plan: Plan, step: str) -> set[str]:
    """A step and all that it is computed from."""
    return {step}.union(*(_behind(plan, source) for source in plan.nodes[step].inputs))


def _known(shape: Shape, reads: tuple[str, ...] | None) -> Shape:
    """An input as a step was bound to it, before it gained columns."""
    if reads is None:
        return shape
    return replace(shape, schema=pa.schema([shape.schema.field(name) for name in reads]))


def _remembers_order(node: Node) -> bool:
    """Does a step see rows in the order in which they come?"""
    if not node.inputs:
        return False
    names = frozenset(node.binding.shape.schema.names)
    return any(ORIGIN in columns for columns in node.operator.requires(node.binding, names))


def _follows(node: Node) -> bool:
    """Can a step take in what changed between two epochs, as one epoch?"""
    if isinstance(node.operator, StateScan):
        return node.operator.table.time is None  # what is dropped from a table is no change of it
    return not _remembers_order(node)


def _view_table(node: Node) -> TableSpec | None:
    spec = next((t for t in node.binding.tables if t.name == node.binding.view), None)
    names = node.binding.shape.schema.names
    return spec if spec is not None and all(n in spec.schema.names for n in names) else None
