"""`window(ts, …)` and `session_window(ts, …)` of GROUP BY become windows of TUMBLE, HOP or SESSION in FROM.

SELECT window.start, count(*) FROM t GROUP BY window(ts, '1 hour')
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from millpond.sql.dialects.spark.expressions import Expressions

_KINDS = ("window", "session_window")
_HINT = "use TUMBLE, HOP or SESSION in FROM"
_LENGTH = re.compile(
    r"\s*(?:interval\s+)?(\d+)\s+(week|day|hour|minute|second|millisecond)s?\s*", re.IGNORECASE
)


def expand(select: exp.Select, writer: Expressions) -> None:
    """Move the window of a query into FROM."""
    group = select.args.get("group")
    calls = [n for n in _nodes(select) if isinstance(n, exp.Anonymous) and _is_window(n)]
    source = select.args.get("from_") or select.args.get("from")
    if not calls or source is None:
        return
    call = calls[0]
    if any(other != call for other in calls) or select.args.get("joins") or select.args.get("laterals"):
        writer.refuse(call, "needs to be the only window, over one relation", _HINT)
    if not isinstance(source.this, exp.Table | exp.Subquery) or isinstance(source.this.this, exp.Anonymous):
        writer.refuse(call, "needs a table or a subquery in FROM", _HINT)
    name = str(call.name).lower()
    if name == "session_window" and not any(_is_window(e) for e in (group.expressions if group else [])):
        writer.refuse(call, "is only supported in GROUP BY", _HINT)
    _replace_source(source, _arguments(call, group, writer))
    if group is not None:
        kept = [e for e in group.expressions if not _is_window(e)]
        ends = [_end("window_start"), _end("window_end")]
        group.set("expressions", kept + (ends if len(kept) < len(group.expressions) else []))
    for node in list(_nodes(select)):
        if _is_window(node):
            node.replace(_named(node, name))
        elif isinstance(node, exp.Column) and node.parts[0].name.lower() == name:
            _replace_column(node, name)


def _nodes(select: exp.Select) -> list[exp.Expr]:
    """The expressions of a query, without those of its subqueries."""
    roots: list[exp.Expr] = [*select.expressions]
    roots += [select.args[part] for part in ("group", "having", "order", "where") if select.args.get(part)]
    return [
        node
        for root in roots
        for node in root.walk(prune=lambda n: isinstance(n, exp.Query))
        if isinstance(node, exp.Anonymous | exp.Column)
    ]


def _is_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.name).lower() in _KINDS and len(node.expressions) > 1


def _arguments(
    call: exp.Anonymous, group: exp.Expr | None, writer: Expressions
) -> tuple[str, list[exp.Expr]]:
    """The function in FROM with its arguments after the rows."""
    time, *lengths = call.expressions
    if not isinstance(time, exp.Column):
        writer.refuse(call, "needs a time column", "compute it in a subquery")
    made = [_length(one, call, writer) for one in lengths]
    column = exp.column(exp.to_identifier(time.name, quoted=True))
    if str(call.name).lower() == "session_window":
        others = [e for e in (group.expressions if group is not None else []) if not _is_window(e)]
        if len(made) != 1 or not all(isinstance(e, exp.Column) for e in others):
            writer.refuse(call, "needs one gap, and columns beside it in GROUP BY", _HINT)
        keys = [exp.column(exp.to_identifier(e.name, quoted=True)) for e in others]
        return "session", [column, *made, *keys]
    if len(made) == 1 or (len(made) == 2 and made[0] == made[1]):
        return "tumble", [column, made[0]]
    if len(made) == 3 and made[0] == made[1]:
        return "tumble", [column, made[0], made[2]]
    size, slide, *offset = made
    return "hop", [column, slide, size, *offset]


def _length(node: exp.Expr, call: exp.Anonymous, writer: Expressions) -> exp.Expr:
    said = _LENGTH.fullmatch(node.name) if isinstance(node, exp.Literal) else None
    if isinstance(node, exp.Interval):
        return node.copy()
    if said is None:
        writer.refuse(call, "needs constant lengths such as '10 minutes'", _HINT)
    return exp.Interval(this=exp.Literal.string(said[1]), unit=exp.Var(this=said[2].upper()))


def _replace_source(source: exp.Expr, function: tuple[str, list[exp.Expr]]) -> None:
    relation = source.this
    alias = relation.args.get("alias")
    rows: exp.Expr = relation.copy()
    rows.set("alias", None)
    if isinstance(rows, exp.Table):
        parts = [exp.to_identifier(part.name, quoted=True) for part in rows.parts]
        rows = exp.Column(**dict(zip(("this", "table", "db"), reversed(parts), strict=False)))
        alias = alias or exp.TableAlias(this=exp.to_identifier(relation.name, quoted=True))
    name, given = function
    source.set("this", exp.Table(this=exp.Anonymous(this=name, expressions=[rows, *given]), alias=alias))


def _end(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True))


def _struct() -> exp.Expr:
    given = [exp.Literal.string("start"), _end("window_start"), exp.Literal.string("end"), _end("window_end")]
    return exp.Anonymous(this="named_struct", expressions=given)


def _named(node: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(_struct(), name, quoted=True) if isinstance(node.parent, exp.Select) else _struct()


def _replace_column(node: exp.Column, name: str) -> None:
    """`window.start`, `window.end` and `window`."""
    field = node.parts[1].name.lower() if len(node.parts) == 2 else ""
    if len(node.parts) > 2 or (field and field not in ("start", "end")):
        return
    made = _end(f"window_{field}") if field else _named(node, name)
    is_item = isinstance(node.parent, exp.Select)
    node.replace(exp.alias_(made, field, quoted=True) if field and is_item else made)
