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

EPOCHS = 20  # that ANALYZE looks back at


def run(session: Session, words: Words) -> Result:
    if words.take("ANALYZE"):
        return _analyze(session, words)
    if words.over:
        return _text(session, session.plan)
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
            return _text(session, _part(session.plan, [found.step]))
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
    return _text(session, _part(builder.plan, [made.step]))


def _analyze(session: Session, words: Words) -> Result:
    """The plan of what runs; for each of its steps the time of the last epochs and the size of its state."""
    words.take("MATERIALIZED", "VIEW") or words.take("VIEW") or words.take("TABLE")
    named = None if words.over else session.catalog.get(words.name("name of the view"))
    words.end()
    if not session.has_epoch():
        return _text(session, session.plan)
    reader = session.pond._reader
    with reader.pinned() as snapshot:
        plan = reader.plan_of(snapshot.manifest)
        if named is not None:
            step = plan.views[named.name].step if named.name in plan.views else named.step
            plan = _part(plan, [] if step is None else [step])
        first = max(snapshot.manifest.floor, snapshot.epoch - EPOCHS + 1)
        runs = [snapshot.at(e).manifest.metrics for e in range(first, snapshot.epoch + 1)]
        lines = explain_text(plan, cut(plan), snapshot.manifest.detached).rstrip("\n").split("\n")
        lines += ["", f"epochs {first} to {snapshot.epoch}"]
        for node in plan.topological():
            us = [m["steps_us"][node.step] for m in runs if node.step in m.get("steps_us", {})]
            held = [r for t in node.binding.tables for r in snapshot.listing.runs(t.name)]
            took = f"{sum(us) / 1000:.3f} ms in {len(us)} epochs" if us else "did not run"
            state = f", {sum(r.rows for r in held)} rows and {sum(r.bytes for r in held)} bytes of state"
            lines.append(f"  {node.step}: {took}{state if node.binding.tables else ''}")
    return _lines(lines)


def _part(plan: Plan, steps: list[str]) -> Plan:
    return within(plan, upstream(plan, steps))


def _text(session: Session, plan: Plan) -> Result:
    if not plan.nodes:
        return _lines(["nothing is defined"])
    head = session.pond._parts.head()
    detached = {} if head is None else head.detached
    return _lines(explain_text(plan, cut(plan), detached).rstrip("\n").split("\n"))


def _lines(lines: list[str]) -> Result:
    return Result.of_rows(["plan"], ["VARCHAR"], pa.table({"plan": pa.array(lines, pa.string())}))
