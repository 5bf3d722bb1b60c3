"""Other dialects: a text is translated to DuckDB's dialect where the meaning is the same, else refused.

sqlglot translates syntax, and accepts a meaning that is only nearly the same.  So each kind of expression
that may be translated is listed here, with its conditions; all others are refused by name.  To support one
more, find out what it means in that dialect, add it to a table below, and record its result in
`tests/sql/test_dialects.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import sqlglot
from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

from millpond.errors import InvalidError
from millpond.sql.binding.function_body import built_in
from millpond.sql.refusal import pointing
from millpond.sql.text.parse import LAX_SPARK, SPARK, SqlFragment, tokens_of
from millpond.sql.text.with_ties import without_ties

# Expressions with the same meaning in every dialect, as sqlglot reads and writes them.
_SAME = frozenset(
    [
        *(
            "Select",
            "From",
            "Join",
            "Where",
            "Group",
            "Having",
            "Qualify",
            "Order",
            "Ordered",
            "Limit",
            "Offset",
        ),
        *(
            "With",
            "CTE",
            "Subquery",
            "Table",
            "TableAlias",
            "Column",
            "Identifier",
            "Star",
            "Boolean",
            "Null",
        ),
        *(
            "Paren",
            "Tuple",
            "Distinct",
            "Union",
            "Except",
            "Intersect",
            "Exists",
            "And",
            "Or",
            "Not",
            "GT",
            "GTE",
        ),
        *(
            "LT",
            "LTE",
            "Is",
            "Between",
            "NullSafeEQ",
            "NullSafeNEQ",
            "Case",
            "If",
            "Coalesce",
            "Nullif",
            "Add",
        ),
        *(
            "Sub",
            "Mul",
            "Neg",
            "Count",
            "Sum",
            "Avg",
            "Min",
            "Max",
            "Upper",
            "Lower",
            "Abs",
            "Concat",
            "DPipe",
        ),
        *("ConcatWs", "Window", "WindowSpec", "RowNumber", "Rank", "DenseRank", "Lag", "Lead", "Filter"),
        *("Update", "Delete", "Schema", "Returning", "DataType", "DataTypeParam", "Interval", "Var"),
        *("Placeholder", "Parameter", "CurrentTimestamp", "CurrentDate", "Rollup", "Cube", "GroupingSets"),
        *("ColumnDef", "Values", "Dot", "CharLength", "Fetch", "LimitOptions"),
    ]
)
# Expressions with the same meaning only in Spark (4, ANSI) and its relatives.
_SPARK = frozenset(["Greatest", "Least", "Round", "Ceil", "Floor", "Struct", "Array", "ArrayAgg"])
_SPARKS = (SPARK, LAX_SPARK, "databricks")
_OUR_CALLS = frozenset(
    {"tumble", "hop", "cumulate", "calendar", "session", "proctime", "now"}
)  # Millpond's, in any dialect

_INTEGERS = (
    "TINYINT",
    "SMALLINT",
    "INT",
    "MEDIUMINT",
    "BIGINT",
    "INT128",
    "UTINYINT",
    "USMALLINT",
    "UINT",
    "UBIGINT",
)
_TEXTS = ("TEXT", "VARCHAR", "CHAR", "NCHAR", "NVARCHAR")
_CAST = (*_INTEGERS, *_TEXTS, "BOOLEAN", "FLOAT", "DOUBLE", "DATE", "DECIMAL", "TIMESTAMP", "TIMESTAMPTZ",
         "TIMESTAMPNTZ", "TIMESTAMPLTZ", "DATETIME", "ARRAY", "MAP", "STRUCT")  # fmt: skip
_LENIENT_CAST = (
    "mysql",
    "sqlite",
    "doris",
    "starrocks",
    "hive",
    "clickhouse",
)  # cast an invalid value to some other value
# DECIMAL without digits, in dialects where that has a fixed meaning
_DECIMAL = {**dict.fromkeys(_SPARKS, (10, 0)), "hive": (10, 0), "mysql": (10, 0), "tsql": (18, 0),
            "presto": (38, 0), "trino": (38, 0), "snowflake": (38, 0)}  # fmt: skip
# The names of the columns of VALUES, by their position from 0.
_VALUES: dict[str, Callable[[int], str]] = {
    **dict.fromkeys((*_SPARKS, "hive"), lambda n: f"col{n + 1}"),
    **dict.fromkeys(
        ("postgres", "redshift", "materialize", "risingwave", "sqlite"), lambda n: f"column{n + 1}"
    ),
    **dict.fromkeys(("presto", "trino", "athena"), lambda n: f"_col{n}"),
    "snowflake": lambda n: f"COLUMN{n + 1}",
    "mysql": lambda n: f"column_{n}",
    "duckdb": lambda n: f"col{n}",
}
_CASELESS = ("mysql", "tsql", "doris", "starrocks")
_CALLED = {"Bracket": "an index in […]", "Div": "/", "IntDiv": "integer division", "Mod": "%", "EQ": "=",
           "NEQ": "<>", "RegexpLike": "RLIKE", "RegexpILike": "~*", "Quantile": "percentile"}  # fmt: skip
_HINT = "write this query in the dialect 'duckdb', whose functions Millpond has"


def values_names(dialect: str, width: int) -> list[str] | None:
    """Return the names of the columns of VALUES, if the dialect defines them."""
    name = _VALUES.get(dialect)
    return None if name is None else [name(n) for n in range(width)]


def translated(sql: str, dialect: str) -> list[str]:
    """Translate the statements of a text to DuckDB's dialect; InvalidError if a meaning would change."""
    found = []
    for tree in sqlglot.parse(sql, read=_strict(dialect)):
        if tree is None:
            continue
        check = _Check(sql, dialect)
        for node in tree.walk():
            check.node(node)
        made = without_ties(_changed(tree, dialect))
        try:
            found.append(str(made.sql("duckdb", unsupported_level=ErrorLevel.RAISE)))
        except UnsupportedError as error:
            why = str(error).split("\n")[0]
            raise InvalidError(f"a part of this query cannot be translated: {why}", hint=_HINT) from error
    return found


