"""EXPLAIN: shows the plan of existing objects, or the plan that a query would have as a materialized view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.flow.builder import Builder
from millpond.plan.change import within
from millpond.plan.explain import analyze_text, explain_text
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan, upstream
from millpond.sql.result import Result
from millpond.sql.statements.create_view import view_text
from millpond.sql.statements.materialize import materialize
from millpond.sql.text.emit_clause import BEFORE_THEY_CLOSE
from millpond.sql.text.parse import Words, readable

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(session: SqlSession, words: Words) -> Result:
    if words.take("ANALYZE"):
        return _analyze(session, words)
    if words.over:
        return _text(session, session.plan)
    if words.fragment.word(words.at) == "CREATE":
        words.take("CREATE", "OR", "REPLACE") or words.take("CREATE")
        words.need("MATERIALIZED", "VIEW")
        words.if_not_exists()
        name = words.name("name of the view")
        text, emission = view_text(words, closes=True)
    elif len(words.rest) <= 3 and words.fragment.word(words.at) not in ("SELECT", "VALUES"):
        words.take("MATERIALIZED", "VIEW") or words.take("VIEW") or words.take("TABLE")
        found = session.catalog.get(words.name("name of the view"))
        words.end()
        if found.step is not None:
            return _text(session, _part(session.plan, [found.step]))
        name, text, emission = found.name, found.text, BEFORE_THEY_CLOSE
    else:
        name, text, emission = "query", readable(words.rest), BEFORE_THEY_CLOSE
    builder = Builder()
    builder.plan = session.plan
    fresh = name
    while session.catalog.find(fresh) is not None:
        fresh += "'"
    made = materialize(session, builder, fresh, text, emission, "")
    assert made.step is not None
    return _text(session, _part(builder.plan, [made.step]))


def _analyze(session: SqlSession, words: Words) -> Result:
    """Show the running plan with each step's time, rows, optimizer pass and state in the last epochs."""
    words.take("MATERIALIZED", "VIEW") or words.take("VIEW") or words.take("TABLE")
    named = None if words.over else session.catalog.get(words.name("name of the view"))
    words.end()
    if not session.has_epoch():
        return _text(session, session.plan)
    host = session.host
    with host.pinned() as snapshot:
        plan = host.plan_of(snapshot.manifest)
        if named is not None:
            step = plan.views[named.name].step if named.name in plan.views else named.step
            plan = _part(plan, [] if step is None else [step])
        return _lines(analyze_text(plan, snapshot).split("\n"))


def _part(plan: Plan, steps: list[str]) -> Plan:
    return within(plan, upstream(plan, steps))


def _text(session: SqlSession, plan: Plan) -> Result:
    if not plan.nodes:
        return _lines(["nothing is defined"])
    head = session.host.find_head()
    stopped = {} if head is None else head.stopped_sinks
    return _lines(explain_text(plan, cut(plan), stopped).rstrip("\n").split("\n"))


def _lines(lines: list[str]) -> Result:
    return Result.of_rows(["plan"], ["VARCHAR"], pa.table({"plan": pa.array(lines, pa.string())}))
