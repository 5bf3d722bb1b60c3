"""Flink's syntax as sqlglot parses it: Spark's, with Flink's quotes, types and two forms of calls.

Functions are left as they were written (`spark.syntax`).  `FLOOR(ts TO DAY)` becomes a call of `floor_to`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark

from millpond.sql.dialects.spark.syntax import RawSpark

_TOKENS = sqlglot.Dialect.get_or_raise("spark").tokenizer_class
_PARSER = RawSpark.Parser


class _FlinkTokenizer(_TOKENS):  # type: ignore[misc, valid-type]
    QUOTES: ClassVar[list[str]] = ["'"]
    IDENTIFIERS: ClassVar[list[str]] = ["`"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    KEYWORDS: ClassVar[dict[str, Any]] = {
        **{word: kind for word, kind in _TOKENS.KEYWORDS.items() if word != "SESSION"},
        "TIMESTAMP": TokenType.TIMESTAMPNTZ,
        "TIMESTAMP_LTZ": TokenType.TIMESTAMPLTZ,
        "BYTES": TokenType.VARBINARY,
        "ROW": TokenType.STRUCT,
    }


def _rounded(parser: Any, name: str) -> exp.Expr:
    """FLOOR(x) or FLOOR(ts TO unit)."""
    given = parser._parse_assignment()
    if parser._match_text_seq("TO"):
        unit = parser._parse_var(any_token=True)
        return exp.Anonymous(this=f"{name.lower()}_to", expressions=[exp.Literal.string(unit.name), given])
    return exp.Anonymous(this=name, expressions=[given])


class _FlinkParser(_PARSER):  # type: ignore[misc, valid-type]
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **_PARSER.FUNCTION_PARSERS,
        **{name: (lambda parser, name=name: _rounded(parser, name)) for name in ("FLOOR", "CEIL")},
    }


class Flink(Spark):
    """The dialect `flink`, which sqlglot does not have."""

    Tokenizer = _FlinkTokenizer
    Parser = _FlinkParser


def parsed(sql: str) -> list[exp.Expr]:
    """The statements of a text."""
    return [tree for tree in sqlglot.parse(sql, read=Flink) if tree is not None]
