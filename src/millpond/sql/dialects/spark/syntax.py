"""Spark's syntax as sqlglot parses it, with every function left as it was written.

sqlglot would turn the functions of Spark into its own, which mean nearly the same in all dialects; here the
name and the arguments are what the user wrote, so that `functions` can give each its exact meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import DialectType
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

# Spark's operators of two sides from the weakest to the strongest; `||` is as strong as `+`, and shifts
# (which are written by two or three signs) stand between `&` and `+`.
_COMPARISON, _SHIFT = 0, 4  # levels
_LEVELS: tuple[dict[TokenType, type[exp.Binary]], ...] = (
    {
        TokenType.EQ: exp.EQ,
        TokenType.NEQ: exp.NEQ,
        TokenType.NULLSAFE_EQ: exp.NullSafeEQ,
        TokenType.GT: exp.GT,
        TokenType.GTE: exp.GTE,
        TokenType.LT: exp.LT,
        TokenType.LTE: exp.LTE,
    },
    {TokenType.PIPE: exp.BitwiseOr},
    {TokenType.CARET: exp.BitwiseXor},
    {TokenType.AMP: exp.BitwiseAnd},
    {},
    {TokenType.PLUS: exp.Add, TokenType.DASH: exp.Sub, TokenType.DPIPE: exp.DPipe},
)
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
    UNARY_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **_KNOWN.UNARY_PARSERS,
        TokenType.NOT: lambda self: self.expression(exp.Not(this=self._parse_predicate())),
    }

    def _parse_conjunction(self) -> exp.Expr | None:
        this = self._parse_predicate()
        while self._match_set(self.CONJUNCTION):
            klass = self.CONJUNCTION[self._prev.token_type]
            this = self.expression(klass(this=this, expression=self._parse_predicate()))
        return this

    def _parse_predicate(self) -> exp.Expr | None:
        """A value, and what is said about it: all operators are stronger than IN, LIKE, BETWEEN and IS."""
        value = self._operators(_COMPARISON)
        return value if value is None else self._parse_range(value, parse_is=True)

    def _parse_bitwise(self) -> exp.Expr | None:
        return self._operators(_COMPARISON + 1)

    def _operators(self, level: int) -> exp.Expr | None:
        """A value whose outermost operators are at least as strong as those of a level."""
        if level == len(_LEVELS):
            factor: exp.Expr | None = self._parse_factor()
            return factor
        this = self._operators(level + 1)
        while this is not None:
            if level == _SHIFT:
                shift = self._shift()
                if shift is None:
                    break
                this = self.expression(shift(this, self._operators(level + 1)))
                continue
            if self._is_shift() or not self._match_set(_LEVELS[level]):
                break
            klass = _LEVELS[level][self._prev.token_type]
            other = self._operators(level + 1)
            if level == _COMPARISON:
                this = self._build_predicate(klass, this, other)
            else:
                this = self.expression(klass(this=this, expression=other))
        return this

    def _parse_pipe_syntax_aggregate(self, query: exp.Select) -> exp.Select:
        made = super()._parse_pipe_syntax_aggregate(query)
        group = made.args.get("group")
        if group is not None and any(isinstance(e, exp.Literal) for e in group.expressions):
            self.raise_error("GROUP BY of |> AGGREGATE with the number of a column is not supported: name it")
        return made  # type: ignore[no-any-return]

    def _is_shift(self) -> bool:
        """Do two signs of comparison stand here side by side?"""
        one, other = self._curr, self._next
        if one is None or other is None or one.token_type not in (TokenType.LT, TokenType.GT):
            return False
        return bool(one.token_type == other.token_type and one.end + 1 == other.start)

    def _shift(self) -> Callable[[exp.Expr, exp.Expr | None], exp.Expr] | None:
        if not self._is_shift():
            return None
        if self._match_pair(TokenType.LT, TokenType.LT):
            return lambda a, b: exp.BitwiseLeftShift(this=a, expression=b)
        self._match_pair(TokenType.GT, TokenType.GT)
        behind, third = self._prev, self._curr
        if third is not None and behind.end + 1 == third.start and self._match_set((TokenType.GT,)):
            return lambda a, b: exp.Anonymous(this="shiftrightunsigned", expressions=[a, b])
        return lambda a, b: exp.BitwiseRightShift(this=a, expression=b)


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
