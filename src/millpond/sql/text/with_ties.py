"""Rewrites FETCH FIRST n ROWS WITH TIES, which DuckDB cannot parse, to a condition on ranks.

The rows whose rank by ORDER BY is at most n are the first n rows and all ties of the last one.  Lowering
turns such a condition into a maintained top-N (`passes/bound_ranks.py`).
"""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import InvalidError


def without_ties(tree: exp.Expr) -> exp.Expr:
    """Replace each FETCH … WITH TIES in a query.

    >>> import sqlglot
    >>> tree = sqlglot.parse_one("select a from t order by b fetch first 2 rows with ties", read="postgres")
    >>> without_ties(tree).sql("duckdb")
    'SELECT a FROM t QUALIFY RANK() OVER (ORDER BY b) <= 2'
    """
    for query in list(tree.find_all(exp.Query)):
        fetch = query.args.get("limit")
        if not isinstance(fetch, exp.Fetch):
            continue
        options = fetch.args.get("limit_options")
        if options is not None and options.args.get("percent"):
            raise InvalidError("FETCH … PERCENT is not supported", hint="say a number of rows")
        if options is None or not options.args.get("with_ties"):
            continue
        made = _ranked(query, fetch)
        if query is tree:
            tree = made
        else:
            query.replace(made)
    return tree


def _ranked(query: exp.Query, fetch: exp.Fetch) -> exp.Expr:
    order = query.args.get("order")
    if order is None:
        raise InvalidError("WITH TIES needs ORDER BY", hint="say by what the rows are equal")
    count, offset = fetch.args.get("count") or exp.Literal.number(1), query.args.get("offset")
    found = query.copy()
    for clause in ("order", "limit", "offset"):
        found.set(clause, None)
    inside = isinstance(found, exp.Select) and not any(found.args.get(c) for c in ("distinct", "qualify"))
    keys = [_meant(key.copy(), found, inside) for key in order.expressions]
    if not inside:  # ORDER BY can only name output columns here, and these have the same names outside
        found = exp.select("*").from_(exp.Subquery(this=found, alias=exp.to_identifier("fetched")))
    skipped = None if offset is None else offset.expression
    asked: exp.Expr = exp.LTE(
        this=_windowed(exp.Anonymous(this="RANK"), keys), expression=_sum(count, skipped)
    )
    if skipped is not None:
        asked = exp.and_(asked, exp.GT(this=_windowed(exp.RowNumber(), keys), expression=skipped.copy()))
    found.set("qualify", exp.Qualify(this=asked))
    return found


def _sum(count: exp.Expr, skipped: exp.Expr | None) -> exp.Expr:
    if skipped is None:
        return count.copy()
    if isinstance(count, exp.Literal) and isinstance(skipped, exp.Literal):
        return exp.Literal.number(int(count.this) + int(skipped.this))
    return exp.Add(this=exp.paren(count.copy()), expression=exp.paren(skipped.copy()))


def _meant(key: exp.Expr, query: exp.Query, inside: bool) -> exp.Expr:
    """Resolve ORDER BY 2, or by an output name, to that column; in a window it would mean something else."""
    said = key.this
    columns = query.selects
    if isinstance(said, exp.Literal) and not said.is_string and 0 < int(said.this) <= len(columns):
        column = columns[int(said.this) - 1]
    elif inside and isinstance(said, exp.Column) and not said.table:
        given = [c for c in columns if isinstance(c, exp.Alias) and c.alias.lower() == said.name.lower()]
        column = given[0] if given else said
    else:
        return key
    key.set("this", column.unalias().copy() if inside else exp.column(column.alias_or_name, quoted=True))
    return key


def _windowed(call: exp.Expr, keys: list[exp.Expr]) -> exp.Window:
    return exp.Window(this=call, order=exp.Order(expressions=[key.copy() for key in keys]))
