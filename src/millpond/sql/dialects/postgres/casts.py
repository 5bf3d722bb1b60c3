"""Casts and literals: what PostgreSQL's types and values are in DuckDB's.

Law: a literal with a point or an exponent is a numeric, exact; one with more digits than a DECIMAL has is
refused, never rounded.
"""

from __future__ import annotations

import re
from decimal import Decimal

from millpond.errors import InvalidError
from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.interval_casts import in_fields
from millpond.sql.dialects.postgres.time_casts import read_literal, reader_of
from millpond.sql.dialects.postgres.tree_parts import become, called, expression
from millpond.sql.refusal import pointing

CATALOG = "__pg"
_PRECISE = re.compile(rb"timestamp\s*\(\s*(\d)\s*\)", re.IGNORECASE)
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")
_DECIMAL = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
DIGITS = 38
_TRUTH = re.compile(r"\s*(?:t|tr|tru|true|y|ye|yes|on|1|f|fa|fal|fals|false|n|no|of|off|0)\s*", re.IGNORECASE)
# What texts of a type look like, and what PostgreSQL calls it.
_READABLE = {
    "int2": (_WHOLE, "smallint"), "int4": (_WHOLE, "integer"), "int8": (_WHOLE, "bigint"),
    "bool": (_TRUTH, "boolean"),
    "as_numeric": (re.compile(rf"{_DECIMAL.pattern}|\s*(?:nan|[-+]?inf(?:inity)?)\s*", re.I), "numeric"),
}  # fmt: skip
# The macro that casts to a type, by DuckDB's name of the type.
_TO = {
    "smallint": "int2", "int2": "int2", "integer": "int4", "int": "int4", "int4": "int4",
    "bigint": "int8", "int8": "int8", "boolean": "bool", "bool": "bool", "text": "text_of",
    "varchar": "text_of", "decimal": "as_numeric", "numeric": "as_numeric",
}  # fmt: skip
# Types that are called like functions.
CALLED_TYPES = frozenset(
    [
        *("int2", "int4", "int8", "float4", "float8", "bool", "text", "varchar", "bpchar", "name", "bytea"),
        *("timestamptz", "timetz", "json", "jsonb", "uuid"),
    ]
)
_GIVE_TIMES = frozenset(
    [
        *("now", "proctime", "current_timestamp", "transaction_timestamp", "timezone", "date_trunc"),
        *(
            "to_timestamp",
            "make_date",
            "make_timestamp",
            "make_timestamptz",
            "generate_series",
            "time_bucket",
        ),
    ]
)
_INTEGERS = ("int2", "int4", "int8")
_OWN = {"pg_catalog"}


def plain_numeric(text: str) -> str:
    """The digits of a numeric literal without an exponent.

    >>> plain_numeric("1e3"), plain_numeric("1.50"), plain_numeric("2.5e-3")
    ('1000.', '1.50', '0.0025')
    """
    value = Decimal(text.replace("_", ""))
    shown = f"{value:f}"
    if len(shown.strip("-").replace(".", "").lstrip("0")) > DIGITS or len(shown.partition(".")[2]) > DIGITS:
        raise InvalidError(
            f"a numeric has at most {DIGITS} digits",
            detail=f"this one is {text}",
            hint="write it as a float: CAST('…' AS double precision)",
        )
    return shown if "." in shown else f"{shown}."


def rewrite_literal(node: Tree) -> bool:
    """Write a numeric literal so that DuckDB takes it for a DECIMAL."""
    literal = node["literal"]
    text = str(literal["text"])
    if literal["kind"] == "INTEGER" and len(text.strip("-+")) > DIGITS:
        plain_numeric(text)
    if literal["kind"] != "NUMERIC":
        return False
    plain = plain_numeric(text)
    if "e" not in text.lower():
        return False
    literal["text"] = plain
    return True


def rewrite_float(node: Tree, sql: bytes) -> bool:
    """Write `float`, which has 53 bits here and 24 in DuckDB, and `real` so that both mean what they mean."""
    if node["qualified_name"]["path"] != ["FLOAT"]:
        return False
    at = int(node["query_location"])
    bits = int(node["children"][0]["literal"]["text"]) if node["children"] else 53
    wide = sql[at : at + 5].lower() == b"float" and bits > 24
    name = "float8" if wide else "float4"
    node.update(type_name=name, children=[])
    node["qualified_name"]["path"] = [name]
    return True


def rewrite_cast(node: Tree, sql: bytes) -> bool:
    """Replace a cast by a call of the macro that reads or writes the value as PostgreSQL does."""
    kind, child = node["type_expr"], node["child"]
    path = kind.get("qualified_name", {}).get("path") or [""]
    if node["try_cast"] or (len(path) > 1 and path[0].lower() not in _OWN):
        return False
    name = str(path[-1]).lower()
    literal = child.get("literal") or {}
    to, sized = _TO.get(name), kind["children"]
    reader = reader_of(name)
    if reader is not None:
        return _time(node, name, reader)
    if name in ("blob", "bytea") and child.get("class") != "CONSTANT":
        _call(node, "bytea_of", [child])
        return True
    if name.startswith("timestamp_") and (digits := _PRECISE.match(sql, int(kind["query_location"]))):
        if literal.get("kind") == "STRING":
            read_literal(node, "timestamp")
        _call(node, "timestamp_of", [node["child"], _integer(int(digits[1]))])
        return True
    if name == "interval":
        return in_fields(node, sql)
    if name == "name" and not sized:  # the type of names in the catalog: a text of at most 63 bytes
        _call(node, "name", [child])
        return True
    if to is None:
        return False
    if child.get("class") == "PARAMETER" and (to != "as_numeric" or sized):
        return False  # the type of the value is known, and a key is looked up by it
    if to == "text_of" and (sized or name == "varchar"):
        return _sized(node, sql, sized)
    if to == "as_numeric" and sized:
        if literal or (child.get("class") == "FUNCTION" and child["qualified_name"]["path"][0] == CATALOG):
            return False  # it was rewritten before
        node["child"] = called("exact", child)
        return True
    if literal:
        _refuse_unreadable(to, child, sql)
        done = _literal(node, to, literal)
        if done is not None:
            return done
    if to in _INTEGERS and _is_arithmetic(child):
        return False
    _call(node, to, [child])
    return True


