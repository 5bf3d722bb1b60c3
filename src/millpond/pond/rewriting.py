"""State that is written anew: by a function of the old rows, or from rows that the pond never read.

Law: the pond is at rest, and the new state comes with the plan it belongs to, in the commit that takes the
pond over: a crash leaves all of the old, or has all of the new.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.engine import bootstrap as filling
from millpond.engine import migration, watermarks
from millpond.engine.lives import tables_of
from millpond.engine.rewrite import Rewriter
from millpond.errors import InvalidError
from millpond.plan.compatible import check_compatible
from millpond.plan.dangers import unpickles
from millpond.plan.evolution import known_tables
from millpond.plan.user_codes import with_operators
from millpond.pond.driver import Driver
from millpond.pond.parts import Parts


def migrate(
    parts: Parts,
    driver: Driver,
    step: str | Mapping[str, migration.Functions],
    function: migration.Functions | None,
    state: str | None,
) -> int:
    """Rows of states become other rows; how many were written."""
    wanted = migration.asked_for(step, function, state)
    with driver.at_rest("migrate()") as head:
        if head is None:
            raise InvalidError("there is no pond here yet", hint="there is nothing to migrate: run it")
        old = with_operators(parts.reader.plan_of(head))
        new = parts.defined(otherwise=old)
        moves = migration.plan_moves(old, new, wanted)
        if unpickles(old):
            parts.worker.trust.require_owner("state is kept as pickles")
        tables = {name for move in moves for name in tables_of(move.node, move.new)}
        check_compatible(old, new, set(head.positions), rewritten=tables)
        rewriter = Rewriter(parts.worker, head)
        rows = migration.migrate(rewriter, moves)
        driver.boot(rewriter.finish())
        return rows


def bootstrap(
    parts: Parts, driver: Driver, step: str, state: str, rows: filling.Rows, *, replace: bool
) -> int:
    """A state is filled from rows; how many they were."""
    with driver.at_rest("bootstrap()") as head:
        if head is None:  # a state needs a pond
            driver.boot()
            return bootstrap(parts, driver, step, state, rows, replace=replace)
        old = with_operators(parts.reader.plan_of(head))
        new = parts.defined(otherwise=old)
        spec = migration.state_table(new, step, state)
        was = known_tables(old, step).get(spec.name) if step in old.nodes else None
        rewriter = Rewriter(parts.worker, head)
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
        count = filling.bootstrap(rewriter, plan.nodes[step], spec, rows, parts.clock.now_us(), bound)
        driver.boot(rewriter.finish())
        return count
