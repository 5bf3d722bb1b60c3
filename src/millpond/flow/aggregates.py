"""Aggregates written as text: ``"sum(price)"``, ``"count(distinct bidder)"``.

The text is parsed by sqlglot; arguments that are more than a column become a
column of a Map in front, and FILTER becomes a CASE in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import expressions as exp

from millpond.errors import InvalidError
from millpond.kernels.accumulators import EXTREMES, LINEAR
from millpond.kernels.aggregate_feeds import Agg
from millpond.kernels.duck import quoted
from millpond.kernels.synopses.sketch_accumulators import (
    OF_HASHES,
    PARAMETERS,
    STATED_ERROR,
    is_synopsis,
    needs_inserts,
    with_parameter,
)
from millpond.kernels.synopses.sql_functions import item_hash

_NAMES = {
    "Count": "count",
    "Sum": "sum",
    "Avg": "avg",
    "Min": "min",
    "Max": "max",
    "Variance": "var_samp",
    "VariancePop": "var_pop",
    "Stddev": "stddev_samp",
    "StddevSamp": "stddev_samp",
    "StddevPop": "stddev_pop",
    "ApproxDistinct": "approx_count_distinct",
    "ApproxQuantile": "approx_quantile",
    "ApproxTopK": "approx_top_k",
}
_ALIASES = {"approx_percentile": "approx_quantile"}


@dataclass(frozen=True)
class Parsed:
    aggs: tuple[Agg, ...]
    computed: tuple[tuple[str, str], ...]  # (column, expression) needed in front


def parse_aggregates(
    aggregates: Mapping[str, str], columns: list[str], *, step: str, append_only: bool = True
) -> Parsed:
    """
    >>> parse_aggregates({"n": "count(*)", "s": "sum(price * 2)"}, ["price"], step="g").computed
    (('s.argument', 'price * 2'),)
    """
    aggs = []
    computed: dict[str, str] = {}
    read = {name: _parse(name, text, step) for name, text in aggregates.items()}
    from_rows = not append_only and any(
        needs_inserts(f) and f != "approx_count_distinct" for f, _, _, _ in read.values()
    )
    for name, (function, argument, distinct, where) in read.items():
        column = None
        if where is not None:
            argument = f"CASE WHEN {where} THEN {argument or '1'} END"
        if argument is not None and function in OF_HASHES and not from_rows:
            argument = item_hash(argument if argument not in columns else quoted(argument))
        if argument is not None:
            column = argument if argument in columns else computed.setdefault(argument, f"{name}.argument")
        aggs.append(Agg(name, function, column, distinct))
    return Parsed(tuple(aggs), tuple((column, text) for text, column in computed.items()))


def _parse(name: str, text: str, step: str) -> tuple[str, str | None, bool, str | None]:
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.ParseError as error:
        raise InvalidError(
            f"aggregate {name!r} cannot be read", detail=f"{text!r}: {str(error).splitlines()[0]}", step=step
        ) from error
    where = None
    if isinstance(tree, exp.Filter):
        where = tree.expression.this.sql("duckdb")
        tree = tree.this
    function = _function(tree)
    if function is not None and is_synopsis(function):
        return _approximate(name, text, tree, function, where, step)
    if function is None:
        known = ", ".join(sorted({*LINEAR, *EXTREMES, *STATED_ERROR}))
        raise InvalidError(
            f"aggregate {name!r} cannot be maintained",
            detail=f"got {text!r}",
            hint=f"known: {known}; anything else per key: .apply(sql=...)",
            step=step,
        )
    argument = tree.this
    if any(v for k, v in tree.args.items() if k != "this" and isinstance(v, exp.Expression | list)):
        raise InvalidError(f"aggregate {name!r} takes one argument", detail=f"got {text!r}", step=step)
    distinct = False
    if isinstance(argument, exp.Distinct):
        distinct = True
        if len(argument.expressions) != 1 or isinstance(argument.expressions[0], exp.Star):
            raise InvalidError(f"aggregate {name!r}: DISTINCT takes one argument", detail=text, step=step)
        argument = argument.expressions[0]
    if isinstance(argument, exp.Star) or argument is None:
        return function, None, distinct, where
    if isinstance(argument, exp.Column) and not argument.table:
        return function, argument.name, distinct, where
    return function, argument.sql("duckdb"), distinct, where


def _function(tree: Any) -> str | None:
    if isinstance(tree, exp.Anonymous):
        name = str(tree.this).lower()
        return _ALIASES.get(name, name) if _ALIASES.get(name, name) in STATED_ERROR else None
    return _NAMES.get(type(tree).__name__)


def _approximate(
    name: str, text: str, tree: Any, function: str, where: str | None, step: str
) -> tuple[str, str | None, bool, str | None]:
    """An approximate aggregate: its argument, and a constant if it takes one."""
    arguments = list(tree.expressions) if isinstance(tree, exp.Anonymous) else list(tree.iter_expressions())
    wanted = 2 if function in PARAMETERS else 1
    if len(arguments) != wanted or any(isinstance(g, exp.Distinct | exp.Star) for g in arguments):
        takes = "a column and a constant" if wanted == 2 else "one argument"
        raise InvalidError(f"aggregate {name!r} takes {takes}", detail=f"got {text!r}", step=step)
    if wanted == 2:
        function = with_parameter(function, arguments[1].sql("duckdb"))
    argument = arguments[0]
    if isinstance(argument, exp.Column) and not argument.table:
        return function, argument.name, False, where
    return function, argument.sql("duckdb"), False, where
