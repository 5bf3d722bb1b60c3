"""`from_json`, `to_json` and their relatives: the schema is a constant, options are times' patterns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from millpond.sql.binding.types import text_literal
from millpond.sql.dialects.spark.calls import Given, handler
from millpond.sql.dialects.spark.syntax import RawSpark
from millpond.sql.dialects.spark.types import UnknownType, duckdb_type

if TYPE_CHECKING:
    from millpond.sql.dialects.spark.expressions import Expressions

_NESTED = (exp.DataType.Type.STRUCT, exp.DataType.Type.ARRAY, exp.DataType.Type.MAP)
_READ_BY_CAST = (
    *(exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ),
    *(exp.DataType.Type.BINARY, exp.DataType.Type.VARBINARY),
)


def schema_of(text: str) -> exp.DataType | None:
    """The type that a schema says: `a INT, b STRING`, or a type; None if it cannot be read."""
    for one in (text, f"STRUCT<{text}>"):
        try:
            made = exp.DataType.build(one, dialect=RawSpark)
        except sqlglot.ParseError:
            continue
        if isinstance(made, exp.DataType) and made.this in _NESTED:
            return made
    return None


def patterns(given: Given, writer: Expressions, call: str) -> str | None:
    """The patterns of dates and times in the options; None if they are no constants."""
    found = _options(given, writer, call, {"dateformat": "", "timestampformat": "", "mode": "permissive"})
    if found is None:
        return None
    return f"{text_literal(found['dateformat'])}, {text_literal(found['timestampformat'])}"


def _options(given: Given, writer: Expressions, call: str, known: dict[str, str]) -> dict[str, str] | None:
    """The options of a call, `map('name', 'value', …)`; one that is not known is refused."""
    found = dict(known)
    for options in given:
        if not isinstance(options, exp.Anonymous) or str(options.name).lower() != "map":
            return None
        names, values = options.expressions[::2], options.expressions[1::2]
        for name, value in zip(names, values, strict=False):
            if not isinstance(name, exp.Literal) or not isinstance(value, exp.Literal):
                return None
            if name.name.lower() not in found:
                writer.refuse(exp.Var(this=call), f"does not know the option {name.name!r} here")
            found[name.name.lower()] = value.name
    if found.get("mode", "permissive").lower() != "permissive":
        writer.refuse(exp.Var(this=call), f"does not know the mode {found['mode']!r} here")
    return found


@handler("from_json")
def _from_json(given: Given, writer: Expressions) -> str | None:
    if len(given) not in (2, 3) or not isinstance(given[1], exp.Literal) or not given[1].is_string:
        return None
    kind = schema_of(given[1].name)
    options = patterns(given[2:], writer, "from_json")
    if kind is None or options is None:
        return None
    try:
        text = duckdb_type(kind)
    except UnknownType as error:
        writer.refuse(exp.Var(this="from_json"), f"to {error} is not supported")
    made = f'"spark.from_json.1"({writer.text(given[0])}, {text_literal(text)}, {options})'
    return f"from_json({made}, {text_literal(json.dumps(duckdb_type(_as_texts(kind))))})::{text}"


def _as_texts(kind: exp.DataType) -> exp.DataType:
    """A type with texts in place of what DuckDB's from_json cannot read."""

    def changed(node: exp.Expr) -> exp.Expr:
        is_read_by_cast = isinstance(node, exp.DataType) and node.this in _READ_BY_CAST
        return exp.DataType(this=exp.DataType.Type.TEXT) if is_read_by_cast else node

    made = kind.transform(changed)
    assert isinstance(made, exp.DataType)
    return made


@handler("to_json")
def _to_json(given: Given, writer: Expressions) -> str | None:
    options = patterns(given[1:], writer, "to_json")
    if len(given) not in (1, 2) or options is None:
        return None
    return f"__spark.to_json_with({writer.text(given[0])}, {options})"


_CSV = {"dateformat": "", "timestampformat": "", "sep": "", "delimiter": "", "mode": "permissive"}


def _csv_options(given: Given, writer: Expressions, call: str) -> str | None:
    """The separator and the patterns."""
    found = _options(given, writer, call, _CSV)
    if found is None:
        return None
    between = found["sep"] or found["delimiter"] or ","
    return ", ".join(map(text_literal, (between, found["dateformat"], found["timestampformat"])))


@handler("to_csv")
def _to_csv(given: Given, writer: Expressions) -> str | None:
    options = _csv_options(given[1:], writer, "to_csv")
    if len(given) not in (1, 2) or options is None:
        return None
    return f"__spark.to_csv_with({writer.text(given[0])}, {options})"


@handler("from_csv")
def _from_csv(given: Given, writer: Expressions) -> str | None:
    if len(given) not in (2, 3) or not isinstance(given[1], exp.Literal) or not given[1].is_string:
        return None
    kind = schema_of(given[1].name)
    options = _csv_options(given[2:], writer, "from_csv")
    if kind is None or options is None or kind.this != exp.DataType.Type.STRUCT:
        return None
    try:
        text = duckdb_type(kind)
    except UnknownType as error:
        writer.refuse(exp.Var(this="from_csv"), f"to {error} is not supported")
    made = f'"spark.from_csv.1"({writer.text(given[0])}, {text_literal(text)}, {options})'
    return f"from_json({made}, {text_literal(json.dumps(duckdb_type(_as_texts(kind))))})::{text}"


@handler("schema_of_json")
def _schema_of_json(given: Given, writer: Expressions) -> str | None:
    return f'"spark.schema_of_json.1"({writer.text(given[0])})' if len(given) == 1 else None


@handler("schema_of_csv")
def _schema_of_csv(given: Given, writer: Expressions) -> str | None:
    options = _options(given[1:], writer, "schema_of_csv", {"sep": "", "delimiter": ""})
    if len(given) not in (1, 2) or options is None:
        return None
    between = text_literal(options["sep"] or options["delimiter"] or ",")
    return f'"spark.schema_of_csv.1"({writer.text(given[0])}, {between})'
