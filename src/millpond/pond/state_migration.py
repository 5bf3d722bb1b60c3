"""Rewrites state: by a function of the old rows, or from rows that the pond never read.

Law: no process runs the pond meanwhile, and the new state is in the same commit as its plan, the one that
takes the pond over: a crash leaves all of the old state, or all of the new.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.engine.change import bootstrap as bootstrapping
from millpond.engine.change import migration
from millpond.engine.change.state_expiry import tables_of
from millpond.engine.change.state_rewriter import StateRewriter
from millpond.engine.task import watermarks
from millpond.errors import InvalidError
from millpond.plan.compatibility import check_compatible
from millpond.plan.evolution import known_tables
from millpond.plan.side_effects import unpickles
from millpond.plan.user_code import with_operators
from millpond.pond.components import Components
from millpond.pond.execution import Execution


def migrate(
    components: Components,
    execution: Execution,
    step: str | Mapping[str, migration.Functions],
    function: migration.Functions | None,
    state: str | None,
) -> int:
    """Rewrite rows of states with functions; returns the number of rows written."""
    wanted = migration.asked_for(step, function, state)
    with execution.at_rest("migrate()") as head:
        if head is None:
            raise InvalidError("there is no pond here yet", hint="there is nothing to migrate: run it")
        old = with_operators(components.reader.plan_of(head))
        new = components.defined(otherwise=old)
        moves = migration.plan_moves(old, new, wanted)
        if unpickles(old):
            components.worker.trust.require_owner("state is kept as pickles")
        tables = {name for move in moves for name in tables_of(move.node, move.new)}
        check_compatible(old, new, set(head.positions), rewritten=tables)
        rewriter = StateRewriter(components.worker, head)
        rows = migration.migrate(rewriter, moves)
        execution.boot(rewriter.finish())
        return rows


def bootstrap(
    components: Components,
    execution: Execution,
    step: str,
    state: str,
    rows: bootstrapping.Rows,
    *,
    replace: bool,
) -> int:
    """Fill a state from rows; returns their number."""
    with execution.at_rest("bootstrap()") as head:
        if head is None:  # without a pond there is no state
            execution.boot()
            return bootstrap(components, execution, step, state, rows, replace=replace)
        old = with_operators(components.reader.plan_of(head))
        new = components.defined(otherwise=old)
        spec = migration.state_table(new, step, state)
        was = known_tables(old, step).get(spec.name) if step in old.nodes else None
        rewriter = StateRewriter(components.worker, head)
        if was is not None and not replace and not rewriter.is_empty(was):
            raise InvalidError(
                f"state {state!r} of step {step!r} has rows already",
                hint="pass replace=True to write all of it anew, or change rows with migrate()",
                step=step,
            )
        tables = tables_of(new.nodes[step], spec)
        plan = check_compatible(old, new, set(head.positions), rewritten=tables)
        mark = plan.shape(plan.nodes[step].inputs[0]).watermark
        bound = None if mark is None else watermarks.bound(head.watermarks, mark)
        count = bootstrapping.bootstrap(
            rewriter, plan.nodes[step], spec, rows, components.clock.now_us(), bound
        )
        execution.boot(rewriter.finish())
        return count