def type_text(said: str, dialect: str) -> str:
    """Translate a type of another dialect to DuckDB's."""
    kind = exp.DataType.build(said, dialect=dialect)
    if kind.this == exp.DataType.Type.DECIMAL and not kind.expressions and dialect in _DECIMAL:
        width, scale = _DECIMAL[dialect]
        return f"DECIMAL({width}, {scale})"
    return str(kind.sql("duckdb"))


@lru_cache(maxsize=64)
def _strict(dialect: str) -> Any:
    """Return the dialect with a strict CAST: sqlglot reads Spark's CAST as TRY_CAST."""
    known = sqlglot.Dialect.get_or_raise(dialect)
    read = type("Read", (known.parser_class,), {"STRICT_CAST": True})
    strict = type("Strict", (type(known),), {"Parser": read, "__module__": __name__})
    return strict


class _Check:
    """Refuses expressions that may mean something else in DuckDB."""

    def __init__(self, sql: str, dialect: str) -> None:
        self.sql, self.dialect = sql, dialect
        self.safe = _SAME | _SPARK if dialect in _SPARKS else _SAME

    def node(self, node: Any) -> None:
        name = type(node).__name__
        check: Callable[[exp.Expr], None] | None = getattr(self, f"_{name.lower()}", None)
        if check is not None:
            check(node)
        elif name not in self.safe:
            self.refuse(node, "is not translated")

    def refuse(self, node: Any, why: str, hint: str = _HINT) -> NoReturn:
        what, at = self._named(node)
        raise pointing(f"{what} of the dialect {self.dialect!r} {why}", self.sql, at, hint)

    def _named(self, node: Any) -> tuple[str, tuple[int, int] | None]:
        """Return what the user wrote for a node, and its position."""
        meta = node.meta
        if "start" in meta:
            text = self.sql[meta["start"] : meta["end"] + 1]
            place = (len(self.sql[: meta["start"]].encode()), len(text.encode()))
            return (f"{text.lower()}()" if isinstance(node, exp.Func) else text), place
        if type(node).__name__ in _CALLED:
            inner = next((n for n in node.walk() if "start" in n.meta), None)
            return _CALLED[type(node).__name__], None if inner is None else self._named(inner)[1]
        names = [*(node.sql_names() if isinstance(node, exp.Func) else ()), type(node).__name__]
        words = [*names, *(re.sub(r"(?<!^)(?=[A-Z])", "_", n) for n in names)]
        for word in words:
            found = re.search(rf"\b{re.escape(word)}\b", self.sql, re.IGNORECASE)
            if found is not None:
                return found[0].upper(), (len(self.sql[: found.start()].encode()), len(found[0].encode()))
        inner = next((n for n in node.walk() if "start" in n.meta), None)
        at = None if inner is None else self._named(inner)[1]
        return f"{words[-1].replace('_', ' ').upper()}", at

    # -- conditions ----------------------------------------------------------------------

    def _anonymous(self, node: Any) -> None:
        name = str(node.this).lower()
        if name in built_in() and name not in _OUR_CALLS:  # other names are the user's functions, or unknown
            self.refuse(node, "may be another function than DuckDB's")

    def _alias(self, node: Any) -> None:
        if not isinstance(node.args.get("alias"), exp.Identifier):
            self.refuse(node, "is not translated")

    def _literal(self, node: Any) -> None:
        if self.dialect == "oracle" and node.is_string and not node.name:
            self.refuse(node, "is NULL if it is empty", "write NULL")

    def _eq(self, node: Any) -> None:
        if self.dialect in _CASELESS and (node.left.is_string or node.right.is_string):
            self.refuse(node, "compares texts without regard to case", "compare lower(…) with lower(…)")

    _neq = _in = _eq

    def _insert(self, node: Any) -> None:
        if node.args.get("overwrite"):
            self.refuse(node, "OVERWRITE is not supported", "DELETE FROM the table first")

    def _div(self, node: Any) -> None:
        if self.dialect not in _SPARKS and node.args.get("typed"):
            self.refuse(
                node, "divides integers without a remainder, DuckDB with it", "cast one side to DOUBLE"
            )
        for side in (node.left, node.right):
            if side.is_number and "." in side.sql() and self.dialect in _SPARKS:
                self.refuse(node, "divides decimals as decimals, DuckDB as DOUBLE", "cast one side to DOUBLE")

    def _intdiv(self, node: Any) -> None:
        if self.dialect not in _SPARKS:
            self.refuse(node, "is not translated")

    def _mod(self, node: Any) -> None:
        if self.dialect in ("mysql", "sqlite", "doris", "starrocks", "hive"):
            self.refuse(node, "gives NULL for a division by zero, which is an error here")

    def _cast(self, node: Any) -> None:
        kind = node.args["to"]
        name = kind.this.name if isinstance(kind, exp.DataType) and hasattr(kind.this, "name") else "?"
        if self.dialect in _LENIENT_CAST:
            self.refuse(node, "gives a value where DuckDB gives an error")
        if name not in _CAST:
            self.refuse(node, f"to {kind.sql(self.dialect)} is not translated")
        if name == "DECIMAL" and not kind.expressions and self.dialect not in _DECIMAL:
            self.refuse(
                node, "to DECIMAL needs its digits", "write DECIMAL(38, 9), or the digits that you need"
            )

    def _trycast(self, node: Any) -> None:
        literal = isinstance(node.this, exp.Literal)
        name = node.args["to"].this.name if hasattr(node.args["to"].this, "name") else "?"
        if not literal and name in (*_INTEGERS, *_TEXTS):
            self.refuse(node, "rounds and formats otherwise than DuckDB's")
        self._cast(node)

    def _substring(self, node: Any) -> None:
        start, length = node.args.get("start"), node.args.get("length")
        for given, least in ((start, 1), (length, 0)):
            if given is not None and not (given.is_int and int(given.sql()) >= least):
                self.refuse(
                    node, "counts otherwise than DuckDB's from 0 and from the end", "start at 1 or more"
                )

    def _like(self, node: Any) -> None:
        pattern = node.expression
        if self.dialect in (*_CASELESS, "sqlite"):
            self.refuse(node, "compares texts without regard to case")
        if isinstance(node.parent, exp.Escape):
            return
        if not pattern.is_string or "\\" in pattern.name:
            self.refuse(node, "may have a backslash in its pattern, which escapes there", "add ESCAPE")

    def _escape(self, node: Any) -> None:
        return

    def _length(self, node: Any) -> None:
        if self.dialect not in (*_SPARKS, "presto", "trino", "snowflake", "bigquery"):
            self.refuse(node, "may count bytes", "use char_length")

    def _bracket(self, node: Any) -> None:
        if len(node.expressions) != 1 or not node.expressions[0].is_string:
            self.refuse(
                node, "counts elements from another number, or looks up a key: the text does not say which"
            )

    def _trim(self, node: Any) -> None:
        if node.args.get("expression") is not None or node.args.get("collation"):
            self.refuse(node, "with characters is not translated")

    def _command(self, node: Any) -> None:
        self.refuse(node, "is not translated")


