"""Writes expressions of Spark as DuckDB's SQL.

Law: a kind of expression that is not named here is refused, so nothing passes by accident.
Operators whose meaning differs are calls of `__spark`; see the `.sql` files of this folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NoReturn

from sqlglot import exp

from millpond.kernels.duck import quoted
from millpond.sql.binding.types import text_literal
from millpond.sql.dialects.spark import functions
from millpond.sql.dialects.spark.aggregates import AGGREGATES, SparkAggregate
from millpond.sql.dialects.spark.intervals import interval
from millpond.sql.dialects.spark.types import UnknownType, decimal_digits, duckdb_type, fields, type_name
from millpond.sql.refusal import pointing

_T = exp.DataType.Type
_INFIX = {
    exp.And: "AND",
    exp.Or: "OR",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
}
_OF_STRUCTS = {k: _INFIX[k] for k in (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)}
_MEASURED = {
    exp.Add: '"+"',
    exp.Sub: '"-"',
    exp.Mul: '"*"',
    exp.Mod: '"%"',
}  # the digits of integer literals count
_CALLED = {
    exp.IntDiv: "div",
    exp.BitwiseXor: '"^"',
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
    exp.RegexpLike: "rlike",
    exp.DPipe: "concat",
}
_CASTS = {
    _T.TINYINT: "tinyint",
    _T.SMALLINT: "smallint",
    _T.INT: "int",
    _T.BIGINT: "bigint",
    _T.FLOAT: "float",
    _T.DOUBLE: "double",
    _T.BOOLEAN: "boolean",
    _T.TEXT: "string",
    _T.BINARY: "binary",
    _T.DATE: "date",
    _T.TIMESTAMP: "timestamp",
    _T.TIMESTAMPTZ: "timestamp",
    _T.TIMESTAMPLTZ: "timestamp",
    _T.TIMESTAMPNTZ: "timestamp_ntz",
}
_WORDS = (
    "current_time",
    "localtime",
    "localtimestamp",
    "current_user",
    "session_user",
    "user",
)  # without brackets
_NEVER_FAIL = ("string", "binary")
_FRACTION = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?\s*")
HINT = "write this query in the dialect 'duckdb', whose functions Millpond has"

_TYPE_HINTS = {
    "TIME": "use a TIMESTAMP, or a text",
    "VARIANT": "keep the text, and use get_json_object or from_json",
}


class Expressions:
    """Writes the expressions of one statement; `query` writes the queries inside them."""

    dialect = "spark"
    aggregates: ClassVar[Mapping[str, SparkAggregate]] = AGGREGATES

    def __init__(self, sql: str, query: Callable[[exp.Expr], str]) -> None:
        self.sql = sql
        self.query = query

    def text(self, node: exp.Expr) -> str:
        """The text of an expression."""
        kind = type(node)
        if kind in _OF_STRUCTS and (is_struct(node.this) or is_struct(node.expression)):
            left, right = self.operand(node.this), self.operand(node.expression)
            return f"(__spark.compared({left}, {right}) {_OF_STRUCTS[kind]} 0)"
        if kind in _INFIX:
            left, right = self.beside(node.this, node.expression), self.beside(node.expression, node.this)
            return f"({left} {_INFIX[kind]} {right})"
        if kind in _MEASURED:
            digits = f"{digits_shown(node.this)}, {digits_shown(node.expression)}"
            return (
                f"__spark.{_MEASURED[kind]}({self.term(node.this)}, {self.term(node.expression)}, {digits})"
            )
        if kind in _CALLED:
            write_side = self.text if kind in (exp.DPipe, exp.RegexpLike) else self.term
            left, right = write_side(node.this), write_side(node.expression)
            return f"__spark.{_CALLED[kind]}({left}, {right})"
        write = getattr(self, f"_{kind.__name__.lower()}", None)
        if write is None:
            self.refuse(node)
        return str(write(node))

    def beside(self, node: exp.Expr, other: exp.Expr) -> str:
        """A side of a comparison: DuckDB would round the text '1.51' to the digits of the other side."""
        is_text = isinstance(node, exp.Literal) and node.is_string
        if is_text and _FRACTION.fullmatch(node.name) and not (other.is_string or is_null(other)):
            return f"__spark.beside({self.text(node)}, {self.text(other)})"
        return self.text(node)

    def texts(self, nodes: list[exp.Expr]) -> str:
        return ", ".join(self.text(node) for node in nodes)

    def operand(self, node: exp.Expr) -> str:
        """An argument of an operator: an integer literal is an INT, where DuckDB takes its smallest type."""
        return f"{self.text(node)}::integer" if _small(node) else self.text(node)

    def term(self, node: exp.Expr) -> str:
        """An operand of arithmetic, where NULL is a number."""
        return "NULL::integer" if isinstance(node.unnest(), exp.Null) else self.operand(node)

    def refuse(self, node: exp.Expr, why: str = "is not supported", hint: str = HINT) -> NoReturn:
        name = functions.spoken(node)
        found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.sql, re.IGNORECASE)
        at = None if found is None else (len(self.sql[: found.start()].encode()), len(found[0].encode()))
        called = f"{name}()" if isinstance(node, exp.Anonymous) else name
        raise pointing(f"{called} of the dialect {self.dialect!r} {why}", self.sql, at, hint)

    def quotient(self, left: exp.Expr, right: exp.Expr, *, lenient: bool = False) -> str:
        """a / b: of decimals a decimal, whose digits depend on those of the operands."""
        digits = (digits_shown(left), digits_shown(right))
        given = f"{self.term(left)}, {self.term(right)}, {digits[0]}, {digits[1]}"
        return f"__spark.divided({given}, {'true' if lenient else 'false'})"

    def _div(self, node: exp.Div) -> str:
        return self.quotient(node.this, node.expression)

    # -- values --------------------------------------------------------------------------

    def _literal(self, node: exp.Literal) -> str:
        if node.is_string:
            return text_literal(node.name)
        if not node.is_int and "." in node.name and "e" not in node.name.lower():
            whole, _, part = node.name.partition(".")
            width = max(len((whole + part).lstrip("0")), len(part), 1)
            return f"{node.name}::decimal({width}, {len(part)})" if width <= 38 else self.refuse(node)
        if node.is_int and not -(2**63) <= int(node.name) < 2**63:
            return f"{node.name}::decimal({len(node.name)}, 0)"
        return node.name

    def _rawstring(self, node: exp.Expr) -> str:
        return text_literal(node.name)

    def _hexstring(self, node: exp.Expr) -> str:
        digits = node.name if len(node.name) % 2 == 0 else "0" + node.name
        return f"from_hex({text_literal(digits)})"

    def _null(self, node: exp.Expr) -> str:
        return "NULL"

    def _boolean(self, node: exp.Expr) -> str:
        return "true" if node.this else "false"

    def _interval(self, node: exp.Interval) -> str:
        made = interval(node, self)
        return made if made is not None else self.refuse(node, "of this form is not supported")

    def _placeholder(self, node: exp.Expr) -> str:
        return f"${node.name}" if node.name else "?"

    def _parameter(self, node: exp.Expr) -> str:
        return f"${node.name}"

    # -- names ---------------------------------------------------------------------------

    def _identifier(self, node: exp.Expr) -> str:
        return quoted(node.name)

    def _column(self, node: exp.Column) -> str:
        if isinstance(node.this, exp.Star):
            relation = ".".join(quoted(p.name) for p in node.parts[:-1])
            return f"{relation}.{self._star(node.this)}"
        if len(node.parts) == 1 and not node.this.args.get("quoted") and node.name.lower() in _WORDS:
            return self.call(node.name.lower(), [], exp.Anonymous(this=node.name))
        return ".".join(quoted(part.name) for part in node.parts)

    def _dot(self, node: exp.Dot) -> str:
        if isinstance(node.expression, exp.Star):
            if dropped_of(node.expression):
                self.refuse(exp.Var(this="EXCEPT"), "is not supported behind a struct", "name the fields")
            return f"unnest({self.text(node.this)})"
        if not isinstance(node.expression, exp.Identifier):
            self.refuse(node.expression)
        return f"({self.text(node.this)}).{quoted(node.expression.name)}"

    def _star(self, node: exp.Star) -> str:
        if node.args.get("replace") or node.args.get("rename"):
            self.refuse(node)
        dropped = dropped_of(node)
        if any(isinstance(c, exp.Dot) or (isinstance(c, exp.Column) and c.table) for c in dropped):
            self.refuse(exp.Var(this="EXCEPT"), "of a field of a struct is not supported", "name the columns")
        return f"* EXCLUDE ({', '.join(quoted(c.name) for c in dropped)})" if dropped else "*"

    # -- conditions ----------------------------------------------------------------------

    def _paren(self, node: exp.Expr) -> str:
        return f"({self.text(node.this)})"

    def _not(self, node: exp.Expr) -> str:
        return f"(NOT {self.text(node.this)})"

    def _neg(self, node: exp.Expr) -> str:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            number = node.this.name
            if number == "9223372036854775808":
                return "(-9223372036854775808)::bigint"
            return f"(-{number})"
        return f'__spark."negative"({self.text(node.this)})'

    def _bitwisenot(self, node: exp.Expr) -> str:
        return f"(~{self.operand(node.this)})"

    def _is(self, node: exp.Expr) -> str:
        sign = "IS NOT" if node.args.get("negate") else "IS"
        return f"({self.text(node.this)} {sign} {self.text(node.expression)})"

    def _between(self, node: exp.Between) -> str:
        low, high = (self.beside(node.args[bound], node.this) for bound in ("low", "high"))
        return f"({self.text(node.this)} BETWEEN {low} AND {high})"

    def _in(self, node: exp.In) -> str:
        query = node.args.get("query")
        if query is not None:
            inner = query.this if isinstance(query, exp.Subquery) else query
            return f"({self.text(node.this)} IN ({self.query(inner)}))"
        if not node.expressions:
            self.refuse(node)
        listed = ", ".join(self.beside(one, node.this) for one in node.expressions)
        return f"({self.text(node.this)} IN ({listed}))"

    def _exists(self, node: exp.Exists) -> str:
        inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        return f"EXISTS ({self.query(inner)})"

    def _subquery(self, node: exp.Subquery) -> str:
        return f"({self.query(node.this)})"

    def _tuple(self, node: exp.Expr) -> str:
        return f"({self.texts(node.expressions)})"

    def _case(self, node: exp.Case) -> str:
        of = f" {self.text(node.this)}" if node.this is not None else ""
        checks = "".join(
            f" WHEN {self.text(i.this)} THEN {self.text(i.args['true'])}" for i in node.args["ifs"]
        )
        default = node.args.get("default")
        return f"CASE{of}{checks}{'' if default is None else f' ELSE {self.text(default)}'} END"

    def _if(self, node: exp.If) -> str:
        false = node.args.get("false")
        other = "" if false is None else f" ELSE {self.text(false)}"
        return f"CASE WHEN {self.text(node.this)} THEN {self.text(node.args['true'])}{other} END"

    def _like(self, node: exp.Expr, escape: str = "\\", word: str = "LIKE") -> str:
        value, pattern = self.text(node.this), node.expression
        if isinstance(pattern, exp.Anonymous) and functions.name_of(pattern) in ("any", "some", "all"):
            self.refuse(pattern, "is not supported behind LIKE", "use LIKE ANY or LIKE ALL")
        if isinstance(pattern, exp.Any | exp.All):
            listed = (
                pattern.this.expressions if isinstance(pattern.this, exp.Tuple) else [pattern.this.unnest()]
            )
            glue = " OR " if isinstance(pattern, exp.Any) else " AND "
            sign = "NOT " if node.args.get("negate") else ""  # NOT LIKE ANY: one of them does not fit
            return f"({glue.join(sign + self._one_like(value, p, escape, word) for p in listed)})"
        if node.args.get("negate"):
            return f"(NOT {self._one_like(value, pattern, escape, word)})"
        return self._one_like(value, pattern, escape, word)

    def _one_like(self, value: str, pattern: exp.Expr, escape: str, word: str) -> str:
        like = f"{word} {self._pattern(pattern, escape)} ESCAPE {text_literal(escape)}"
        return f"(__spark.cast_string({value}) {like})"

    def _pattern(self, pattern: exp.Expr, escape: str) -> str:
        """A pattern of LIKE: Spark refuses an escape before other signs than % and _."""
        if isinstance(pattern, exp.Literal | exp.RawString):
            rest = re.sub(re.escape(escape) + "[%_" + re.escape(escape) + "]", "", pattern.name)
            if escape in rest:
                self.refuse(
                    exp.Var(this="LIKE"), f"allows {escape!r} only before %, _ and itself", "add ESCAPE"
                )
            return self.text(pattern)
        return f"__spark.like_pattern({self.text(pattern)}, {text_literal(escape)})"

    def _ilike(self, node: exp.Expr) -> str:
        return self._like(node, word="ILIKE")

    def _escape(self, node: exp.Escape) -> str:
        if not isinstance(node.this, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
            self.refuse(node)
        word = "LIKE" if isinstance(node.this, exp.Like) else "ILIKE"
        return self._like(node.this, node.expression.name, word)

    # -- casts ---------------------------------------------------------------------------

    def _cast(self, node: exp.Cast) -> str:
        return self.cast(self.operand(node.this), node.args["to"], node, lenient=False)

    def _trycast(self, node: exp.Cast) -> str:
        return self.cast(self.operand(node.this), node.args["to"], node, lenient=True)

    def cast(self, value: str, to: exp.Expr, node: exp.Expr, *, lenient: bool, depth: int = 0) -> str:
        """A value cast to a type; elements and fields are cast one by one."""
        try:
            kind = duckdb_type(to)
            assert isinstance(to, exp.DataType)
            if to.this == _T.DECIMAL:
                width, scale = decimal_digits(to)
                tried = self.cast_prefix("decimal", lenient)
                word = "TRY_CAST" if tried else "CAST"
                return f"{word}(__spark.{tried}decimal_source({value}) AS DECIMAL({width}, {scale}))"
            if to.this in _CASTS:
                name = _CASTS[to.this]
                prefix = "" if name in _NEVER_FAIL else self.cast_prefix(name, lenient)
                return f"__spark.{prefix}cast_{name}({value})"
            each = f"e{depth}"
            if to.this == _T.ARRAY:
                inner = self.cast(each, to.expressions[0], node, lenient=lenient, depth=depth + 1)
                return f"list_transform({value}, lambda {each}: {inner})::{kind}"
            if to.this == _T.STRUCT:
                parts = [
                    f"{quoted(name)} := "
                    + self.cast(
                        f"struct_extract_at({value}, {n})", part, node, lenient=lenient, depth=depth + 1
                    )
                    for n, (name, part) in enumerate(fields(to), 1)
                ]
                return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(parts)}) END"
            if to.this == _T.MAP:
                key = self.cast(f"{each}.key", to.expressions[0], node, lenient=lenient, depth=depth + 1)
                held = self.cast(f"{each}.value", to.expressions[1], node, lenient=lenient, depth=depth + 1)
                pairs = f"lambda {each}: struct_pack(k := {key}, v := {held})"
                return f"map_from_entries(list_transform(map_entries({value}), {pairs}))"
        except UnknownType as error:
            self.refuse(node, f"to {error} is not supported", _TYPE_HINTS.get(str(error), HINT))
        self.refuse(node, f"to {type_name(to)} is not supported")

    def cast_prefix(self, kind: str, lenient: bool) -> str:
        """Which of the functions that cast to a type is called."""
        return "try_" if lenient else ""

    # -- calls ---------------------------------------------------------------------------

    def _bracket(self, node: exp.Bracket) -> str:
        if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
            self.refuse(node)
        return f'__spark."[]"({self.text(node.this)}, {self.text(node.expressions[0])})'

    def _anonymous(self, node: exp.Anonymous) -> str:
        return self.call(functions.name_of(node), node.expressions, node)

    def call(self, name: str, given: Sequence[exp.Expr], node: exp.Expr) -> str:
        """The text of the call of a function or an aggregate."""
        return functions.call(name, given, node, self)

    def _array(self, node: exp.Expr) -> str:
        return self.call("array", node.expressions, node)

    def _transform(self, node: exp.Expr) -> str:
        return self.call("transform", [node.this, node.expression], node)

    def _lambda(self, node: exp.Lambda) -> str:
        names = [quoted(one.name) for one in node.expressions]
        return f"lambda {', '.join(names)}: {self.text(node.this)}"

    def _extract(self, node: exp.Extract) -> str:
        part = exp.Literal.string(node.this.name)
        return self.call("date_part", [part, node.expression], node)

    def _substring(self, node: exp.Substring) -> str:
        given = [node.this, node.args.get("start"), node.args.get("length")]
        return self.call("substring", [g for g in given if g is not None], node)

    def _strposition(self, node: exp.Expr) -> str:
        given = [node.args["substr"], node.this, node.args.get("position")]
        return self.call("position", [g for g in given if g is not None], node)

    def _overlay(self, node: exp.Overlay) -> str:
        given = [
            node.this,
            node.expression,
            node.args.get("from_") or node.args.get("from"),
            node.args.get("for_"),
        ]
        return self.call("overlay", [g for g in given if g is not None], node)

    def _trim(self, node: exp.Trim) -> str:
        side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
        parts = [part for part in (node.this, node.expression) if part is not None]
        return f"{side}({', '.join(f'__spark.cast_string({self.text(part)})' for part in parts)})"

    def _any(self, node: exp.Any) -> str:
        return self.call("any", [node.this.unnest()], node)

    def _currentdate(self, node: exp.Expr) -> str:
        return self.call("current_date", [], node)

    def _currenttimestamp(self, node: exp.Expr) -> str:
        return self.call("current_timestamp", [], node)

    def _filter(self, node: exp.Filter) -> str:
        where = node.expression.this if isinstance(node.expression, exp.Where) else node.expression
        return functions.aggregate(node.this, self, where=where) or self.refuse(node)

    def _withingroup(self, node: exp.WithinGroup) -> str:
        return functions.aggregate(node.this, self, order=node.expression) or self.refuse(node)

    def _ignorenulls(self, node: exp.IgnoreNulls) -> str:
        return functions.aggregate(node.this, self, ignore_nulls=True) or self.refuse(node)

    def _respectnulls(self, node: exp.Expr) -> str:
        return self.text(node.this)

    def _window(self, node: exp.Window) -> str:
        return functions.windowed(node, self)

    def _alias(self, node: exp.Alias) -> str:
        return f"{self.text(node.this)} AS {quoted(node.alias)}"

    def _distinct(self, node: exp.Distinct) -> str:
        return f"DISTINCT {self.texts(node.expressions)}"


def is_null(node: exp.Expr) -> bool:
    return isinstance(node, exp.Null)


def dropped_of(star: exp.Star) -> list[exp.Expr]:
    """What `* EXCEPT (…)` leaves out."""
    return star.args.get("except_") or star.args.get("except") or []


def digits_shown(node: exp.Expr) -> int:
    """The digits of an integer literal; 0 for all else."""
    bare = node.this if isinstance(node, exp.Neg) else node
    return len(bare.name.lstrip("0")) or 1 if isinstance(bare, exp.Literal) and bare.is_int else 0


def is_struct(node: exp.Expr) -> bool:
    """Is this the constructor of a struct?  Its names do not count in comparisons."""
    bare = node.unnest()
    return isinstance(bare, exp.Anonymous) and functions.name_of(bare) in ("struct", "named_struct")


def _small(node: exp.Expr) -> bool:
    if isinstance(node, exp.Neg):
        node = node.this
    return isinstance(node, exp.Literal) and node.is_int and int(node.name) < 2**31
