"""Binds SQL expressions over the columns of one input.

An expression is bound when a query is built: DuckDB parses and types it.  Anything
that is not a function of one row is refused with its position in the text:
subqueries, aggregates, windows, parameters, the clock.  Whether a row fails must
not depend on the other rows (law 3), so AND and OR are rewritten to evaluate their
operands from left to right and no further than needed; DuckDB itself guarantees no
order and picks one by speed.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NoReturn

import duckdb
import pyarrow as pa

from millpond import hashing
from millpond.errors import InvalidError
from millpond.kernels.comparisons import Plain, plain
from millpond.kernels.duck import binder, provide_named, quoted
from millpond.kernels.duckdb_syntax import (
    CLOCK_WORDS,
    Node,
    ask,
    error_facts,
    is_steady,
    lowered,
    unsteady_functions,
    walk,
)
from millpond.kernels.ordered_conditions import ordered
from millpond.kernels.sql_pictures import picture
from millpond.kernels.storable_types import storable_type
from millpond.kernels.time_granularity import grain_us, is_plain_time

_OPEN = "select (\n"  # the expression is on separate lines, so that it can end with a comment
_CLOSE = "\n)"
_NOWHERE = 2**64 - 1

_NULL_TESTS = {"OPERATOR_IS_NULL": True, "OPERATOR_IS_NOT_NULL": False}


@dataclass(frozen=True)
class Expression:
    """A bound expression: the SQL to run and its type.  Stored with the plan, so workers do not bind."""

    sql: str  # as DuckDB runs it: ordered AND and OR, cast to a type that can be stored
    type: pa.DataType
    needs: tuple[str, ...]  # columns of the input, in its order
    column: str | None  # the column, if the expression is only a column name
    # For a condition that only tests columns for NULL (True) or NOT NULL (False): these tests; else empty.
    absent: tuple[tuple[str, bool], ...] = field(default=(), compare=False)
    steady: bool = field(default=False, compare=False)  # equal rows have equal results
    plain: Plain | None = field(default=None, compare=False)  # computed without a query
    # For one time column: times between two multiples of it have equal results; 0 if unknown.
    grain_us: int = field(default=0, compare=False)


def compile_expressions(
    schema: pa.Schema,
    expressions: Mapping[str, str],
    *,
    append_only: bool = False,
    step: str | None = None,
) -> pa.Schema:
    """The names and types of these expressions over this schema, or an InvalidError.

    >>> compile_expressions(pa.schema([("price", pa.int32())]), {"double": "price * 2"}).types
    [DataType(int32)]
    """
    return pa.schema(
        [
            (name, bind(schema, sql, name=name, append_only=append_only, step=step).type)
            for name, sql in expressions.items()
        ]
    )


def compile_predicate(
    schema: pa.Schema, sql: str, *, append_only: bool = False, step: str | None = None
) -> Expression:
    """Bind a condition; raise InvalidError if it is not a boolean."""
    return bind(schema, sql, name="condition", boolean=True, append_only=append_only, step=step)


def columns_of(schema: pa.Schema, sql: str) -> frozenset[str]:
    """The columns of the input that an expression reads."""
    return frozenset(bind(schema, sql, append_only=True).needs)


def bind(
    schema: pa.Schema,
    sql: str,
    *,
    name: str = "expression",
    boolean: bool = False,
    append_only: bool = False,
    step: str | None = None,
) -> Expression:
    """Parse, check and type one expression.

    `append_only` says that no row will be retracted.  Only then may a volatile
    function be used, because its value could not be computed again for the retraction.
    `name` and `step` only say in an error which expression it is.

    >>> bind(pa.schema([("a", pa.int32())]), "a > 1", boolean=True).needs
    ('a',)
    """
    with contextlib.suppress(InvalidError):  # raised again below, with the name and the step
        return _bound(schema, sql, boolean, append_only)
    return _Bind(schema, sql, name, boolean, append_only, step).run()


@lru_cache(maxsize=4096)
def _bound(schema: pa.Schema, sql: str, boolean: bool, append_only: bool) -> Expression:
    """Bind an expression once for all steps and names that it has."""
    return _Bind(schema, sql, "expression", boolean, append_only, None).run()


class _Bind:
    """The binding of one expression; stores what error messages need."""

    def __init__(
        self, schema: pa.Schema, sql: str, name: str, boolean: bool, append_only: bool, step: str | None
    ) -> None:
        self.schema = schema
        self.sql = sql
        self.name = name
        self.boolean = boolean
        self.append_only = append_only
        self.step = step
        self.columns = {column.lower(): column for column in schema.names}

    def run(self) -> Expression:
        if self.sql in self.schema.names and not self.boolean:  # the common case, without a query to DuckDB
            return Expression(quoted(self.sql), self.schema.field(self.sql).type, (self.sql,), self.sql)
        self._check_columns()
        tree, root = self._parse()
        nodes = list(walk(root))
        self._refuse(nodes)
        needs = self._needs(nodes)
        column = self._bare(root)
        if column is not None:
            kind = self.schema.field(column).type
            if not self.boolean or pa.types.is_boolean(kind):
                return Expression(quoted(column), kind, needs, column)
        self._bind_as_written()
        text = self.sql
        if any(node["class"] == "CONJUNCTION" for node in nodes):
            text = self._in_order(tree)
        kinds = [self.schema.field(name).type for name in needs]
        bound = replace(
            self._typed(text, needs),
            steady=is_steady(nodes),
            plain=plain(root, self.schema, self._bare),
            grain_us=grain_us(root) if len(kinds) == 1 and is_plain_time(kinds[0]) else 0,
        )
        return replace(bound, absent=self._absent(root)) if self.boolean else bound

    # ------------------------------------------------------------ parsing

    def _check_columns(self) -> None:
        if len(self.columns) < len(self.schema):
            raise InvalidError(
                "two columns differ only in case, and SQL does not distinguish them",
                detail=f"columns are {', '.join(self.schema.names)}",
                hint="rename one of them before this step",
                step=self.step,
            )

    def _parse(self) -> tuple[Node, Node]:
        """The complete statement and the expression in it, as DuckDB parses them."""
        raw = ask("select json_serialize_sql(?)", [_OPEN + self.sql + _CLOSE])
        tree: Node = json.loads(raw)
        if tree["error"]:
            message = str(tree["error_message"])
            start, length = json.loads(tree.get("location", "[0, 0]"))
            if start >= len((_OPEN + self.sql).encode()):
                start, length, message = (
                    len((_OPEN + self.sql.rstrip()).encode()),
                    1,
                    "the expression ends too early",
                )
            self._fail(f"{self.name!r} is not a SQL expression: {lowered(message)}", at=(start, length))
        select = tree["statements"][0]["node"]
        is_one = (
            len(tree["statements"]) == 1
            and select["type"] == "SELECT_NODE"
            and len(select["select_list"]) == 1
            and select["from_table"]["type"] == "EMPTY"
            and select["where_clause"] is None
            and not select["modifiers"]
        )
        if not is_one:
            self._fail(
                f"{self.name!r} is not one SQL expression", hint="write one expression, without a query"
            )
        root = select["select_list"][0]
        if root["class"] == "FUNCTION" and root["function_name"] == "row" and not root["arguments"]:
            self._fail(
                f"{self.name!r} has an empty expression", hint="write a SQL expression over the columns"
            )
        return tree, root

    def _bare(self, root: Node) -> str | None:
        """The column name, if the expression consists of nothing else."""
        if root["class"] == "COLUMN_REF" and len(root["column_names"]) == 1:
            return self.columns.get(str(root["column_names"][0]).lower())
        return None

    def _absent(self, root: Node) -> tuple[tuple[str, bool], ...]:
        """The NULL tests that make up a condition; empty if it tests anything else."""
        parts = root["children"] if root["type"] == "CONJUNCTION_AND" else [root]
        found = []
        for part in parts:
            column = self._bare(part["children"][0]) if part["type"] in _NULL_TESTS else None
            if column is None or pa.types.is_dictionary(self.schema.field(column).type):
                return ()
            found.append((column, _NULL_TESTS[part["type"]]))
        return tuple(found)

    # ------------------------------------------------------------ checking

    def _refuse(self, nodes: list[Node]) -> None:
        """Refuse everything that is not a function of one row."""
        unsteady, volatile = unsteady_functions()
        for node in nodes:
            kind, at = (
                node["class"],
                (node.get("query_location", _NOWHERE), node.get("query_location_length", 1)),
            )
            function = str(node.get("function_name", "")).lower()
            if kind == "SUBQUERY":
                self._fail(
                    "a subquery cannot stand in an expression", at=at, hint="join the two inputs instead"
                )
            if kind == "WINDOW":
                self._fail(
                    "a window function cannot stand in this expression", at=at, hint="use an over step"
                )
            if kind == "STAR":
                self._fail("a star cannot stand in an expression", at=at, hint="name the columns")
            if kind == "PARAMETER":
                self._fail("a parameter cannot stand in an expression", at=at, hint="write the value itself")
            if function == "unnest":
                self._fail(
                    "unnest gives many rows, an expression gives one", at=at, hint="use a flat map step"
                )
            if function in unsteady or (function == "age" and len(node["arguments"]) == 1):
                self._fail_clock(function, at)
            if function in volatile and not self.append_only:
                self._fail(
                    f"{function}() cannot be used on input that retracts rows",
                    at=at,
                    detail="its value could not be found again to take the row back",
                    hint="compute it where rows come in, on an append-only input",
                )

    def _needs(self, nodes: list[Node]) -> tuple[str, ...]:
        """The columns that are read; every other name must be a lambda parameter."""
        parameters = {
            name.lower()
            for node in nodes
            if node["class"] == "LAMBDA"
            for inner in walk(node["lhs"])
            for name in inner.get("column_names", [])
        }
        found = set()
        for node in nodes:
            if node["class"] != "COLUMN_REF":
                continue
            names = [name.lower() for name in node["column_names"]]
            if names[0] in self.columns:
                found.add(self.columns[names[0]])
            elif names[0] == "input" and len(names) > 1 and names[1] in self.columns:
                found.add(self.columns[names[1]])
            elif names[0] not in parameters:
                at = (node["query_location"], node["query_location_length"])
                if names[0] in CLOCK_WORDS:
                    self._fail_clock(names[0], at)
                self._fail_unknown(node["column_names"][0], at)
        return tuple(column for column in self.schema.names if column in found)

    def _bind_as_written(self) -> None:
        """Let DuckDB bind the user's own text, so that error positions refer to that text."""
        prefix = "prepare bound as select one, (\n"
        provide_named(self.sql)
        con = binder()
        con.register("input", self.schema.empty_table())
        # `one` is outside of any aggregate, so DuckDB refuses an aggregate next to it.
        query = f"{prefix}{self.sql}{_CLOSE} from (select *, 1 as one from input) as input"
        try:
            con.execute(query)
        except duckdb.Error as error:
            self._fail_bind(error, len(prefix) - len(_OPEN))
        con.execute("deallocate bound")

    def _in_order(self, tree: Node) -> str:
        """The expression with every AND and OR written as a CASE, from left to right."""
        select = tree["statements"][0]["node"]
        select["select_list"] = [ordered(select["select_list"][0], condition=self.boolean)]
        text: str = ask("select json_deserialize_sql(?::json)", [json.dumps(tree)])
        return text.removeprefix("SELECT ")

    def _typed(self, text: str, needs: tuple[str, ...]) -> Expression:
        con = binder()
        con.register("input", self.schema.empty_table())
        (kind,) = con.sql(f"select (\n{text}\n) from input").types
        if self.boolean and str(kind) not in ("BOOLEAN", '"NULL"'):
            self._fail(
                f"a condition must be true or false, this one is {kind}",
                at=(len(_OPEN), len(self.sql.strip().encode())),
                hint="compare it with something",
            )
        wanted = "BOOLEAN" if self.boolean else storable_type(kind)
        sql = f"({text}\n)" if wanted == str(kind) else f"cast(({text}\n) as {wanted})"
        arrow = con.sql(f"select {sql} from input limit 0").to_arrow_table().schema.field(0).type
        try:
            hashing.hash_array(pa.array([], arrow))
        except (InvalidError, pa.ArrowNotImplementedError):
            self._fail(
                f"{self.name!r} is {kind}, which cannot be stored",
                at=(len(_OPEN), len(self.sql.strip().encode())),
                hint="cast it to a number, a text, a time or a struct of these",
            )
        return Expression(sql, arrow, needs, None)

    # ------------------------------------------------------------ failing

    def _fail_bind(self, error: duckdb.Error, shift: int) -> NoReturn:
        facts = error_facts(error)
        message = str(facts["exception_message"]).split("\n")[0]
        if "GROUP BY clause" in message or "cannot contain aggregates" in message:
            self._fail("an aggregate cannot stand in this expression", hint="use an aggregate step")
        at = None
        if "location" in facts:
            start, length = json.loads(facts["location"])
            at = (start - shift, length)
        hint = None
        if facts.get("error_subtype") == "MISSING_ENTRY":
            message = f"there is no {str(facts['type']).lower()} {facts['name']!r}"
            hint = f"did you mean {facts['candidates']}?" if facts.get("candidates") else None
        elif message.startswith("No function matches"):
            message, hint = _of_types(message.split(". You might")[0]), "cast the arguments to types it takes"
        self._fail(lowered(message).rstrip("!. "), at=at, hint=hint)

    def _fail_unknown(self, column: str, at: tuple[int, int]) -> NoReturn:
        matches = difflib.get_close_matches(column.lower(), self.columns, n=1, cutoff=0.5)
        said = f"columns are {', '.join(self.schema.names)}"
        hint = f"did you mean {self.columns[matches[0]]}? {said}" if matches else said
        self._fail(f"there is no column {column!r}", at=at, hint=hint)

    def _fail_clock(self, word: str, at: tuple[int, int]) -> NoReturn:
        self._fail(
            f"{word} reads the clock or the session, not the row",
            at=at,
            detail="a row must give the same value whenever it is computed again",
            hint="use a time column of the input",
        )

    def _fail(
        self,
        message: str,
        *,
        at: tuple[int, int] | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> NoReturn:
        parts = [detail] if detail else []
        name = self.name.removesuffix(".argument")  # of an aggregate
        parts.append(f"in the expression of {name!r}\n{self._picture(at)}")
        raise InvalidError(message, detail="; ".join(parts), hint=hint, step=self.step)

    def _picture(self, at: tuple[int, int] | None) -> str:
        return picture(self.sql, None if at is None else (at[0] - len(_OPEN), at[1]))


def _of_types(message: str) -> str:
    """An error about the types of arguments, without names that nobody has written.

    >>> _of_types("No function matches the given name and argument types '+(VARCHAR, INTEGER_LITERAL)'")
    "No function matches the given name and argument types '+(VARCHAR, INTEGER)'"
    >>> _of_types("No function matches … types 'array_extract(BIGINT, INTEGER_LITERAL)'")
    'a BIGINT has no elements'
    """
    message = message.replace("INTEGER_LITERAL", "INTEGER").replace("STRING_LITERAL", "VARCHAR")
    subscript = re.search(r"'array_extract\((.*), [^,]*\)'$", message)
    return f"a {subscript[1]} has no elements" if subscript else message
