"""EMIT EARLY and LATE: the aggregates of windows as panes, each time the trigger of a window fires.

Law 1: in modes RETRACTING and ACCUMULATING the view of a window that has expired is the aggregate of all its
rows that came in time; each pane before it shows the rows that its firing had released.  The two differ only
in what readers of changes receive (`every_pane`).

A trigger holds back rows, so the windows must meet their aggregate before anything else that combines rows:
other steps over rows of windows are refused (`check`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from millpond.flow.builder import Builder
from millpond.flow.window_steps import WindowSteps
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.emit_panes import EmitPanes
from millpond.operators.filter import Filter
from millpond.operators.filter_rows import FilterRows
from millpond.operators.map import Map
from millpond.operators.operator import Operator
from millpond.operators.panes import KIND as PANE_KIND
from millpond.operators.panes import PANE, PANE_COLUMNS
from millpond.operators.window import END, START
from millpond.plan.nodes import Plan
from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import AggregateCall, BoundExpression, Reference
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.refusal import NotSupported

if TYPE_CHECKING:
    from millpond.sql.lowering.lowering import Lowering

Grouped = Callable[["Lowering", Relation, Sequence[BoundExpression], Sequence[AggregateCall]], Relation]

_WORDS = {  # operators, by the word in the text for which they stand
    "Join": ("join", "JOIN"),
    "LookupJoin": ("join", "JOIN"),
    "Union": ("union", "UNION"),
    "Distinct": ("distinct", "DISTINCT"),
    "TopN": ("over", "a rank"),
    "PerKey": ("over", "OVER"),
    "Iterate": ("recursive", "WITH RECURSIVE"),
    "Stamp": ("proctime", "proctime()"),
    "ValidInterval": ("now", "now()"),
}
_HINT = "aggregate first: SELECT … FROM TUMBLE(…) GROUP BY …, window_start, window_end"


def waiting(plan: Plan, step: str) -> str | None:
    """The step that assigned the windows of a step's rows, if no trigger has released the rows yet."""
    node = plan.nodes[step]
    while True:
        operator = node.operator
        if isinstance(operator, AssignWindows) and operator.after_us:
            return node.step
        if len(node.inputs) != 1 or node.binding.tables:
            return None
        node = plan.nodes[node.inputs[0]]


def check(low: Lowering, operator: Operator, inputs: Sequence[str]) -> None:
    """Refuse a step that combines rows of windows before a trigger has released them."""
    plan = low.builder.plan
    if all(waiting(plan, step) is None for step in inputs):
        return
    binding = operator.bind("of", tuple(map(plan.shape, inputs)))
    if len(inputs) == 1 and not binding.tables and all(p.kind == "here" for p in binding.placements):
        return
    word, shown = _WORDS.get(type(operator).__name__, ("select", "this query"))
    _refuse(low, f"cannot be followed by {shown} over rows of windows", word)


def check_query(low: Lowering, step: str) -> None:
    """Refuse a query whose rows are not aggregates of windows."""
    if waiting(low.builder.plan, step) is not None:
        _refuse(low, "needs an aggregate of each window, and these are its rows", "select")
    if not low.released:
        _refuse(low, "needs an aggregate over windows that end by a watermark", "select")


def in_panes(
    low: Lowering,
    source: Relation,
    groups: Sequence[BoundExpression],
    calls: Sequence[AggregateCall],
    read: Collection[int],
    grouped: Grouped,
) -> Relation:
    """Return the groups and aggregates of the panes; `read` are the columns that the aggregates read."""
    emission = low.emission
    assert emission.trigger is not None
    assigned = _direct(low.builder.plan, source.step)
    if assigned is None:
        _refuse(low, "needs the columns of the window as TUMBLE, HOP, … return them", "window_end")
    held = [_column(source, g) for g in groups]
    if START not in held or END not in held:
        _refuse(low, "needs both window_start and window_end in GROUP BY", "group")
    low.keyed((g.type for g in groups), "GROUP BY")
    windows = assigned.windows
    if windows.merges and {*held} != {*low.sessions[_step_of(low.builder.plan, source.step)], START, END}:
        _refuse(low, "needs the groups of SESSION to be its keys, window_start and window_end", "group")
    names, rows = _rows(low, source, groups, held, read)
    key = tuple(name for name in names if name not in (START, END))
    low.released = True
    steps = WindowSteps(
        low.builder,
        rows.step,
        tuple(dict.fromkeys(key)),
        windows.merges,
        emission.trigger,
        assigned.watermark,
        "discarding" if emission.mode == "discarding" else "retracting",
        f"{low.name}.window",
        low.name,
    )
    steps = replace(steps, owner=low.own(steps.operator(), (rows.step,)).owner)
    released = Relation(steps.released(), rows.columns)
    if windows.merges and any(source.columns[n].name == END for n in read):
        released = _with_shown_end(low, released, [c.name == END for c in source.columns])
    first = len(source.columns)
    by: list[BoundExpression] = [
        Reference(first + n, type=g.type, alias=name)
        for n, (name, g) in enumerate(zip(names, groups, strict=True))
    ]
    if emission.mode == "discarding":
        released = Relation(released.step, (*released.columns, StepColumn(PANE, "BIGINT")))
        by.append(Reference(len(released.columns) - 1, type="BIGINT", alias=PANE))
    made: list[Relation] = []

    def build() -> str:
        found = grouped(low, released, by, calls)
        shown = [*names, *((PANE,) if emission.mode == "discarding" else ())]
        outs = fresh_names([c.name for c in found.columns[len(by) :]], [*shown, *PANE_COLUMNS])
        wanted = {
            name: (name, quoted(column.name), column.type)
            for name, column in zip([*shown, *outs], found.columns, strict=True)
        }
        called = low.compute(found, list(wanted.values()), "contents")
        kinds = {c.name: c for c in called.columns}
        made.append(Relation(called.step, tuple(kinds[n] for n in [*names, *outs])))
        return called.step

    step = steps.panes(build, single=True)
    return _shown(low, Relation(step, made[-1].columns), windows.merges)


