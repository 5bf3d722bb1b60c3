"""Binding: DuckDB resolves names, types and subqueries of a query over our relations.

A private in-memory database has one empty table for each relation, with its logical
types.  The optimizer is off, so the plan follows the text, fully decorrelated, with
each reference by position.
"""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from millpond.errors import InvalidError
from millpond.kernels import spare_databases
from millpond.kernels.duck import connect, stop_if_cancelled, without_wrapping
from millpond.kernels.value_errors import in_postgres_words
from millpond.sql.binding.now import macros
from millpond.sql.binding.types import CLOSED, UTC, Json, quoted, text_literal
from millpond.sql.bound.clock import CLOCK, CLOCK_HINT, STAMP
from millpond.sql.dialects.library import equip
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.refusal import pointing

_NO_NUMBER = re.compile(
    r'"value":(-?(?:nan|inf(?:inity)?))\b', re.IGNORECASE
)  # not valid JSON, but DuckDB writes them unquoted


def _connect() -> duckdb.DuckDBPyConnection:
    con = connect(CLOSED)
    for setting in ("set errors_as_json = true", "pragma disable_optimizer", f"set timezone = '{UTC}'"):
        con.execute(setting)
    con.execute("set allowed_configs = ['TimeZone']")  # the only setting that can change once they are locked
    con.execute("set lock_configuration = true")
    return con


class Binder:
    """A DuckDB database with the relations that queries are bound to."""

    def __init__(self) -> None:
        database = spare_databases.take("binder", _connect)
        weakref.finalize(self, database.give_back).atexit = False
        self._con, self._equipment = database.con, database.equipment
        self.zone = UTC
        self._con.execute(f"set timezone = '{UTC}'")
        for statement in macros():  # DuckDB's own clock must not get into a plan
            self._con.execute(statement)

    def in_zone(self, zone: str) -> Binder:
        """Let times without a zone be in this one, until another is set."""
        if zone != self.zone:
            self._con.execute(f"set timezone = {text_literal(zone)}")
            self.zone = zone
        return self

    def _equip(self, sql: str) -> None:
        equip(self._con, self._equipment, sql)

    def table(self, name: str, columns: Sequence[StepColumn]) -> None:
        self.drop(name)
        listed = ", ".join(f"{quoted(c.name)} {c.type}" for c in columns)
        self._con.execute(f"create table {quoted(name)} ({listed})")

    def view(self, name: str, sql: str) -> None:
        self.run(f"create or replace view {quoted(name)} as {sql}", sql)

    def drop(self, name: str) -> None:
        for kind in ("view", "table"):
            try:
                self._con.execute(f"drop {kind} if exists {quoted(name)}")
            except duckdb.CatalogException:
                continue  # the object is of the other kind
            except duckdb.Error as error:
                if "is of type" not in str(error):
                    raise

    def macro(self, sql: str) -> None:
        self.run(sql, sql)

    def run(self, statement: str, shown: str, before: int = 0) -> Any:
        self._equip(statement)
        try:
            return self._con.execute(statement)
        except duckdb.Error as error:
            stop_if_cancelled(error)
            raise as_user_error(error, shown, before) from error

    def plan(self, sql: str) -> Json:
        """Return the bound plan of one query."""
        self._equip(sql)
        (answer,) = self._con.execute("select json_serialize_plan(?)", [sql]).fetchall()
        found: Json = json.loads(_NO_NUMBER.sub(r'"value":"\1"', answer[0]))
        if not found["error"]:
            plans = found["plans"]
            if len(plans) != 1:
                raise InvalidError("one query is needed", detail=f"there are {len(plans)} statements")
            plan: Json = _by_position(plans[0])
            return plan
        # DuckDB cannot serialize every plan that it can bind; if it cannot bind the query, its own message
        # is better.
        try:
            self._con.execute(f"prepare checked as {sql}")
            self._con.execute("deallocate checked")
        except duckdb.Error as error:
            raise as_user_error(error, sql, len("prepare checked as ")) from error
        raise pointing("this query cannot be a materialized view", sql, None)

    def problem(self, sql: str) -> Mapping[str, Any] | None:
        """What DuckDB says about a text that it cannot bind; None if it can."""
        try:
            self._equip(sql)
            self._con.execute(f"prepare checked as {sql}")
            self._con.execute("deallocate checked")
        except duckdb.Error as error:
            stop_if_cancelled(error)
            text = str(error)
            try:
                found: Mapping[str, Any] = json.loads(text[max(text.find("{"), 0) :].split("\n\n")[0])
            except ValueError:
                return {"exception_message": text}
            return found
        return None

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Return the names and logical types of a query's columns."""
        self._equip(sql)
        try:
            relation = self._con.sql(f"select * from (\n{sql}\n) limit 0")
        except duckdb.Error:
            self.plan(sql)  # its error has the position
            raise
        return [(n, str(t)) for n, t in zip(relation.columns, relation.types, strict=True)]

    def columns(self, sql: str) -> list[tuple[str, str]]:
        """Return the names and logical types of a query's columns as written; a name can occur twice."""
        self._equip(sql)
        try:
            relation = self._con.sql(sql)
        except duckdb.Error as error:
            stop_if_cancelled(error)
            raise as_user_error(error, sql) from error
        return [(n, str(t)) for n, t in zip(relation.columns, relation.types, strict=True)]

    def names(self, sql: str) -> list[str]:
        """Return the names of a query's columns as written; a name can occur twice."""
        self._equip(sql)
        try:
            return list(self._con.sql(sql).columns)
        except duckdb.Error:
            self.plan(sql)  # its error has the position
            raise

    def constant(self, sql: str) -> Any:
        """Return the rows of a query that reads no relation, as Arrow."""
        self._equip(sql)
        try:
            return self._con.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise as_user_error(error, sql) from error


