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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NoReturn

import duckdb
import pyarrow as pa

from millpond import hashing
from millpond.errors import InvalidError
from millpond.kernels.comparisons import Plain, plain
from millpond.kernels.duck import binder, provide_named, provided, quoted
from millpond.kernels.time_granularity import grain_us, is_plain_time
from millpond.masking import masked_at

_OPEN = "select (\n"  # the expression is on separate lines, so that it can end with a comment
_CLOSE = "\n)"
_NOWHERE = 2**64 - 1

# DuckDB reads these words as functions if no column has the name.
_CLOCK_WORDS = frozenset(
    {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "today", "now"}
    | {"current_localtime", "current_localtimestamp"}  # DuckDB classifies them as consistent
)
# It only raises; DuckDB classifies it as volatile so that it is not evaluated ahead of time.
_HARMLESS = frozenset({"error"})

_NULL_TESTS = {"OPERATOR_IS_NULL": True, "OPERATOR_IS_NOT_NULL": False}

_TEXT = frozenset({"uuid", "enum", "bit", "time with time zone"})
_WIDE = frozenset({"hugeint", "uhugeint", "bignum"})

Node = dict[str, Any]


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
        nodes = list(_walk(root))
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
            steady=_is_steady(nodes),
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
        raw = _ask("select json_serialize_sql(?)", [_OPEN + self.sql + _CLOSE])
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
            self._fail(f"{self.name!r} is not a SQL expression: {_lower(message)}", at=(start, length))
        select = tree["statements"][0]["node"]
        alone = (
            len(tree["statements"]) == 1
            and select["type"] == "SELECT_NODE"
            and len(select["select_list"]) == 1
            and select["from_table"]["type"] == "EMPTY"
            and select["where_clause"] is None
            and not select["modifiers"]
        )
        if not alone:
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
        unsteady, volatile = _unsteady()
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
            for inner in _walk(node["lhs"])
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
                if names[0] in _CLOCK_WORDS:
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
        select["select_list"] = [_ordered(select["select_list"][0], condition=self.boolean)]
        text: str = _ask("select json_deserialize_sql(?::json)", [json.dumps(tree)])
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
        wanted = "BOOLEAN" if self.boolean else _storable(kind)
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
        facts = _facts(error)
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
            message, hint = message.split(". You might")[0], "cast the arguments to types it takes"
        self._fail(_lower(message).rstrip("!. "), at=at, hint=hint)

    def _fail_unknown(self, column: str, at: tuple[int, int]) -> NoReturn:
        near = difflib.get_close_matches(column.lower(), self.columns, n=1, cutoff=0.5)
        said = f"columns are {', '.join(self.schema.names)}"
        hint = f"did you mean {self.columns[near[0]]}? {said}" if near else said
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
        parts.append(f"in the expression of {self.name!r}\n{self._picture(at)}")
        raise InvalidError(message, detail="; ".join(parts), hint=hint, step=self.step)

    def _picture(self, at: tuple[int, int] | None) -> str:
        return picture(self.sql, None if at is None else (at[0] - len(_OPEN), at[1]))


SHOWN_MAX = 20_000  # characters: a longer text is shown up to here


