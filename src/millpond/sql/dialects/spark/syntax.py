"""Spark's syntax as sqlglot parses it, with every function left as it was written.

sqlglot would turn the functions of Spark into its own, which mean nearly the same in all dialects; here the
name and the arguments are what the user wrote, so that `functions` can give each its exact meaning.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import DialectType
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

_KEPT = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")  # have words inside
_KNOWN = sqlglot.Dialect.get_or_raise("spark").parser_class


class _RawParser(_KNOWN):  # type: ignore[misc, valid-type]
    STRICT_CAST = True
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}  # `array(1, 2)[0]` is an element, not an array
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **{name: how for name, how in _KNOWN.FUNCTION_PARSERS.items() if name in _KEPT},
        "SUBSTR": _KNOWN.FUNCTION_PARSERS["SUBSTRING"],
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {
        kind: made for kind, made in _KNOWN.NO_PAREN_FUNCTIONS.items() if made is not exp.CurrentCatalog
    }


class RawSpark(Spark):
    """The dialect `spark` of sqlglot, with functions as they were written."""

    Parser = _RawParser

    def tokenize(self, sql: str, dialect: DialectType = None) -> list[Token]:
        """The words of a text; `window(` is a function, not the clause WINDOW, and `X '1F'` is one word."""
        tokens = super().tokenize(sql, dialect)
        for one, following in pairwise(tokens):
            if one.token_type == TokenType.WINDOW and following.token_type == TokenType.L_PAREN:
                one.token_type = TokenType.VAR
            elif one.text in ("X", "x") and following.token_type == TokenType.STRING:
                one.token_type, following.token_type = TokenType.UNKNOWN, TokenType.HEX_STRING
        return [one for one in tokens if one.token_type != TokenType.UNKNOWN]


class SparkWithoutAnsi(Spark):
    """Spark's dialect as `SET spark.sql.ansi.enabled = false` makes it: sqlglot knows it by this name."""


def parsed(sql: str) -> list[exp.Expr]:
    """The statements of a text."""
    return [tree for tree in sqlglot.parse(sql, read=RawSpark) if tree is not None]