# -- rewriting ----------------------------------------------------------------------------


def _changed(tree: exp.Expr, dialect: str) -> exp.Expr:
    for query in tree.find_all(exp.Select):  # a rewritten column keeps the name that it would have had
        for column in query.expressions if query.args.get("from_") or query.args.get("from") else ():
            if isinstance(column, exp.Cast | exp.Div):
                alias = exp.to_identifier(column.sql(dialect), quoted=True)
                column.replace(exp.Alias(this=column.copy(), alias=alias))
    made = tree.transform(lambda node: _rewritten(node, dialect))
    names = None if not isinstance(made, exp.Values) else _names(made, dialect)
    if names is not None:
        return exp.select("*").from_(_called(made, names))
    return made


def _rewritten(node: exp.Expr, dialect: str) -> exp.Expr:
    if isinstance(node, exp.Values) and not isinstance(node.parent, exp.Insert | None):
        alias = node.args.get("alias")
        if alias is None or not alias.columns:
            names = _names(node, dialect)
            return node if names is None else _called(node, names)
    if isinstance(node, exp.Div) and dialect in _SPARKS:
        return _divided(node)
    if type(node) is exp.Cast:
        return _cast_to(node, dialect)
    return node


def _names(node: exp.Expr, dialect: str) -> list[str] | None:
    rows = node.expressions
    width = len(rows[0].expressions) if rows and isinstance(rows[0], exp.Tuple) else 1
    return values_names(dialect, width)