def every_pane(builder: Builder, step: str) -> str | None:
    """The step with every pane once, for a step whose rows are the newest panes of windows.

    None if the query does more with panes than to select and filter them: then no row is one pane.
    """
    node = builder.plan.nodes[step]
    if isinstance(node.operator, EmitPanes):
        operator = replace(node.operator, accumulates=True, expires=None)
        ended = builder.ended(operator, node.inputs)
        return builder.add(None, ended, node.inputs, f"{step}.every")
    if not isinstance(node.operator, Map | Filter | FilterRows):
        return None
    below = every_pane(builder, node.inputs[0])
    return None if below is None else builder.add(None, node.operator, (below,), f"{step}.every")


def _rows(
    low: Lowering,
    source: Relation,
    groups: Sequence[BoundExpression],
    held: Sequence[str | None],
    read: Collection[int],
) -> tuple[list[str], Relation]:
    """The names of the groups, and the rows with columns in the source's places and the groups behind them.

    The rows have the columns of the window, the groups, and what the aggregates read.
    """
    taken = [START, END, *PANE_COLUMNS, PANE_KIND]
    names: list[str] = []
    wanted = {c: (c, quoted(c), "") for c in (START, END)}
    for number, (group, column) in enumerate(zip(groups, held, strict=True)):
        if column in (START, END):
            assert column is not None
            names.append(column)
            wanted[column] = (column, quoted(column), group.type)
            continue
        (name,) = fresh_names([column or group.alias or f"group_{number}"], [*taken, *names])
        names.append(name)
        wanted[name] = (name, quoted(column) if column else render(group, source.columns), group.type)
    of_column: dict[str, str] = {START: START, END: END}
    for place in sorted(read):
        column = source.columns[place].name
        if column not in of_column:
            (of_column[column],) = fresh_names([column], [*taken, *wanted])
            name = of_column[column]
            wanted[name] = (name, quoted(column), source.columns[place].type)
    made = low.compute(source, list(wanted.values()), "windowed")
    kinds = {c.name: c for c in made.columns}
    places = [kinds[of_column.get(c.name, END)] for c in source.columns]
    return names, Relation(made.step, (*places, *(kinds[n] for n in names)))


def _with_shown_end(low: Lowering, rows: Relation, ends: Sequence[bool]) -> Relation:
    """Add the end of sessions as SQL shows it, for aggregates that read it (`time_window.sessions`)."""
    schema = low.builder.shape(rows.step).schema
    kinds = {c.name: c.type for c in rows.columns}
    (name,) = fresh_names(["shown_end"], schema.names)
    kind = kinds[END]
    wanted = [(n, quoted(n), kinds.get(n, "BIGINT")) for n in schema.names]
    made = low.compute(rows, [*wanted, (name, f"{quoted(END)} - to_microseconds(1)", kind)], "ends")
    shown = StepColumn(name, kind)
    own = rows.columns[: len(ends)]
    columns = [shown if end else c for c, end in zip(own, ends, strict=True)]
    return Relation(made.step, (*columns, *rows.columns[len(ends) :]))


def _shown(low: Lowering, panes: Relation, merges: bool) -> Relation:
    """The panes as rows of the query."""
    if not merges and low.emission.mode != "discarding":
        return panes
    texts = {c.name: quoted(c.name) for c in panes.columns}
    if merges:
        texts[END] = f"{quoted(END)} - to_microseconds(1)"
    return Relation(low.add(Map(tuple(texts.items())), (panes.step,), "shown"), panes.columns)


def _column(source: Relation, node: BoundExpression) -> str | None:
    return source.columns[node.index].name if isinstance(node, Reference) else None


def _step_of(plan: Plan, step: str) -> str:
    found = waiting(plan, step)
    assert found is not None
    return found


def _direct(plan: Plan, step: str) -> AssignWindows | None:
    """The operator that assigned the windows, if their columns reach this step as they were."""
    node = plan.nodes[step]
    if waiting(plan, step) is None:
        return None
    while not isinstance(node.operator, AssignWindows):
        if isinstance(node.operator, Map):
            texts = dict(node.operator.columns)
            if any(texts.get(c) != quoted(c) for c in (START, END)):
                return None
        node = plan.nodes[node.inputs[0]]
    return node.operator


def _refuse(low: Lowering, why: str, word: str) -> NoReturn:
    raise NotSupported(f"{low.emission.clause} {why}", at=low.position_of(word), hint=_HINT)
