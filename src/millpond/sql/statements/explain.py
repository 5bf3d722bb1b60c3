"""EXPLAIN: the plan of what is there, or of what a query would become as a materialized view."""

from __future__ import annotations

import pyarrow as pa

from millpond.flow.builder import Builder
from millpond.plan.change import upstream, within
from millpond.plan.explain import explain_text
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.sql.parse import Words, readable
from millpond.sql.result import Result
from millpond.sql.session import Session
from millpond.sql.statements.create_view import materialize, view_text


def run(session: Session, words: Words) -> Result:
    if words.over:
        return _text(session.plan)
    if words.piece.word(words.at) == "CREATE":
        words.take("CREATE", "OR", "REPLACE") or words.take("CREATE")
        words.need("MATERIALIZED", "VIEW")
        words.if_not_exists()
        name = words.name("name of the view")
        text, on_close = view_text(words, closes=True)
    elif len(words.rest) <= 3 and words.piece.word(words.at) not in ("SELECT", "VALUES"):
        words.take("MATERIALIZED", "VIEW") or words.take("VIEW") or words.take("TABLE")
        found = session.catalog.get(words.name("name of the view"))
        words.end()
        if found.step is not None:
            return _text(_part(session.plan, [found.step]))
        name, text, on_close = found.name, found.text, False
    else:
        name, text, on_close = "query", readable(words.rest), False
    builder = Builder()
    builder.plan = session.plan
    fresh = name
    while session.catalog.find(fresh) is not None:
        fresh += "'"
    made = materialize(session, builder, fresh, text, on_close, "")
    assert made.step is not None
    return _text(_part(builder.plan, [made.step]))


def _part(plan: Plan, steps: list[str]) -> Plan:
    return within(plan, upstream(plan, steps))


def _text(plan: Plan) -> Result:
    lines = explain_text(plan, cut(plan)).rstrip("\n").split("\n") if plan.nodes else ["nothing is defined"]
    return Result.of_rows(["plan"], ["VARCHAR"], pa.table({"plan": pa.array(lines, pa.string())}))
