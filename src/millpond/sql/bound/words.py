"""The binder's names of comparisons, and how SQL writes them."""

from __future__ import annotations

SAME = "IS NOT DISTINCT FROM"
DIFFERENT = "IS DISTINCT FROM"
EQUALITIES = ("=", SAME)
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", SAME: SAME}  # the same with sides exchanged
COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": SAME,
    "COMPARE_DISTINCT_FROM": DIFFERENT,
}
ALL_ROWS = 2**31 - 1  # LIMIT ALL
