"""The names that Spark gives to columns without an alias: the expression, written in its own way."""

from __future__ import annotations

from sqlglot import exp

_SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "AND",
    exp.Or: "OR",
    exp.NullSafeEQ: "<=>",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}


def column_name(node: exp.Expr) -> str:
    """The name of a column.

    >>> from millpond.sql.dialects.spark.syntax import parsed
    >>> (query,) = parsed("select a + 1, upper('x'), count(*), cast(a as string), t.a")
    >>> [column_name(e) for e in query.expressions]
    ['(a + 1)', 'upper(x)', 'count(1)', 'CAST(a AS STRING)', 'a']
    """
    match node:
        case exp.Alias():
            return node.alias
        case exp.Column():
            return node.name
        case exp.Literal():
            return node.name
        case exp.Null():
            return "NULL"
        case exp.Boolean():
            return str(node.this).lower()
        case exp.Identifier():
            return node.name
        case exp.Paren():
            return column_name(node.this)
        case exp.Neg():
            inner = column_name(node.this)
            return f"-{inner}" if isinstance(node.this, exp.Literal) else f"(- {inner})"
        case exp.Not() if isinstance(node.this, exp.Is):
            return f"({column_name(node.this.this)} IS NOT NULL)"
        case exp.Not():
            return f"(NOT {column_name(node.this)})"
        case exp.Is():
            return f"({column_name(node.this)} IS {column_name(node.expression)})"
        case exp.NEQ():
            return f"(NOT ({column_name(node.this)} = {column_name(node.expression)}))"
        case exp.DPipe():
            return f"concat({column_name(node.this)}, {column_name(node.expression)})"
        case exp.TryCast() | exp.Cast():
            word = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
            return f"{word}({column_name(node.this)} AS {node.args['to'].sql('spark')})"
        case exp.Bracket() if len(node.expressions) == 1:
            return f"{column_name(node.this)}[{column_name(node.expressions[0])}]"
        case exp.Dot():
            inner = node.this.unnest()
            is_path = isinstance(inner, exp.Column | exp.Identifier) or (
                isinstance(inner, exp.Dot) and "." not in column_name(inner)
            )
            return node.name if is_path else f"{column_name(inner)}.{node.name}"
        case exp.Anonymous():
            name = str(node.name).lower()
            if name == "from_json" and node.expressions:
                return f"from_json({column_name(node.expressions[0])})"
            if name == "count" and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star):
                return "count(1)"
            return f"{name}({', '.join(column_name(e) for e in node.expressions)})"
        case exp.Distinct():
            return "DISTINCT " + ", ".join(column_name(e) for e in node.expressions)
        case exp.Star():
            return "*"
    if type(node) in _SIGNS:
        return f"({column_name(node.this)} {_SIGNS[type(node)]} {column_name(node.expression)})"
    return node.sql("spark", normalize_functions="lower")
