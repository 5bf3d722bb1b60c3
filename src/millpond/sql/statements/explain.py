"""EXPLAIN: shows the plan of existing objects, or the plan that a query would have as a materialized view."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.flow.builder import Builder
from millpond.plan.change import within
from millpond.plan.explain import analyze_text, explain_text
from millpond.plan.explain_json import explain_json
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan, upstream
from millpond.sql.result import Result
from millpond.sql.statements.create_view import view_text
from millpond.sql.statements.materialize import materialize
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.emit_clause import BEFORE_THEY_CLOSE
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


_OPTIONS = ("ANALYZE", "FORMAT", "VERBOSE", "COSTS", "SUMMARY", "TIMING", "BUFFERS", "SETTINGS", "WAL")


def run(session: SqlSession, words: Words) -> Result:
    options = _options(words)
    as_json = options.get("FORMAT") == "JSON"
    if options.get("ANALYZE") == "ON":
        if as_json:
            words.fail("EXPLAIN ANALYZE is only shown as text", "leave out FORMAT JSON")
        return _analyze(session, words)
    plan = _asked(session, words)
    return _as_json(session, plan) if as_json else _text(session, plan)


def _options(words: Words) -> dict[str, str]:
    """Read the options: `ANALYZE`, `VERBOSE`, or `(name value, …)`; what changes nothing is accepted."""
    found: dict[str, str] = {}
    inner = words.fragment.bracket(words.at)[0] if words.fragment.word(words.at) == "(" else None
    if inner is not None and inner.word(0) in _OPTIONS:
        words.at = words.fragment.bracket(words.at)[1]
        for part in inner.split():
            each = Words(part)
            name = part.word(0)
            if name not in _OPTIONS:
                part.fail(f"EXPLAIN has no option {part.sql}", 0, f"options are {', '.join(_OPTIONS)}")
            each.at = 1
            value = "ON" if each.over else each.text().upper()
            each.end()
            found[name] = {"TRUE": "ON", "1": "ON", "FALSE": "OFF", "0": "OFF"}.get(value, value)
        if found.get("FORMAT", "TEXT") not in ("TEXT", "JSON"):
            inner.fail(f"EXPLAIN has no format {found['FORMAT']}", 0, "TEXT or JSON")
        return found
    for name in ("ANALYZE", "VERBOSE"):
        if words.take(name):
            found[name] = "ON"
    return found


def _asked(session: SqlSession, words: Words) -> Plan:
    """The plan of an object, or the one that a query would have."""
    if words.over:
        return session.plan
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
            return _part(session.plan, [found.step])
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
    return _part(builder.plan, [made.step])


def _analyze(session: SqlSession, words: Words) -> Result:
    """Show the running plan with each step's time, rows, optimizer pass and state in the last epochs."""
    if words.fragment.word(words.at) in ("SELECT", "WITH", "VALUES", "("):
        hint = "EXPLAIN without ANALYZE shows the plan that a query would have as a view"
        words.fail("EXPLAIN ANALYZE shows views as they run, and not queries", hint)
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


def _as_json(session: SqlSession, plan: Plan) -> Result:
    head = session.host.find_head()
    stopped = {} if head is None else head.stopped_sinks
    return _lines([json.dumps(explain_json(plan, cut(plan), stopped), indent=2)])


def _text(session: SqlSession, plan: Plan) -> Result:
    if not plan.nodes:
        return _lines(["nothing is defined"])
    head = session.host.find_head()
    stopped = {} if head is None else head.stopped_sinks
    return _lines(explain_text(plan, cut(plan), stopped).rstrip("\n").split("\n"))


def _lines(lines: list[str]) -> Result:
    return Result.of_rows(["plan"], ["VARCHAR"], pa.table({"plan": pa.array(lines, pa.string())}))
