"""Group windows, Flink's older form: the windows of `GROUP BY TUMBLE(ts, …)` become those of TUMBLE in FROM.

SELECT TUMBLE_START(ts, INTERVAL '1' HOUR), count(*) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from millpond.sql.dialects.flink.expressions import FlinkExpressions

_KINDS = ("tumble", "hop", "session")
_HINT = "write FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), …)) in a subquery"
_ENDS = {"start": "window_start", "end": "window_end"}


def expand(select: exp.Select, writer: FlinkExpressions) -> None:
    """Move the window of GROUP BY into FROM."""
    group = select.args.get("group")
    source = select.args.get("from_") or select.args.get("from")
    windows = [e for e in group.expressions if _kind(e) in _KINDS] if group is not None else []
    if group is None or source is None or not windows:
        return
    (window, *more) = windows
    name = _kind(window)
    if more or select.args.get("joins") or not isinstance(source.this, exp.Table | exp.Subquery):
        writer.refuse(window, "in GROUP BY needs one window over one relation", _HINT)
    given = [e.copy() for e in window.expressions]
    if not given or not isinstance(given[0], exp.Column):
        writer.refuse(window, "in GROUP BY needs a time column", _HINT)
    keys: list[exp.Expr] = []
    if name == "session":
        for other in group.expressions:
            if other is not window and not isinstance(other, exp.Column):
                writer.refuse(window, "in GROUP BY needs columns beside it", _HINT)
            if other is not window:
                keys.append(exp.column(exp.to_identifier(other.name, quoted=True)))
    relation = source.this
    alias = relation.args.get("alias")
    rows: exp.Expr = relation.copy()
    rows.set("alias", None)
    if isinstance(rows, exp.Table):
        rows = exp.column(exp.to_identifier(rows.name, quoted=True))
    given[0] = exp.column(exp.to_identifier(given[0].name, quoted=True))
    call = exp.Anonymous(this=name, expressions=[rows, *given, *keys])
    named = alias.copy() if alias is not None else None
    if named is None and isinstance(relation, exp.Table):
        named = exp.TableAlias(this=exp.to_identifier(relation.name, quoted=True))
    source.set("this", exp.Table(this=call, alias=named))
    ends = [exp.column("window_start"), exp.column("window_end")]
    group.set("expressions", [e for e in group.expressions if e is not window] + ends)
    for part in ("expressions", "having", "order"):
        for node in _calls(select, part):
            _replace(node, name, writer)


def _calls(select: exp.Select, part: str) -> list[exp.Anonymous]:
    held = select.args.get(part)
    roots = held if isinstance(held, list) else [held] if held is not None else []
    return [node for root in roots for node in root.find_all(exp.Anonymous)]


def _replace(node: exp.Anonymous, name: str, writer: FlinkExpressions) -> None:
    kind, _, end = str(node.name).lower().partition("_")
    if kind not in _KINDS or not end:
        return
    if kind != name:
        writer.refuse(node, f"needs {kind.upper()} in GROUP BY", _HINT)
    if end == "rowtime":
        node.replace(rowtime())
    elif end in _ENDS:
        node.replace(exp.column(_ENDS[end]))
    else:
        writer.refuse(node, "is not supported", "use PROCTIME() over TUMBLE in FROM")


def rowtime() -> exp.Expr:
    """The last time in a window: Flink's times have milliseconds."""
    one = exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="MILLISECOND"))
    return exp.Paren(this=exp.Sub(this=exp.column("window_end"), expression=one))


def _kind(node: exp.Expr) -> str:
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else ""