def picture(sql: str, at: tuple[int, int] | None) -> str:
    """The line of a text with a caret under a position, passed as (byte, bytes); secrets are masked.

    >>> print(picture("price * pric", (8, 4)))
        price * pric
                ^^^^
    """
    whole = len(sql)
    if (
        whole > SHOWN_MAX
    ):  # masking some megabytes takes a second; only the end is cut off, so no secret is exposed
        at = at if at is not None and at[0] < SHOWN_MAX // 2 else None
        sql = sql[: SHOWN_MAX if at is not None else SHOWN_MAX // 10]
    sql, at = masked_at(sql, at)
    if whole > SHOWN_MAX and at is None:
        sql += f" … ({whole} characters)"
    raw = sql.encode()
    if at is None or not 0 <= at[0] <= len(raw):
        return "\n".join(f"    {line}" for line in sql.split("\n"))
    start, length = at
    before = raw[:start].decode(errors="replace")
    place = raw[start : start + max(length, 1)].decode(errors="replace").split("\n")[0]
    first = before.rfind("\n") + 1
    line = sql[first:].split("\n")[0]
    return f"    {line}\n    {' ' * (len(before) - first)}{'^' * max(len(place), 1)}"


# ---------------------------------------------------------------- queries


def grouping_columns(sql: str) -> frozenset[str]:
    """The columns by which a plain query groups the rows of `input`; none if it is of another form.

    A plain query reads `input` alone and once, and has neither LIMIT nor DISTINCT.

    >>> sorted(grouping_columns("select k, max(x) from input group by k, j"))
    ['j', 'k']
    >>> grouping_columns("select k, max(x) from input group by k limit 1")
    frozenset()
    """
    tree: Node = json.loads(_ask("select json_serialize_sql(?)", [sql]))
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
        and not any(one["class"] == "SUBQUERY" for one in _walk(tree))
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

    tree: Node = json.loads(_ask("select json_serialize_sql(?)", [sql]))
    if tree["error"]:
        at = json.loads(tree["location"]) if "location" in tree else None
        fail(f"not a SQL query: {_lower(str(tree['error_message']))}", at)
    if len(tree["statements"]) != 1:
        fail("one query is needed", hint=f"there are {len(tree['statements'])} statements; keep one")
    unsteady, volatile = _unsteady()
    for node in _walk(tree):
        function = str(node.get("function_name") or (node.get("column_names") or [""])[0]).lower()
        is_word = node["class"] == "COLUMN_REF" and function not in _CLOCK_WORDS
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
        facts = _facts(error)
        at = json.loads(facts["location"]) if "location" in facts else None
        shifted = None if at is None else (at[0] - len(prefix), at[1])
        fail(_lower(str(facts["exception_message"]).split("\n")[0]).rstrip("!. "), shifted)
    con.execute("deallocate bound")
    relation = con.sql(f"select * from (\n{sql}\n)")
    names, kinds = relation.columns, relation.types
    picked = ", ".join(
        f"cast({quoted(n)} as {_storable(kind)}) as {quoted(n)}" for n, kind in zip(names, kinds, strict=True)
    )
    found = con.sql(f"select {picked} from (\n{sql}\n) limit 0").to_arrow_table().schema
    head = "with input as (select * from {input}) "
    return found, head + f"select {picked} from (\n{sql}\n)".replace("{", "{{").replace("}", "}}")


# ---------------------------------------------------------------- DuckDB's vocabulary


def _ask(sql: str, parameters: list[Any]) -> Any:
    return binder().execute(sql, parameters).fetchall()[0][0]


def _facts(error: duckdb.Error) -> dict[str, Any]:
    """What the binder reports about an error; not all errors come as JSON."""
    _, _, raw = str(error).partition(": ")
    try:
        found: dict[str, Any] = json.loads(raw)
        return found
    except json.JSONDecodeError:
        return {"exception_message": raw}


@lru_cache(maxsize=1)
def _unsteady() -> tuple[frozenset[str], frozenset[str]]:
    """Functions of the clock or the session, and functions that return another value at every call."""
    found = (
        binder().execute("select distinct lower(function_name), stability from duckdb_functions()").fetchall()
    )
    clock = frozenset(name for name, stability in found if stability == "CONSISTENT_WITHIN_QUERY")
    volatile = frozenset(name for name, stability in found if stability == "VOLATILE")
    return clock | _CLOCK_WORDS, volatile - _HARMLESS


def _is_steady(nodes: list[Node]) -> bool:
    """Whether none of these can return different values for equal rows."""
    _, volatile = _unsteady()
    called = {str(node.get("function_name", "")).lower() for node in nodes}
    return called.isdisjoint(volatile) and called.isdisjoint(map(str.lower, provided()))


def _walk(node: Any) -> Iterator[Node]:
    """Every expression in a parsed tree, outermost first."""
    if isinstance(node, dict):
        if "class" in node:
            yield node
        for child in node.values():
            yield from _walk(child)
    elif isinstance(node, list):
        for child in node:
            yield from _walk(child)


def _ordered(node: Any, *, condition: bool) -> Any:
    """Write AND and OR as CASE, whose branches are evaluated only for the rows that reach them.

    In a condition NULL and false are equivalent, so each operand is written once.  As
    a value, NULL must be returned as NULL, so the last branch repeats all operands.
    """
    if isinstance(node, list):
        return [_ordered(child, condition=False) for child in node]
    if not isinstance(node, dict):
        return node
    if node.get("class") != "CONJUNCTION":
        return {key: _ordered(value, condition=False) for key, value in node.items()}
    operands = [_ordered(child, condition=condition) for child in node["children"]]
    conjunction = node["type"] == "CONJUNCTION_AND"
    if condition:
        return _one_by_one(operands, conjunction)
    stops = [_not(operand) if conjunction else operand for operand in operands[:-1]]
    return _case(stops, _truth(not conjunction), {**node, "children": operands})


def _one_by_one(operands: list[Node], conjunction: bool) -> Node:
    """Evaluate conditions from left to right, by recursive halving, so that long lists do not nest deep."""
    if len(operands) == 1:
        return operands[0]
    middle = len(operands) // 2
    first, rest = (_one_by_one(some, conjunction) for some in (operands[:middle], operands[middle:]))
    return _case([first], rest, _truth(False)) if conjunction else _case([first], _truth(True), rest)


def _case(whens: list[Node], then: Node, otherwise: Node) -> Node:
    checks = [{"when_expr": when, "then_expr": then} for when in whens]
    return {"class": "CASE", "type": "CASE_EXPR", "alias": "", "case_checks": checks, "else_expr": otherwise}


def _not(node: Node) -> Node:
    return {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": "", "children": [node]}


def _truth(value: bool) -> Node:
    literal = {"kind": "BOOLEAN", "text": "true" if value else "false"}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": literal}


def _storable(kind: Any) -> str:
    """The SQL type to which a value is cast before it leaves DuckDB: 128-bit integers never do."""
    name = kind.id
    if name in _WIDE:
        return "DECIMAL(38,0)"
    if name in _TEXT or str(kind) == "JSON":
        return "VARCHAR"
    if name == "null":
        return "INTEGER"  # DuckDB's type for a column of NULLs
    if name == "list":
        return f"{_storable(kind.children[0][1])}[]"
    if name == "array":
        return f"{_storable(kind.children[0][1])}[{kind.children[1][1]}]"
    if name == "map":
        return f"MAP({_storable(kind.children[0][1])}, {_storable(kind.children[1][1])})"
    if name == "struct":
        return f"STRUCT({', '.join(f'{quoted(n)} {_storable(k)}' for n, k in kind.children)})"
    return str(kind)


def storable_text(kind: str) -> str:
    """The same for a type name.

    >>> storable_text("HUGEINT")
    'DECIMAL(38,0)'
    """
    return _storable(binder().sql(f"select cast(null as {kind})").types[0])


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