def _called(node: exp.Expr, names: list[str]) -> exp.Expr:
    """Return VALUES with names for its columns."""
    found = node.copy()
    alias = found.args.get("alias")
    table = (
        alias.this
        if alias is not None and alias.this is not None
        else exp.to_identifier("values", quoted=True)
    )
    columns = [exp.to_identifier(name, quoted=True) for name in names]
    found.set("alias", exp.TableAlias(this=table.copy(), columns=columns))
    return found


def _error(text: str) -> exp.Expr:
    return exp.Anonymous(this="error", expressions=[exp.Literal.string(text)])


def _divided(node: exp.Div) -> exp.Expr:
    """Translate Spark's a / b: division by zero is an error, decimals are refused, all else is DOUBLE."""
    plain = exp.Div(this=node.left.copy(), expression=node.right.copy(), typed=False, safe=False)
    case = exp.Case()
    sides = [side for side in (node.left, node.right) if not side.is_number]
    for side in sides:
        kind = exp.Anonymous(this="typeof", expressions=[side.copy()])
        decimal = exp.Like(this=kind, expression=exp.Literal.string("DECIMAL%"))
        case = case.when(
            decimal, _error("Spark divides decimals as decimals, which is not translated: cast to DOUBLE")
        )
    if not node.right.is_number or float(node.right.sql()) == 0:
        case = case.when(
            exp.EQ(this=node.right.copy(), expression=exp.Literal.number(0)), _error("division by zero")
        )
    return exp.Paren(this=case.else_(plain)) if case.args.get("ifs") else plain


