"""Binds queries over the rows of one key: their output columns, and the columns by which they group."""

from __future__ import annotations

import json
from typing import NoReturn

import duckdb
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.duck import binder, quoted
from millpond.kernels.duckdb_syntax import (
    CLOCK_WORDS,
    Node,
    ask,
    error_facts,
    lowered,
    unsteady_functions,
    walk,
)
from millpond.kernels.sql_pictures import picture
from millpond.kernels.storable_types import storable_type


def grouping_columns(sql: str) -> frozenset[str]:
    """The columns by which a plain query groups the rows of `input`; none if it is of another form.

    A plain query reads `input` alone and once, and has neither LIMIT nor DISTINCT.

    >>> sorted(grouping_columns("select k, max(x) from input group by k, j"))
    ['j', 'k']
    >>> grouping_columns("select k, max(x) from input group by k limit 1")
    frozenset()
    """
    tree: Node = json.loads(ask("select json_serialize_sql(?)", [sql]))
    if tree["error"] or len(tree["statements"]) != 1:
        return frozenset()
    node = tree["statements"][0]["node"]
    source = node.get("from_table", {})
    plain = (
        node.get("type") == "SELECT_NODE"
        and source.get("type") == "BASE_TABLE"
        and str(source.get("table_name")).lower() == "input"
        and not node.get("modifiers")
        and not node.get("cte_map", {}).get("map")
        and not node.get("qualify")
        and not node.get("sample")
        and len(node.get("group_sets") or [[]]) == 1
        and not any(one["class"] == "SUBQUERY" for one in walk(tree))
    )
    if not plain:
        return frozenset()
    refs = [one for one in node["group_expressions"] if one["class"] == "COLUMN_REF"]
    return frozenset(one["column_names"][-1] for one in refs)


def bind_query(schema: pa.Schema, sql: str, *, step: str | None = None) -> tuple[pa.Schema, str]:
    """The output schema of a query over a table `input` of this schema, and the query to run.

    The query to run has `{input}` as a placeholder for the name of a view; its columns
    are cast to types that can be stored.
    """

    def fail(message: str, at: tuple[int, int] | None = None, hint: str | None = None) -> NoReturn:
        raise InvalidError(message, detail=f"in the query\n{picture(sql, at)}", hint=hint, step=step)

    tree: Node = json.loads(ask("select json_serialize_sql(?)", [sql]))
    if tree["error"]:
        at = json.loads(tree["location"]) if "location" in tree else None
        fail(f"not a SQL query: {lowered(str(tree['error_message']))}", at)
    if len(tree["statements"]) != 1:
        fail("one query is needed", hint=f"there are {len(tree['statements'])} statements; keep one")
    unsteady, volatile = unsteady_functions()
    for node in walk(tree):
        function = str(node.get("function_name") or (node.get("column_names") or [""])[0]).lower()
        is_word = node["class"] == "COLUMN_REF" and function not in CLOCK_WORDS
        if function in unsteady | volatile and not is_word and function not in map(str.lower, schema.names):
            fail(
                f"{function} gives another value when it is computed again",
                (node["query_location"], node["query_location_length"]),
                "use values of the input only",
            )
    con = binder()
    con.register("input", schema.empty_table())
    prefix = "prepare bound as "
    try:
        con.execute(prefix + sql)
    except duckdb.Error as error:
        facts = error_facts(error)
        at = json.loads(facts["location"]) if "location" in facts else None
        shifted = None if at is None else (at[0] - len(prefix), at[1])
        fail(lowered(str(facts["exception_message"]).split("\n")[0]).rstrip("!. "), shifted)
    con.execute("deallocate bound")
    relation = con.sql(f"select * from (\n{sql}\n)")
    names, kinds = relation.columns, relation.types
    picked = ", ".join(
        f"cast({quoted(n)} as {storable_type(kind)}) as {quoted(n)}"
        for n, kind in zip(names, kinds, strict=True)
    )
    found = con.sql(f"select {picked} from (\n{sql}\n) limit 0").to_arrow_table().schema
    head = "with input as (select * from {input}) "
    return found, head + f"select {picked} from (\n{sql}\n)".replace("{", "{{").replace("}", "}}")
