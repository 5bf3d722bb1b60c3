"""Writes queries and changes of Spark: sqlglot writes the clauses, `expressions` what is in them."""

from __future__ import annotations

import re

from sqlglot import ErrorLevel, exp

from millpond.sql.dialects.spark import column_aliases, functions, generators, time_windows
from millpond.sql.dialects.spark.expressions import Expressions
from millpond.sql.dialects.spark.generators import is_raw, raw
from millpond.sql.dialects.spark.names import column_name
from millpond.sql.text.with_ties import without_ties

# Clauses and relations, whose parts are written one by one; everything else is an expression.
_CLAUSES = (
    *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Qualify, exp.Order, exp.Ordered),
    *(
        exp.Limit,
        exp.Offset,
        exp.Fetch,
        exp.LimitOptions,
        exp.With,
        exp.CTE,
        exp.Subquery,
        exp.Table,
        exp.TableAlias,
    ),
    *(
        exp.Union,
        exp.Except,
        exp.Intersect,
        exp.Values,
        exp.Insert,
        exp.Update,
        exp.Delete,
        exp.Schema,
        exp.Returning,
    ),
    *(exp.Rollup, exp.Cube, exp.GroupingSets, exp.Pivot, exp.PivotAlias),
)
_REFUSED = ("sort", "cluster", "distribute", "sample", "connect", "match", "kind", "into", "locks")
_REFUSED_TABLE = ("sample", "version", "changes", "hints", "when", "only", "partition")


_SETS = re.compile(r"(\S)\s+GROUPING\s+SETS\b", re.IGNORECASE)


class Queries:
    """Writes one statement."""

    writer: type[Expressions] = Expressions

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.expressions = self.writer(sql, self.text)

    def text(self, tree: exp.Expr) -> str:
        """The text of a query or change."""
        tree = tree.copy()
        made = self._clause(self._named_values(tree))
        return str(
            without_ties(made).sql("duckdb", unsupported_level=ErrorLevel.RAISE, normalize_functions=False)
        )

    def _clause(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Select):
            self.prepare(node)
        if isinstance(node, exp.Table):
            self.table(node)
        if isinstance(node, exp.Insert) and node.args.get("overwrite"):
            self.expressions.refuse(node, "OVERWRITE is not supported", "DELETE FROM the table first")
        for name, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(name, self._part(value, node, name))
            elif isinstance(value, list):
                node.set(name, [self._part(v, node, name) if isinstance(v, exp.Expr) else v for v in value])
        return node

    def _part(self, node: exp.Expr, parent: exp.Expr, name: str) -> exp.Expr:
        if is_raw(node):
            return node
        if isinstance(node, exp.Values) and not isinstance(parent, exp.Insert):
            node = self._named_values(node)
        if isinstance(node, exp.Subquery) and not isinstance(
            parent, exp.From | exp.Join | exp.SetOperation | exp.CTE | exp.Subquery
        ):
            return raw(self.expressions.text(node))
        if isinstance(node, exp.Lateral):
            return raw(generators.lateral(node, self.expressions, self.text))
        if isinstance(node, _CLAUSES):
            return self._clause(node)
        if isinstance(node, exp.Identifier) or isinstance(parent, exp.TableAlias):
            return node
        if isinstance(parent, exp.Values) and isinstance(node, exp.Tuple):
            node.set("expressions", [raw(self.expressions.text(v)) for v in node.expressions])
            return node
        if isinstance(parent, exp.Table) and name == "this":
            return node
        if isinstance(node, exp.Alias) and isinstance(parent, exp.Select):
            node.set("this", raw(self.expressions.text(node.this)))
            return node
        if isinstance(node, exp.Distinct) and isinstance(parent, exp.Select):
            return node
        if isinstance(parent, exp.Update) and isinstance(node, exp.EQ):
            column = self.expressions.text(exp.column(node.this.name))
            return raw(f"{column} = {self.expressions.text(node.expression)}")
        if isinstance(node, exp.In) and isinstance(parent, exp.Pivot):
            return self._pivot_values(node)
        if isinstance(parent, exp.Pivot) and name == "expressions":
            return raw(self._pivoted(node))
        if isinstance(node, exp.Window) and name == "windows":
            return raw(self.expressions.text(node))
        if isinstance(node, exp.Var) and isinstance(parent, exp.Ordered | exp.Group | exp.LimitOptions):
            return node
        if isinstance(parent, exp.Limit | exp.Offset | exp.Fetch):
            return node
        made = raw(self.expressions.text(node))
        if (
            isinstance(parent, exp.Select)
            and name == "expressions"
            and not isinstance(node, exp.Star | exp.Column)
            and not (isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star))
        ):
            return exp.Alias(this=made, alias=exp.to_identifier(column_name(node), quoted=True))
        return made

    def prepare(self, node: exp.Select) -> None:
        """Refuse clauses without a meaning here, and replace functions that make rows."""
        for name in _REFUSED:
            if node.args.get(name):
                words = {
                    "sort": "SORT BY",
                    "cluster": "CLUSTER BY",
                    "distribute": "DISTRIBUTE BY",
                    "sample": "TABLESAMPLE",
                }
                self.expressions.refuse(exp.Var(this=words.get(name, name.upper())), hint="use ORDER BY")
        node.set("hint", None)
        column_aliases.expand(node, self.expressions)
        _gather_group(node, self.sql, self.expressions)
        _replace_places(node)
        _drop_empty_totals(node)
        _fill_grouping_id(node)
        time_windows.expand(node, self.expressions)
        generators.expand(node, self.expressions)

    def table(self, node: exp.Table) -> None:
        """Refuse parts of a relation without a meaning here, and write a function in FROM."""
        for name in _REFUSED_TABLE:
            if node.args.get(name):
                said = {"sample": "TABLESAMPLE", "version": "VERSION AS OF"}.get(name, name.upper())
                self.expressions.refuse(exp.Var(this=said))
        if isinstance(node.this, exp.Anonymous):
            generators.table_function(node, self.expressions)

    def _pivoted(self, node: exp.Expr) -> str:
        """An aggregate of PIVOT, which must be a plain one."""
        bare = node.this if isinstance(node, exp.Alias) else node
        name = functions.name_of(bare) if isinstance(bare, exp.Anonymous) else ""
        if name not in ("sum", "min", "max", "count", "avg") or len(bare.expressions) != 1:
            self.expressions.refuse(bare, "is not supported in PIVOT", "use sum, min, max, count or avg")
        made = f"{name}({self.expressions.text(bare.expressions[0])})"
        return f'{made} AS "{node.alias}"' if isinstance(node, exp.Alias) else made

    def _pivot_values(self, node: exp.In) -> exp.Expr:
        node.set("this", raw(self.expressions.text(node.this)))
        return node

    def value_name(self, place: int) -> str:
        """The name of a column of VALUES, from place 0."""
        return f"col{place + 1}"

    def _named_values(self, node: exp.Expr) -> exp.Expr:
        """VALUES with names for its columns."""
        if not isinstance(node, exp.Values) or isinstance(node.parent, exp.Insert):
            return node
        rows = [
            row if isinstance(row, exp.Tuple) else exp.Tuple(expressions=[row.unnest()])
            for row in node.expressions
        ]
        node.set("expressions", rows)
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            return node
        names = [exp.to_identifier(self.value_name(n), quoted=True) for n in range(len(rows[0].expressions))]
        table = (
            alias.this
            if alias is not None and alias.this is not None
            else exp.to_identifier("values", quoted=True)
        )
        node.set("alias", exp.TableAlias(this=table.copy(), columns=names))
        return node if node.parent is not None else exp.select("*").from_(node)


