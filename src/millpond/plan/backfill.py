"""Plans a backfill: finds the past output of old steps for the new steps that read them.

Law: each input of a new step is the sum of the deltas that it would have received from the beginning.
The past output of an old step is found, in this order:

1. in a table: the step's own view table, or that of a view over it;
2. for a watermark's late rows, in the table that stores them;
3. by a copy of the step over inputs that are found in the same way; a watermark is copied as `ExcludeLate`,
   which drops exactly the rows that were late;
4. from a source that can be read again up to its position.

It cannot be found if it depends on an order of rows that is not stored (for a process step), or if the step
is not a function of the sum of its input; then the change is refused with the reason.

If everything is read from tables, the backfill is *incremental*: the same plan, run over the changes of these
tables, brings its state from one epoch to a later one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from millpond.delta import ORIGIN
from millpond.errors import InvalidError
from millpond.operators.exclude_late import ExcludeLate
from millpond.operators.late_rows import LateRows
from millpond.operators.lookup_join import LookupJoin
from millpond.operators.materialize import Materialize
from millpond.operators.operator import Operator, Shape
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ConstantRows, KeepsHistory, ReadsInbox
from millpond.operators.state_scan import StateScan
from millpond.operators.traits import DependsOnArrival
from millpond.operators.watermark import Watermark
from millpond.plan.nodes import Node, Plan, narrowed, upstream
from millpond.state.tables.table_spec import TableSpec
from millpond.stored_code import Stored

FROM_NOW = (
    "start the new view with the next rows: call pond.replace(view, backfill=False) before the pond runs"
)


@dataclass(frozen=True)
class BackfillPlan:
    plan: Plan
    late_scans: tuple[str, ...]  # read completely before all others: late rows
    lookup_scans: tuple[str, ...]  # read before the rest, in this order: the tables of lookups
    tables: tuple[str, ...]  # scans of tables
    sources: tuple[str, ...]  # scans of sources that are read again
    constants: tuple[str, ...]  # new scans with constant rows: they need no epoch

    @property
    def incremental(self) -> bool:
        """Can the changes of the tables that it reads bring its state to a later epoch?"""
        return not self.sources and all(map(_is_incremental, self.plan.nodes.values()))

    def phase(self, scan: str) -> int:
        """Scans of a lower phase are read completely before those of a higher one, unless all run at once."""
        return 0 if scan in self.late_scans else 1 if scan in self.lookup_scans else 2


def backfill_plan(
    old: Plan, plan: Plan, new: Collection[str], positions: Collection[str], *, from_now: bool = False
) -> BackfillPlan:
    """The plan that computes the `new` steps of `plan` from the past output of `old`.

    `positions` name the sources that were read.  With `from_now` the new steps do not receive the past output
    of append-only steps: they start with the next rows.  Output that can be retracted is still read
    completely, since a retraction needs its row.
    """
    return _Finder(old, plan, new, positions, from_now).found()


def is_filled_from_tables(plan: Plan, step: str) -> bool:
    """Can the past input of a step be found in tables of the pond alone?"""
    finder = _Finder(plan, plan, frozenset(), {*plan.nodes, "inbox"}, False)
    try:
        for source in plan.nodes[step].inputs:
            finder._take(source)
    except InvalidError:  # it is not stored: no new view can be built on the step
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
        self.copies: dict[str, str] = {}  # old step -> its copy, which has its own state
        self.late_scans: list[str] = []
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
        readers = {step: {reader for reader, _ in edges} for step, edges in self.plan.consumers().items()}
        # A constant that an old step reads too waits for the next epoch, which reads it for all of them.
        constants = tuple(
            step
            for step, node in self.nodes.items()
            if step in self.new and is_constant(node) and readers[step] <= self.nodes.keys()
        )
        lookups = tuple(self._looked_up(plan, constants))
        return BackfillPlan(
            plan, tuple(self.late_scans), lookups, tuple(self.tables), tuple(self.sources), constants
        )

    def _looked_up(self, plan: Plan, constants: Collection[str]) -> list[str]:
        """The scans of the tables in which new steps look rows up: they must be complete before rows come."""
        read = {*self.tables, *self.sources, *constants} - {*self.late_scans}
        looked_up: list[str] = []
        for node in plan.topological():
            if node.step not in self.new or not isinstance(node.operator, LookupJoin):
                continue
            rows, table = _arriving(plan, node.inputs[0]) & read, upstream(plan, [node.inputs[1]]) & read
            if rows & table and self.old.nodes:  # in a new pond both are read in one epoch
                raise InvalidError(
                    f"step {node.step!r} is new, but its input was already read",
                    detail=f"both sides of the join read {', '.join(sorted(rows & table))}",
                    hint="create the view before there are rows, or join with another table",
                    step=node.step,
                )
            looked_up += [step for step in plan.nodes if step in table and step not in looked_up]
        return looked_up

    def _add_new(self, node: Node) -> None:
        mark = node.operator.watermark if isinstance(node.operator, LateRows) else None
        if mark is not None and mark not in self.new:
            self._read(node.step, self._late(mark), node.binding.shape)
            return
        if _depends_on_order(node) and self._was_read(node) and not self._begins_now(node):
            raise InvalidError(
                f"step {node.step!r} is new, but its input was already read",
                detail="it depends on the order of rows, which the pond does not store",
                hint=f"read the source under a new name, or {FROM_NOW}",
                step=node.step,
            )
        self.nodes[node.step] = replace(node, inputs=self._named(node.inputs))

    def _begins_now(self, node: Node) -> bool:
        """Do all its old inputs start empty?"""
        return self.from_now and all(
            self.plan.nodes[i].binding.shape.append_only for i in node.inputs if i not in self.new
        )

    def _add_empty(self, step: str, shape: Shape) -> None:
        """Replace a step by a scan of an empty table."""
        nothing = TableSpec(f"{step}!nothing", shape.schema, key=())
        self._add(step, StateScan(nothing, shape), ())

    def _named(self, steps: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.copies.get(step, step) for step in steps)

    def _take(self, step: str) -> None:
        """Add the past output of a step to the backfill, under its own name or that of its copy."""
        if step in self.nodes or step in self.copies or step in self.new:
            return
        node = self.old.nodes[step]
        if self.from_now and node.binding.shape.append_only:
            self._add_empty(step, node.binding.shape)
            return
        stored = self._stored(node)
        if stored is not None:
            self._read(step, stored, node.binding.shape)
        elif isinstance(node.operator, LateRows):
            self._read(step, self._late(node.operator.watermark), node.binding.shape)
        elif isinstance(node.operator, Scan):
            self._read_again(node, node.operator)
        elif isinstance(node.operator, Watermark):
            self._take(node.inputs[0])
            late = f"{step}!late"  # no step of a user has such a name
            self._read(late, self._late(step), node.binding.shape)
            self.late_scans.append(late)
            (rows,) = self._named(node.inputs)
            self._add(step, ExcludeLate(node.operator.time, node.binding.shape), (rows, late))
        elif _depends_on_order(node) or isinstance(node.operator, DependsOnArrival):
            what = "order in which" if _depends_on_order(node) else "times at which"
            raise InvalidError(
                f"what step {step!r} gave so far is not stored",
                detail=f"no view stores it, and it depends on the {what} rows arrived",
                hint=f"define a view of its output before the first run; or {FROM_NOW}",
                step=step,
            )
        else:
            for source in node.inputs:
                self._take(source)
            self.copies[step] = f"{step}!again"  # no step of a user has such a name
            inputs = self._named(node.inputs)
            reads = node.reads or (None,) * len(inputs)
            shapes = tuple(map(narrowed, (self.nodes[i].binding.shape for i in inputs), reads))
            binding = node.operator.bind(self.copies[step], shapes)
            self.nodes[self.copies[step]] = replace(
                node, step=self.copies[step], inputs=inputs, binding=binding
            )

    def _read(self, step: str, table: TableSpec, shape: Shape) -> None:
        self.tables.append(step)
        self._add(step, StateScan(table, shape), ())

    def _read_again(self, node: Node, scan: Scan) -> None:
        name = "inbox" if isinstance(scan.source, ReadsInbox) else node.step
        if name in self.positions:
            if not isinstance(scan.source, Stored) and not isinstance(scan.source, KeepsHistory):
                raise InvalidError(
                    f"source {node.step!r} was already read, and cannot be read again",
                    detail=f"no view stores its rows, and a {type(scan.source).__name__} is read only once",
                    hint=f"build on a table or a view that stores the rows, or {FROM_NOW}",
                    step=node.step,
                )
            self.sources.append(node.step)
        self.nodes[node.step] = node

    def _add(self, step: str, operator: Operator, inputs: tuple[str, ...]) -> None:
        shapes = tuple(self.nodes[i].binding.shape for i in inputs)
        self.nodes[step] = Node(step, operator, inputs, operator.bind(step, shapes))

    def _stored(self, node: Node) -> TableSpec | None:
        """The table that stores the past output of a step, if there is one."""
        view_table = _view_table(node)
        if view_table is not None:
            return view_table
        for other in self.old.nodes.values():
            if isinstance(other.operator, Materialize) and other.inputs == (node.step,):
                return _view_table(other)
        return None

    def _late(self, step: str) -> TableSpec:
        (late,) = (t for t in self.old.nodes[step].binding.tables if t.name == f"{step}/late")
        return late

    def _was_read(self, node: Node) -> bool:
        """Does the step read, directly or not, a source that the pond has read before?"""
        seen: set[str] = set()
        waiting = list(node.inputs)
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            operator = self.plan.nodes[step].operator
            if isinstance(operator, Scan) and step not in self.new:
                name = "inbox" if isinstance(operator.source, ReadsInbox) else step
                if name in self.positions:
                    return True
            waiting += self.plan.nodes[step].inputs
        return False


def is_constant(node: Node) -> bool:
    """Does a step have rows before any input comes?"""
    return isinstance(node.operator, Scan) and isinstance(node.operator.source, ConstantRows)


def _arriving(plan: Plan, step: str) -> set[str]:
    """The steps whose rows lead to rows of this step; a table that is only looked up is not one of them."""
    arriving: set[str] = set()
    waiting = [step]
    while waiting:
        step = waiting.pop()
        if step not in arriving:
            arriving.add(step)
            node = plan.nodes[step]
            waiting += node.inputs[:1] if isinstance(node.operator, LookupJoin) else node.inputs
    return arriving


def _depends_on_order(node: Node) -> bool:
    """Does the result of a step depend on the order of its input rows?"""
    if not node.inputs:
        return False
    names = frozenset(node.binding.shape.schema.names)
    return any(ORIGIN in columns for columns in node.operator.requires(node.binding, names))


def _is_incremental(node: Node) -> bool:
    """Can a step process the changes between two epochs as if they were one epoch?"""
    if isinstance(node.operator, StateScan):
        return node.operator.table.time is None  # expired buckets are not changes
    return not _depends_on_order(node)


def _view_table(node: Node) -> TableSpec | None:
    spec = next((t for t in node.binding.tables if t.name == node.binding.view), None)
    names = node.binding.shape.schema.names
    return spec if spec is not None and all(n in spec.schema.names for n in names) else None