def _cast_to(node: exp.Cast, dialect: str) -> exp.Expr:
    """Add checks to a CAST where dialects differ: fractions to integers and floats to text are errors."""
    kind, value = node.args["to"], node.this
    name = kind.this.name
    if name == "DECIMAL" and not kind.expressions:
        digits = [exp.DataTypeParam(this=exp.Literal.number(n)) for n in _DECIMAL[dialect]]
        return exp.Cast(this=value.copy(), to=exp.DataType(this=kind.this, expressions=digits))
    whole = value.is_int or (value.is_string and re.fullmatch(r"\s*[+-]?\d+\s*", value.name))
    if name in _INTEGERS and not whole:
        exact = exp.Cast(this=value.copy(), to=exp.DataType.build("DECIMAL(38,10)"))
        parts = exp.NEQ(this=exact, expression=node.copy())
        told = _error(
            f"a CAST of a fraction to {name} is not translated from the dialect {dialect}: round it first"
        )
        return exp.Paren(this=exp.Case().when(parts, told).else_(node.copy()))
    if name in _TEXTS and not value.is_string and not value.is_int:
        held = exp.Anonymous(this="typeof", expressions=[value.copy()])
        shown = exp.Anonymous(
            this="regexp_full_match",
            expressions=[
                held,
                exp.Literal.string(
                    r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|VARCHAR|BOOLEAN|DATE|DECIMAL.*|TIMESTAMP"
                ),
            ],
        )
        told = _error(f"a CAST of this type to text is not translated from the dialect {dialect}")
        return exp.Paren(this=exp.Case().when(exp.Not(this=shown), told).else_(node.copy()))
    return node


# -- VALUES in a text that is not translated ------------------------------------------------


def named_values(sql: str, dialect: str) -> str:
    """Name the unnamed columns of VALUES as PostgreSQL does: column1, column2, ….

    >>> named_values("select column1 from (values (1), (2)) v", "postgres")
    'select column1 from (SELECT * FROM (values (1), (2)) AS "values"("column1")) v'
    """
    if dialect != "postgres" or not re.search(r"\bvalues\s*\(", sql, re.IGNORECASE):
        return sql
    fragment = SqlFragment(sql, tokens_of(sql, dialect), dialect)
    edits: list[tuple[int, int, str]] = []
    for n in range(len(fragment)):
        if fragment.word(n) != "VALUES" or fragment.word(n + 1) != "(" or not _is_a_table(fragment, n):
            continue
        first, end = fragment.bracket(n + 1)
        while fragment.word(end) == "," and fragment.word(end + 1) == "(":
            _, end = fragment.bracket(end + 1)
        listed = ", ".join(f'"column{place + 1}"' for place in range(len(first.split())))
        start, stop = fragment.tokens[n].start, fragment.tokens[end - 1].end + 1
        if not edits or start >= edits[-1][1]:
            edits.append((start, stop, f'SELECT * FROM ({sql[start:stop]}) AS "values"({listed})'))
    return fragment.rewritten(edits).text if edits else sql


def _is_a_table(fragment: SqlFragment, place: int) -> bool:
    """Is VALUES a query with unnamed columns?  It is not in INSERT, nor where a column list follows."""
    if place == 0:
        return True
    if fragment.word(place - 1) != "(":
        return False
    _, end = fragment.bracket(place - 1)
    before = fragment.word(place - 2)
    if before == "AS" or before == "MATERIALIZED":
        at = next((n for n in range(place - 2, 0, -1) if fragment.word(n) == "AS"), place - 2)
        return fragment.word(at - 1) != ")"  # WITH c (a, b) AS (VALUES …)
    if before in ("IN", "ANY", "ALL", "SOME", "EXISTS", "ARRAY", "="):
        return False
    at = end + 1 if fragment.word(end) == "AS" else end
    return fragment.word(at + 1) != "("  # FROM (VALUES …) AS v (a, b)