def _refuse_unreadable(to: str, child: Tree, sql: bytes) -> None:
    """Refuse a text that is no value of the type: PostgreSQL reads literals when it parses a statement."""
    literal = child["literal"]
    text = str(literal.get("text", ""))
    pattern, shown = _READABLE.get(to, (None, ""))
    if literal["kind"] != "STRING" or pattern is None or pattern.fullmatch(text):
        return
    at = (int(child["query_location"]), len(text.encode()) + 2)
    raise pointing(f'invalid input syntax for type {shown}: "{text}"', sql.decode(), at)


def called_as_type(node: Tree) -> bool:
    """Make a call of the name of a type, `float8(x)`, the cast that it is in PostgreSQL."""
    if node.get("class") != "FUNCTION" or len(node["arguments"]) != 1 or node["order_bys"]["orders"]:
        return False
    name = node["function_name"].lower()
    if name not in CALLED_TYPES or len(node["qualified_name"]["path"]) != 1:
        return False
    cast = expression(f"CAST(x AS {name})")
    cast["child"] = node["arguments"][0]["expression"]
    become(node, cast)
    return True


def _is_arithmetic(node: Tree) -> bool:
    """Is this surely not a text, so that a plain cast has PostgreSQL's meaning?

    DuckDB cannot bind a macro with typed parameters over the outer columns of a LATERAL query.
    """
    return node.get("class") == "FUNCTION" and node["function_name"] in ("+", "-", "*", "/", "%")


def _literal(node: Tree, to: str, literal: Tree) -> bool | None:
    """Casts of literals that need no call; None if they do."""
    kind, text = literal["kind"], str(literal["text"])
    if kind == "NULL_LITERAL" or (to in _INTEGERS and kind in ("INTEGER", "NUMERIC")):
        return False if to != "as_numeric" else None
    if kind == "STRING":
        if to == "text_of" or (to in _INTEGERS and _WHOLE.fullmatch(text)):
            return False
        if to == "as_numeric" and _DECIMAL.fullmatch(text):
            literal.update(kind="NUMERIC", text=plain_numeric(text.strip().lstrip("+")))
            _become(node, node["child"])
            return True
    if to == "as_numeric" and kind in ("INTEGER", "NUMERIC"):
        literal.update(kind="NUMERIC", text=plain_numeric(text))
        _become(node, node["child"])
        return True
    return None


def _sized(node: Tree, sql: bytes, sized: list[Tree]) -> bool:
    """varchar(n) cuts; char(n) also has no spaces at its end, which count nowhere."""
    at = int(node["type_expr"]["query_location"])
    written = sql[at : at + 9].lower() if at < len(sql) else b""
    fixed = (
        written.startswith((b"char", b"bpchar", b"nchar"))
        and b"character varying" not in sql[at : at + 24].lower()
    )
    literal = node["child"].get("literal") or {}
    if not sized and not fixed:
        if literal.get("kind") == "STRING":
            return False
        _call(node, "text_of", [node["child"]])
        return True
    size = sized[0] if sized else _integer(1)
    if not sized and written.startswith(b"bpchar"):
        _call(node, "text_of", [node["child"]])
        return True
    _call(node, "bpchar" if fixed else "varchar", [node["child"], size])
    return True


_NOWHERE: Tree = {
    "class": "CONSTANT",
    "type": "VALUE_CONSTANT",
    "alias": "",
    "query_location": (1 << 64) - 1,
    "query_location_length": 0,
}


def _time(node: Tree, name: str, reader: str) -> bool:
    """Read a text as a date or time; what surely is no text keeps its plain cast."""
    child = node["child"]
    kind = (child.get("literal") or {}).get("kind")
    if kind == "STRING":
        return read_literal(node, name)
    if kind is not None or child.get("class") == "PARAMETER" or _is_arithmetic(child):
        return False
    if child.get("class") == "CAST" and not _casts_to_text(child):
        return False
    if child.get("class") == "FUNCTION" and child["function_name"].lower() in _GIVE_TIMES:
        return False
    _call(node, reader, [child])
    return True


def _casts_to_text(node: Tree) -> bool:
    return str(node["type_expr"].get("type_name", "")).lower() in ("varchar", "text", "bpchar", "char")


def _integer(value: int) -> Tree:
    return {**_NOWHERE, "literal": {"kind": "INTEGER", "text": str(value)}}


def _become(node: Tree, other: Tree) -> None:
    alias = node["alias"]
    node.clear()
    node.update(other, alias=alias)


def _call(node: Tree, name: str, arguments: list[Tree]) -> None:
    kept = {key: node[key] for key in ("alias", "query_location", "query_location_length")}
    node.clear()
    node.update(kept)
    node.update(
        {
            "class": "FUNCTION",
            "type": "FUNCTION",
            "function_name": name,
            "schema": "main",
            "filter": None,
            "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
            "distinct": False,
            "is_operator": False,
            "export_state": False,
            "catalog": CATALOG,
            "arguments": [{"name": "", "expression": one} for one in arguments],
            "qualified_name": {"path": [CATALOG, "main", name]},
        }
    )
