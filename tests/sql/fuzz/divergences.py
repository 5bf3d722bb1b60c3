"""What is known to differ, in one place, each with its reason.

REFUSED: queries that DuckDB answers and a view does not take; it says so when it is created.
LEFT_OUT: what random queries never say, because the answer is not one, or not one on both engines.
"""

from __future__ import annotations

import re

# Part of a message: why a view of this kind cannot be kept.
REFUSED = {
    "cannot take values of type": "equal times with time zones are stored differently, and so are nested intervals: no keys of them",
    "cannot be dropped, others use it": "a column that views read; they are listed",
    "not supported": "said so by name, with the place in the text; see tests/sql/refused.sql",
}

# Part of an engine's error: why it cannot answer, while the others are still compared.
UNANSWERED = {
    "FULL JOIN is only supported with": "PostgreSQL joins FULL only by equalities",
    "More than one row returned by a subquery": "an error there, error rows here",
    "more than one row returned by a subquery": "an error there, error rows here",
    "Correlated IN/ANY/ALL with multiple columns": "DuckDB has no such subquery, and so no view has",
    "does not exist": "over a view that was left out",
    'at or near "with"': "DuckDB cannot read WITH TIES",
    'at or near "WITH"': "DuckDB cannot read WITH TIES",
}

LEFT_OUT = {
    # on any engine: the answer is not one
    "LIMIT and DISTINCT ON without an order by all columns": "ties are broken by chance",
    "row_number, lag, frames of ROWS … over rows that tie and are not equal": "any of them may come first; see `windows`",
    "two calls OVER that tell equal rows apart": "which value of one meets which of the other is chance",
    "mode without an order, any_value, arg_min with ties": "any of the equals may be given",
    "ASOF JOIN of a side with equal times": "any of the equals may be given",
    "corr of values that have none": "zero but for the last digits, which are of the order of additions; so it is rounded",
    "DOUBLE written as text": "0.0 and -0.0 are equal, and grouped, ordered and joined as one",
    # between DuckDB and PostgreSQL: both right, each by its own rules
    "DOUBLE, avg, variance, median": "not exact types: the order of additions shows in the last digits",
    "a / b of integers": "DuckDB divides, PostgreSQL cuts",
    "HUGEINT, BLOB, STRUCT, JSON, VARCHAR[], INTERVAL": "no such type, other text, or no equality in PostgreSQL",
    "functions of arrays": "array_length of an empty one, || with NULL, slices out of bounds",
    "round, sign, casts of numbers that round": "half up, or half to even",
    "min and max of BOOLEAN and UUID": "PostgreSQL has none",
    "SEMI, ANTI and ASOF JOIN, QUALIFY, GROUP BY ALL, lambdas": "no such syntax in PostgreSQL",
    "comparisons of rows with IN": "PostgreSQL stops at the first part that decides, NULL or not",
    "ORDER BY without NULLS FIRST or LAST": "DuckDB puts NULL last, PostgreSQL puts it last only when ascending",
    "order of text": "the cluster is made with C.UTF-8, DuckDB's own order",
}


def is_known(message: str) -> bool:
    return any(re.search(re.escape(part), message) for part in REFUSED)


def why(error: str) -> str:
    """The reason for an engine's error; its own words where it is not listed."""
    return next(
        (reason for part, reason in UNANSWERED.items() if part in error), error.strip().split("\n")[0]
    )
