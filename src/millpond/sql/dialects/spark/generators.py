"""Functions that make rows: `explode` and others in SELECT, in LATERAL VIEW and in FROM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from millpond.kernels.duck import quoted

if TYPE_CHECKING:
    from millpond.sql.dialects.spark.expressions import Expressions

_NAMES = {"explode": ["col"], "posexplode": ["pos", "col"], "inline": None, "stack": None, "json_tuple": None}
RAW = "raw"  # marks text that is written already


def raw(text: str) -> exp.Expr:
    """Text that sqlglot writes as it is."""
    made = exp.Var(this=text)
    made.meta[RAW] = True
    return made


def is_raw(node: exp.Expr) -> bool:
    return bool(node.meta.get(RAW))


def expand(select: exp.Select, writer: Expressions) -> None:
    """Replace LATERAL VIEW, and the row-making functions of a SELECT list, by joins."""
    joins = []
    for number, view in enumerate(select.args.get("laterals") or []):
        alias = view.args.get("alias")
        if not view.args.get("view"):
            continue
        call = _call(view.this)
        if call is None:
            writer.refuse(view.this, "makes no rows")
        name = alias.this.name if alias is not None and alias.this is not None else f"lateral_{number}"
        columns = [c.name for c in alias.columns] if alias is not None else []
        joins.append(_join(call, name, columns, bool(view.args.get("outer")), writer))
    select.set("laterals", [v for v in select.args.get("laterals") or [] if not v.args.get("view")])
    found = []
    calls = [call for call in map(_made_rows, select.expressions) if call is not None]
    windows = any(item.find(exp.Window) for item in select.expressions)
    in_front = len(calls) > 1 or windows  # each with each, and before window functions look at the rows
    if calls and in_front and select.args.get("group"):
        writer.refuse(calls[-1], "is not supported beside GROUP BY", "group in a subquery")
    for number, item in enumerate(select.expressions):
        inner, columns = _aliased(item)
        call = _call(inner)
        if call is None:
            found.append(item)
            continue
        kind, outer = _kind(call)
        is_list = kind == "explode" and not outer and len(columns) < 2 and not _is_map(call.expressions[0])
        if is_list and not in_front:
            name = columns[0] if columns else "col"
            found.append(raw(f"unnest({writer.text(call.expressions[0])}) AS {quoted(name)}"))
            continue
        if any(isinstance(e, exp.Star) for e in select.expressions):
            writer.refuse(call, "is not supported beside *", "name the columns, or use LATERAL VIEW")
        table = f"made_{number}"
        joins.append(_join(call, table, columns, outer, writer))
        found.append(raw(f"{quoted(table)}.*"))
    select.set("expressions", found)
    if not joins:
        return
    if not (select.args.get("from_") or select.args.get("from")):
        key = "from_" if "from_" in exp.Select.arg_types else "from"
        select.set(key, exp.From(this=raw('(SELECT 1) AS "one_row"')))
    select.set("joins", [*(select.args.get("joins") or []), *joins])


def _made_rows(item: exp.Expr) -> exp.Anonymous | None:
    return _call(_aliased(item)[0])


def lateral(node: exp.Lateral, writer: Expressions, query: Callable[[exp.Expr], str]) -> str:
    """LATERAL of a query or of a function that makes rows."""
    alias, inner = node.args.get("alias"), node.this
    columns = [c.name for c in alias.columns] if alias is not None else []
    name = alias.this.name if alias is not None and alias.this is not None else f"lateral_{id(node)}"
    listed = f"({', '.join(map(quoted, columns))})" if columns else ""
    if isinstance(inner, exp.Subquery):
        return f"LATERAL ({query(inner.this)}) AS {quoted(name)}{listed}"
    call = _call(inner)
    if call is None or _kind(call)[1]:
        writer.refuse(inner, "is not supported behind LATERAL", "use LATERAL VIEW [OUTER]")
    return f"LATERAL ({_query(call, columns, writer)}) AS {quoted(name)}{listed}"


def table_function(node: exp.Table, writer: Expressions) -> None:
    """A function in FROM."""
    call = node.this
    name = str(call.name).lower()
    alias = node.args.get("alias")
    if name == "range" and call.expressions:
        given = [writer.text(g) for g in call.expressions[:3]]
        query = f'SELECT "range" AS "id" FROM range({", ".join(given)})'
    elif _call(call) is not None:
        _, outer = _kind(call)
        query = _query(call, [], writer)
        if outer:
            writer.refuse(call, "is not supported in FROM", "use LATERAL VIEW OUTER")
    else:
        node.set("this", raw(writer.text(call)))
        return
    node.set("this", raw(f"({query})"))
    if alias is None:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


def _call(node: exp.Expr) -> exp.Anonymous | None:
    if isinstance(node, exp.Anonymous) and str(node.name).lower().removesuffix("_outer") in _NAMES:
        for given in list(node.expressions):
            if isinstance(given, exp.Kwarg):  # explode(collection => …)
                given.replace(given.expression)
        return node
    return None


def _kind(call: exp.Anonymous) -> tuple[str, bool]:
    name = str(call.name).lower()
    return name.removesuffix("_outer"), name.endswith("_outer")


def _aliased(node: exp.Expr) -> tuple[exp.Expr, list[str]]:
    if isinstance(node, exp.Aliases):
        return node.this, [c.name for c in node.expressions]
    if isinstance(node, exp.Alias):
        return node.this, [node.alias]
    return node, []


def _is_map(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.name).lower() in (
        *("map", "map_from_arrays", "map_from_entries", "map_concat", "map_filter", "str_to_map"),
        *("transform_values", "transform_keys"),
    )


def _join(call: exp.Anonymous, table: str, columns: list[str], outer: bool, writer: Expressions) -> exp.Join:
    _, outer_name = _kind(call)
    listed = f"({', '.join(map(quoted, columns))})" if columns else ""
    relation = raw(f"LATERAL ({_query(call, columns, writer)}) AS {quoted(table)}{listed}")
    if outer or outer_name:
        return exp.Join(this=relation, side="LEFT", on=raw("true"))
    return exp.Join(this=relation, kind="CROSS")


def _query(call: exp.Anonymous, columns: list[str], writer: Expressions) -> str:
    kind, _ = _kind(call)
    given = call.expressions
    if kind in ("explode", "posexplode", "inline") and len(given) != 1:
        writer.refuse(call, "needs one argument")
    if kind in ("explode", "posexplode"):
        value = writer.text(given[0])
        place = f'unnest(range(len(map_keys({value}))))::integer AS "pos", '
        if len(columns) == (2 if kind == "explode" else 3) or _is_map(given[0]):
            pairs = f'unnest(map_keys({value})) AS "key", unnest(map_values({value})) AS "value"'
            return f"SELECT {place if kind == 'posexplode' else ''}{pairs}"
        place = f'unnest(range(len({value})))::integer AS "pos", ' if kind == "posexplode" else ""
        return f'SELECT {place}unnest({value}) AS "col"'
    if kind == "inline":
        return f"SELECT unnest({writer.text(given[0])}, max_depth := 2)"
    if kind == "json_tuple":
        names = given[1:]
        parts = [
            f'__spark.json_field({writer.text(given[0])}, {writer.text(n)}) AS "c{k}"'
            for k, n in enumerate(names)
        ]
        return f"SELECT {', '.join(parts)}"
    if not given or not given[0].is_int:
        writer.refuse(call, "needs a constant number of rows")
    rows = int(given[0].name)
    width = -(-len(given[1:]) // rows)
    cells = [*map(writer.text, given[1:]), *["NULL"] * (rows * width - len(given[1:]))]
    lines = ", ".join(f"({', '.join(cells[r * width : (r + 1) * width])})" for r in range(rows))
    return f"SELECT * FROM (VALUES {lines}) AS stacked({', '.join(quoted(f'col{n}') for n in range(width))})"
