"""Functions with any number of arguments of any type: a macro has a fixed number, so it gets them as a list.

`concat(a, 1)` is called as `__pg.concat([__pg.output(a), __pg.output(1)])`.
"""

from __future__ import annotations

from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.tree_parts import called, texts

# name -> how many arguments stay as they are before the list, and what makes a text of each of the others
_LISTS = {
    "concat": (0, "output"),
    "concat_ws": (1, "output"),
    "format": (1, "output"),
    "num_nulls": (0, "output"),
    "num_nonnulls": (0, "output"),
    "json_build_array": (0, "json_text"),
    "jsonb_build_array": (0, "json_text"),
    "json_build_object": (0, "pairs"),
    "jsonb_build_object": (0, "pairs"),
    "json_extract_path": (1, ""),
    "json_extract_path_text": (1, ""),
    "jsonb_extract_path": (1, ""),
    "jsonb_extract_path_text": (1, ""),
}


def pack(name: str, node: Tree) -> None:
    """Make one list of the variadic arguments of a call, in place."""
    if name not in _LISTS:
        return
    kept, wrapper = _LISTS[name]
    given = node["arguments"]
    packed = [_wrapped(wrapper, place, a["expression"]) for place, a in enumerate(given[kept:])]
    node["arguments"] = [*given[:kept], {"name": "", "expression": texts(packed)}]


def _wrapped(wrapper: str, place: int, argument: Tree) -> Tree:
    if wrapper == "pairs":  # keys are texts, values are JSON
        wrapper = "output" if place % 2 == 0 else "json_text"
    return called(wrapper, argument) if wrapper else argument