def _gather_group(select: exp.Select, sql: str, writer: Expressions) -> None:
    """`GROUP BY a, b WITH CUBE` is `GROUP BY CUBE(a, b)`; before GROUPING SETS columns are only listed."""
    group = select.args.get("group")
    if group is None:
        return
    for name in ("cube", "rollup"):
        for clause in group.args.get(name) or []:
            if not clause.expressions:
                clause.set("expressions", group.expressions)
                group.set("expressions", [])
    sets = group.args.get("grouping_sets") or []
    if not sets or not group.expressions:
        return
    commas = {found[1] for found in _SETS.finditer(sql)}
    if len(commas) != 1 or len(sets) != 1:
        writer.refuse(exp.Var(this="GROUPING"), "SETS stand in several places", "use CUBE, or UNION ALL")
    if commas == {","}:  # each set has the columns in front
        for place, one in enumerate(sets[0].expressions):
            parts = one.expressions if isinstance(one, exp.Tuple) else [one.unnest()]
            listed = [column.copy() for column in (*group.expressions, *parts)]
            sets[0].expressions[place] = exp.Tuple(expressions=listed)
        sets[0].set("expressions", sets[0].expressions)
    group.set("expressions", [])


def _replace_places(select: exp.Select) -> None:
    """The numbers of columns in GROUPING SETS, CUBE and ROLLUP, replaced by the columns."""
    for clause in _set_clauses(select.args.get("group")):
        for number in list(clause.find_all(exp.Literal)):
            direct = isinstance(number.parent, exp.Tuple | exp.Paren | exp.Rollup | exp.Cube)
            if not number.is_int or not (direct or number.parent is clause):
                continue
            place = int(number.name) - 1
            if 0 <= place < len(select.expressions):
                number.replace(select.expressions[place].unalias().copy())


def _set_clauses(group: exp.Group | None) -> list[exp.Expr]:
    """The ROLLUP, CUBE and GROUPING SETS of a GROUP BY."""
    if group is None:
        return []
    listed = [one for one in group.expressions if isinstance(one, exp.Rollup | exp.Cube | exp.GroupingSets)]
    return listed + [
        one for part in ("rollup", "cube", "grouping_sets") for one in group.args.get(part) or []
    ]


def _drop_empty_totals(select: exp.Select) -> None:
    """Over no rows there is no total of ROLLUP, CUBE and GROUPING SETS, but of `GROUPING SETS (())` alone."""
    group = select.args.get("group")
    if not any(clause.find(exp.Column, exp.Literal) for clause in _set_clauses(group)):
        return
    rows = exp.Anonymous(this="count", expressions=[exp.Star()])
    select.having(exp.GT(this=rows, expression=exp.Literal.number(0)), copy=False)


def _fill_grouping_id(select: exp.Select) -> None:
    """`grouping_id()` is that of all columns of GROUP BY."""
    group = select.args.get("group")
    empty = [
        call
        for root in (*select.expressions, select.args.get("having"), select.args.get("order"))
        if root is not None
        for call in root.find_all(exp.Anonymous)
        if str(call.name).lower() == "grouping_id" and not call.expressions
    ]
    if group is None or not empty:
        return
    listed: list[exp.Expr] = list(group.expressions)
    for part in ("rollup", "cube", "grouping_sets"):
        for clause in group.args.get(part) or []:
            listed += [c for e in clause.expressions for c in (e.find_all(exp.Column))]
    columns = [c for e in listed for c in e.find_all(exp.Column)]
    unique = list({c.sql(): c for c in columns}.values())
    for call in empty:
        call.set("expressions", [c.copy() for c in unique])