def _by_position(node: Any) -> Any:
    """Make all references positional.

    Below a function in FROM, references also name a table; there is one input, so the position is enough.
    """
    if isinstance(node, list):
        return [_by_position(n) for n in node]
    if not isinstance(node, dict):
        return node
    if node.get("expression_class") == "BOUND_COLUMN_REF":
        place = node["binding"]["column_index"]
        return {**node, "expression_class": "BOUND_REF", "type": "BOUND_REF", "index": place}
    return {key: _by_position(value) for key, value in node.items()}


# The kinds of DuckDB's errors that types can be the reason of.
_OF_BINDER = (
    *("Binder", "Catalog", "Not implemented", "Invalid type", "Mismatch Type", "Parameter Not Resolved"),
    *("Conversion", "Invalid Input"),
)
_NOT_NULL = re.compile(
    r"(?:Constraint Error: )?NOT NULL constraint failed: (?P<table>.+)\.(?P<column>[^.]+)$"
)


def as_user_error(error: duckdb.Error, sql: str, before: int = 0) -> InvalidError:
    """Turn an error of DuckDB into an InvalidError with the position in the text."""
    whole = str(error)
    if '"exception_type":"INTERNAL"' in whole or "unordered_map::at" in whole:  # its text says nothing
        hint = "in LATERAL, compute with outer columns over a subquery: FROM (SELECT t.a AS x)"
        return pointing("DuckDB cannot bind this query", sql, None, hint)
    try:
        facts: Mapping[str, Any] = json.loads(whole[max(whole.find("{"), 0) :].split("\n\n")[0])
    except ValueError:
        first = re.sub(r"^\w+ Error: ", "", str(error).split("\n")[0])
        plain = pointing(_lower(first), sql, None)
        plain.is_of_binder = whole.startswith(tuple(f"{kind} Error: " for kind in _OF_BINDER))
        return plain
    message = _in_users_words(without_wrapping(str(facts.get("exception_message", error))))
    first, _, rest = message.partition("\n")
    if (missing := _NOT_NULL.match(first)) is not None:
        first = (
            f'null value in column "{missing["column"]}" of relation "{missing["table"]}" '
            "violates not-null constraint"
        )
    start = facts.get("position")
    at = None
    if "location" in facts:
        begin, length = json.loads(facts["location"])
        at = (begin - before, length)
    elif start is not None:
        at = (int(start) - before, 1)
    if CLOCK in message or STAMP in message:
        said = CLOCK if CLOCK in message else STAMP
        return pointing(said, sql, at, CLOCK_HINT)
    is_of_binder = str(facts.get("exception_type", "")) in _OF_BINDER
    hints = [
        line.strip() for line in rest.splitlines() if line.strip() and "LINE" not in line and "^" not in line
    ]
    first, _, use_try = first.partition(". Use TRY(...)")
    first = in_postgres_words(first)
    if use_try:
        hints = ["TRY(expression) gives NULL instead"]
    if "disabled by configuration" in first:
        hints = ["SQL sees what the pond holds; CREATE SOURCE … WITH (connector = 'files') reads files"]
    found = pointing(_lower(first), sql, at, _hint(hints))
    found.is_of_binder = is_of_binder
    return found


def _in_users_words(message: str) -> str:
    """A message without the names that functions of dialects have inside.

    >>> _in_users_words('Macro lpad() does not support "pg.lpad.1"(VARCHAR)')
    'Function lpad() does not support lpad(VARCHAR)'
    """
    message = re.sub(r'"?\b(?:pg|spark)\.(\w+)\.\d+"?', r"\1", message)
    message = message.replace('Did you mean "main.', 'Did you mean "')
    return message.replace("Macro ", "Function ").replace("Candidate macros", "Candidate functions")


def _lower(message: str) -> str:
    return (message if message[1:2].isupper() else message[:1].lower() + message[1:]).rstrip("!. ")


def _hint(lines: list[str]) -> str | None:
    """Return the first line; if it only introduces a list, also the first items of that list."""
    if not lines:
        return None
    listed = lines[0].endswith(":") and len(lines) > 1
    return " ".join((lines[0], ", ".join(lines[1:4]))) if listed else lines[0]
