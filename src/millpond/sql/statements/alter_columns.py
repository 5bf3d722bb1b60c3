"""ALTER TABLE … ADD, DROP, RENAME and ALTER COLUMN, DROP CONSTRAINT.

No row is rewritten.  Rows older than a column have the default that it had when it was
added.  A dropped column is no longer visible; its values stay in the rows until the
table is dropped.  Objects built on the table before see it unchanged, including plain
views: their text is read over the columns of that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.arguments.names import check_columns
from millpond.errors import InvalidError
from millpond.plan.added_columns import may_lack, with_column
from millpond.plan.nodes import Plan
from millpond.plan.objects import UNIQUE_INDEX, SqlColumn, SqlConstraint, SqlObject, dependants
from millpond.plan.sink_settings import columns_by_name
from millpond.sql.binding.catalog import all_objects
from millpond.sql.binding.types import quoted
from millpond.sql.dml.deferred_change import with_current_time
from millpond.sql.reads.scratch import returned, thread_scratch
from millpond.sql.statements.alter_column_type import read_new_type, with_wider_column
from millpond.sql.statements.altered_table import (
    column_of,
    columns_as_they_are,
    own_steps,
    table_of,
    unused_name,
    users_of,
    with_columns,
)
from millpond.sql.statements.objects import all_objects_with_uses, without
from millpond.sql.text.column_definitions import check_expressions, read_column, stored_schema
from millpond.sql.text.duckdb_text import readable_expression
from millpond.sql.text.parse import SqlFragment, Words, statements, tokens_of

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

Edit = Callable[[Plan], Plan]
ALTERED = "altered"  # an option of objects


def edits(session: SqlSession, words: Words, name: str) -> list[Edit]:
    """Return the plan edits for the comma-separated actions of an ALTER TABLE, in order."""
    return [_action(session, Words(part), name) for part in words.rest.split(types=True)]


def _action(session: SqlSession, words: Words, name: str) -> Edit:
    if words.take("ADD"):
        if words.fragment.word(words.at) in (
            "CONSTRAINT",
            "CHECK",
            "UNIQUE",
            "PRIMARY",
            "FOREIGN",
            "EXCLUDE",
        ):
            words.fail(
                "this constraint cannot be added to a table that is there",
                "CHECK and UNIQUE can; for others CREATE TABLE with it, then INSERT … SELECT",
            )
        words.take("COLUMN")
        exists = words.if_not_exists()
        column, is_key = read_column(words)
        if is_key or column.generated is not None:
            words.fragment.fail(
                "a column that is added is neither key nor generated",
                0,
                "compute it in a view, or make a new table",
            )
        default = _default_now(session, words.fragment, column)
        if column.required and default is None:
            words.fragment.fail("the rows that are there need a value: NOT NULL needs a DEFAULT")
        return lambda plan: _add(plan, name, column, default, exists)
    if words.take("DROP", "CONSTRAINT"):
        exists = words.if_exists()
        rule = words.name("name of the constraint")
        _ = words.take("CASCADE") or words.take("RESTRICT")
        words.end()
        return lambda plan: _drop_constraint(plan, name, rule, exists)
    if words.take("DROP"):
        words.take("COLUMN")
        exists = words.if_exists()
        column_name = words.name("name of the column")
        cascade = words.take("CASCADE")
        _ = cascade or words.take("RESTRICT")
        words.end()
        return lambda plan: _drop(plan, name, column_name, exists, cascade)
    if words.take("ALTER"):
        words.take("COLUMN")
        return _alter_column(words, name)
    words.need("RENAME")
    words.take("COLUMN")
    old = words.name("name of the column")
    words.need("TO")
    new = words.name("new name")
    words.end()
    return lambda plan: _rename(plan, name, old, new)


def _alter_column(words: Words, name: str) -> Edit:
    """ALTER COLUMN … SET DEFAULT | DROP DEFAULT | DROP NOT NULL: for rows that are inserted later."""
    called = words.name("name of the column")
    if words.take("DROP", "DEFAULT"):
        words.end()
        return lambda plan: _set_default(plan, name, called, None)
    if words.take("DROP", "NOT", "NULL"):
        words.end()
        return lambda plan: _drop_not_null(plan, name, called)
    if words.take("SET", "DEFAULT"):
        if words.over:
            words.fail("an expression should stand here")
        default = readable_expression(words.rest.sql, words.fragment.dialect)
        return lambda plan: _set_default(plan, name, called, default)
    if words.take("TYPE") or words.take("SET", "DATA", "TYPE"):
        kind, declared = read_new_type(words, called)
        return lambda plan: with_wider_column(plan, name, called, kind, declared)
    words.fail(
        "this change of a column is not supported",
        "TYPE, SET DEFAULT, DROP DEFAULT, SET NOT NULL and DROP NOT NULL are",
    )
    raise AssertionError


# -- one action -------------------------------------------------------------------------------


def _add(plan: Plan, name: str, column: SqlColumn, default: Any, exists: bool) -> Plan:
    found = table_of(plan, name)
    if any(c.name.lower() == column.name.lower() for c in found.columns):
        if exists:
            return plan
        raise InvalidError(
            f"table {name!r} has a column {column.name!r} already", hint="or say IF NOT EXISTS"
        )
    check_columns([column.name], f"table {name!r}")
    own = own_steps(plan, found)
    held = unused_name(column.name, plan.shape(found.scan or "").schema.names)
    column = replace(column, stored=None if held == column.name else held)
    columns = (*found.columns, column)
    check_expressions(columns)
    views = {
        v.name: v if v.columns or v.step not in own else replace(v, columns=columns_as_they_are(plan, v.step))
        for v in plan.views.values()
    }
    (field,) = stored_schema([column])
    plan = with_column(replace(plan, views=views), own, field, default)
    return with_columns(plan, found, columns, found.key)


def _drop(plan: Plan, name: str, column: str, exists: bool, cascade: bool) -> Plan:
    found = table_of(plan, name)
    gone = column_of(found, column, must=not exists)
    if gone is None:
        return plan
    left = tuple(c for c in found.columns if c is not gone)
    _check_droppable(plan, found, gone, left)
    objects = all_objects_with_uses(plan)
    mine = [o for o in objects.values() if o.kind == "index" and found.name in o.uses]
    indexes = [o.name for o in mine if gone.name in o.key]
    users = users_of(plan, found, gone, {o.name for o in mine})
    users += [n for n in dependants(objects, users) if n not in users]
    if users and not cascade:
        raise InvalidError(
            f"column {gone.name!r} of table {name!r} cannot be dropped, others use it",
            detail=", ".join(n for n in objects if n in users),
            hint="drop these first, or say CASCADE",
        )
    plan = without(plan, [*users, *indexes])
    plan = may_lack(plan, found.scan or "", gone.stored_name)
    return with_columns(plan, found, left, found.key)


def _check_droppable(plan: Plan, found: SqlObject, gone: SqlColumn, left: Sequence[SqlColumn]) -> None:
    what = f"column {gone.name!r} of table {found.name!r} cannot be dropped"
    if gone.name in found.key:
        raise InvalidError(
            f"{what}, it is part of the primary key", hint="make a new table, and INSERT … SELECT"
        )
    rule = next((c for c in found.constraints if gone.name in c.unique or _reads(c.check, gone.name)), None)
    if rule is not None:
        is_index = _is_index(plan, rule)
        raise InvalidError(
            f"{what}, {'unique index' if is_index else 'constraint'} {rule.name!r} reads it",
            hint=f"{'DROP INDEX' if is_index else f'ALTER TABLE {found.name} DROP CONSTRAINT'} {rule.name}",
        )
    time = plan.shape(found.step or "").time
    if time == gone.stored_name:
        raise InvalidError(f"{what}, the watermark goes by it", hint="make a new table, and INSERT … SELECT")
    if not left:
        raise InvalidError(f"{what}, it is the only one", hint="DROP TABLE")
    try:
        check_expressions(left)
    except InvalidError as error:
        raise InvalidError(f"{what}, a generated column reads it", detail=error.message) from error


def _rename(plan: Plan, name: str, old: str, new: str) -> Plan:
    found = table_of(plan, name)
    check_columns([new], f"table {name!r}")
    column = column_of(found, old)
    assert column is not None
    if any(c is not column and c.name.lower() == new.lower() for c in found.columns):
        raise InvalidError(f"table {name!r} has a column {new!r} already")
    plan = _renamed_for_sinks(plan, name, column.name, new)
    columns = tuple(
        replace(c, name=new, stored=c.stored_name)
        if c is column
        else replace(c, generated=_with_name(c.generated, column.name, new))
        for c in found.columns
    )
    check_expressions(columns)
    rules = tuple(
        replace(
            rule,
            check=_with_name(rule.check, column.name, new),
            unique=tuple(new if c == column.name else c for c in rule.unique),
        )
        for rule in found.constraints
    )
    found = replace(found, constraints=rules)
    return with_columns(plan, found, columns, tuple(new if k == column.name else k for k in found.key))


def _set_default(plan: Plan, name: str, called: str, default: str | None) -> Plan:
    found = table_of(plan, name)
    column = column_of(found, called)
    assert column is not None
    if column.identity is not None:
        raise InvalidError(f'column "{column.name}" of relation "{name}" is an identity column')
    if column.generated is not None:
        raise InvalidError(f'column "{column.name}" of relation "{name}" is a generated column')
    columns = tuple(replace(c, default=default) if c is column else c for c in found.columns)
    check_expressions(columns)
    return with_columns(plan, found, columns, found.key)


def _drop_not_null(plan: Plan, name: str, called: str) -> Plan:
    found = table_of(plan, name)
    column = column_of(found, called)
    assert column is not None
    if column.name in found.key:
        raise InvalidError(f'column "{column.name}" is in a primary key')
    if column.identity is not None:
        raise InvalidError(f'column "{column.name}" of relation "{name}" is an identity column')
    columns = tuple(replace(c, required=False) if c is column else c for c in found.columns)
    return with_columns(plan, found, columns, found.key)


def _drop_constraint(plan: Plan, name: str, rule: str, exists: bool) -> Plan:
    found = table_of(plan, name)
    schema, _, _ = name.rpartition(".")
    called = (rule.lower(), f"{schema}.{rule}".lower())  # in the schema of the table
    named = [c for c in found.constraints if c.name.lower() in called]
    gone = next((c for c in named if not _is_index(plan, c)), None)
    if gone is None:
        if exists:
            return plan
        known = [c.name for c in found.constraints if not _is_index(plan, c)]
        raise InvalidError(
            f'constraint "{rule}" of relation "{name}" does not exist',
            detail=f"constraints are {', '.join(known) or 'none'}",
            hint=f"DROP INDEX {named[0].name}" if named else None,
        )
    left = tuple(c for c in found.constraints if c is not gone)
    plan = plan.with_object(replace(found, constraints=left))
    return without(plan, [gone.name]) if gone.unique else plan


def _is_index(plan: Plan, rule: SqlConstraint) -> bool:
    """Did CREATE UNIQUE INDEX make a rule?"""
    return bool(rule.unique) and UNIQUE_INDEX in all_objects(plan)[rule.name].options


def _renamed_for_sinks(plan: Plan, table: str, old: str, new: str) -> Plan:
    """Rename a column in the keys of sinks; refused if a target holds rows under the old name."""
    sinks = dict(plan.sinks)
    for sink in plan.sinks.values():
        if sink.view != table:
            continue
        if columns_by_name(sink.sink) or sink.settings.every_us:
            raise InvalidError(
                f"column {old!r} of table {table!r} cannot be renamed, sink {sink.name!r} writes it by name",
                detail="its target has rows, or it has gathered changes, under the old name",
                hint=f"create the sink again with the names of its target: CREATE SINK … AS SELECT …, {new} "
                f"AS {old} FROM {table}",
            )
        key = tuple(new if k == old else k for k in sink.settings.key)
        sinks[sink.name] = replace(sink, settings=replace(sink.settings, key=key))
    return replace(plan, sinks=sinks)


# -- expressions -----------------------------------------------------------------------------------


def _default_now(session: SqlSession, fragment: SqlFragment, column: SqlColumn) -> Any:
    """Compute the value of the new column for existing rows: the default, computed once."""
    if column.default is None:
        return None
    (asked,) = statements(f"select {column.default}", fragment.dialect)
    value = with_current_time(session, asked).sql[len("select ") :]
    inner = f"select cast(({value}) as {column.type}) as {quoted(column.name)}"
    with thread_scratch(session.time_zone).for_statement() as scratch:
        rows = scratch.arrow(f"select {returned([column])} from ({inner})", shown=inner)
    found: pa.Table = rows.cast(stored_schema([column]))
    return found.column(0)[0].as_py()


def _reads(text: str | None, name: str) -> bool:
    """Does an expression over columns of a table read one of them?"""
    return text is not None and any(t.text.lower() == name.lower() for t in tokens_of(text, "duckdb"))


def _with_name(text: str | None, old: str, new: str) -> str | None:
    """Rename a column in an expression over columns of a table."""
    if text is None:
        return None
    made, at = "", 0
    tokens = tokens_of(text, "duckdb")
    for n, token in enumerate(tokens):
        after = tokens[n + 1].text if n + 1 < len(tokens) else ""
        begun = token.start
        quotes = text[begun] == '"'
        plain = token.text.isidentifier() and after != "(" and text[begun] != "'"
        if token.text.lower() == old.lower() and (quotes or plain):
            made += text[at:begun] + quoted(new)
            at = token.end + 1
    return made + text[at:]
