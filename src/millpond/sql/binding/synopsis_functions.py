"""The SQL functions of sketches, which exist in every pond without a definition.

An aggregate is inlined as a function of the list of its rows, as a user's Python aggregate is; the rules
of GROUP BY then replace the list by an accumulator where rows are only inserted.
"""

from __future__ import annotations

import re
from functools import cache

from millpond.kernels.synopses.sql_functions import AGGREGATES, ITEM_HASH, SCALARS, called_as, sketch_function
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.types import quoted

# Aliases: the parameters, and the SQL over marks of the arguments.
_ALIASES = {
    "approx_percentile": (("x", "q"), 'approx_quantile("millpond.argument.0", "millpond.argument.1")'),
    "approx_sample": (
        ("x", "k"),
        f'arg_min("millpond.argument.0", {quoted(called_as(ITEM_HASH))}'
        '(CAST("millpond.argument.0" AS VARCHAR)), "millpond.argument.1")',
    ),
}
NAMES = frozenset([*AGGREGATES, *(n for n in SCALARS if n != ITEM_HASH), *_ALIASES])
_MENTIONED = re.compile(rf"\b({'|'.join(sorted(NAMES))})\b")


def mentioned(sql: str) -> dict[str, SqlObject]:
    """The functions that a text in lower case mentions, by name."""
    return {name: _object(name) for name in sorted(set(_MENTIONED.findall(sql)))}


def is_built_in(called: str) -> bool:
    """Is this the unique name of a function of sketches?  If so, kernels know it from now on."""
    name = called.partition("#")[0]
    if name != ITEM_HASH and name not in NAMES - _ALIASES.keys():
        return False
    return sketch_function(name).name == called


@cache
def _object(name: str) -> SqlObject:
    if name in _ALIASES:
        parameters, text = _ALIASES[name]
        calls = (sketch_function(ITEM_HASH),) if name == "approx_sample" else ()
        columns = tuple(SqlColumn(p, "") for p in parameters)
        return SqlObject("function", name, columns, text=text, options={"kind": "scalar", "calls": calls})
    called = sketch_function(name)
    if name in AGGREGATES:
        takes, returns = AGGREGATES[name]
        columns, kind, given = (SqlColumn("x", takes),), "aggregate", quoted("millpond.argument.0")
    else:
        listed, returns = SCALARS[name]
        columns, kind = tuple(SqlColumn(n, t) for n, t in listed), "scalar"
        given = ", ".join(quoted(f"millpond.argument.{n}") for n in range(len(listed)))
    options = {"kind": kind, "calls": (called,), "returns": returns}
    return SqlObject("function", name, columns, text=f"{quoted(called.name)}({given})", options=options)
