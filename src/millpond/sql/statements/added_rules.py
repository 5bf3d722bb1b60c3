"""ALTER TABLE … ADD CONSTRAINT and SET NOT NULL: rules for a table that may have rows.

Law: the rule is in force before the rows are checked, so no row can come between.  If one of them breaks it,
the rule is removed again, and the statement is refused with PostgreSQL's reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millpond.arguments.names import check_name
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.plan.nodes import Plan
from millpond.plan.objects import UNIQUE_INDEX, SqlConstraint, SqlObject
from millpond.sql.binding.types import quoted
from millpond.sql.statements.objects import without
from millpond.sql.statements.owned_objects import with_names
from millpond.sql.text.column_definitions import Definition, check_condition, read_rule
from millpond.sql.text.parse import SqlFragment, Words, closest_name, statements
from millpond.sql.text.schema_names import schema_of

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


@dataclass(frozen=True)
class AddedRule:
    """A rule of a table, as a constraint or as a column that must have a value."""

    constraint: SqlConstraint | None = None
    required: str | None = None
    as_index: bool = False  # CREATE UNIQUE INDEX


def read_added_rule(session: SqlSession, words: Words, found: SqlObject) -> AddedRule | None:
    """The rule that an ALTER TABLE adds; None if it does something else."""
    at = words.at
    parts = words.rest.split(types=True)
    if len(parts) > 1:
        _refuse_among(parts)
        return None
    if words.take("ALTER"):
        words.take("COLUMN")
        name = words.name("name of the column")
        if words.take("SET", "NOT", "NULL"):
            words.end()
            return AddedRule(required=_column(found, name))
        words.at = at
        return None
    if not words.take("ADD"):
        return None
    called = words.name("name of the constraint") if words.take("CONSTRAINT") else ""
    if not (words.fragment.has(words.at, "CHECK", "(") or words.fragment.has(words.at, "UNIQUE", "(")):
        words.at = at
        return None
    rule = read_rule(words, called)
    words.end()
    return AddedRule(_checked_rule(session, found, rule))


def _checked_rule(session: SqlSession, found: SqlObject, rule: SqlConstraint) -> SqlConstraint:
    """The rule with the table's names of its columns, and with a name that is free."""
    rule = replace(rule, unique=tuple(_column(found, name) for name in rule.unique))
    if rule.unique and found.append_only:
        raise InvalidError(
            "UNIQUE is not supported for an APPEND ONLY table",
            hint="PRIMARY KEY keeps the first row of a key",
        )
    check_condition(found.columns, rule)
    both = Definition(found.columns, found.key, None, (rule, *found.constraints))
    rule = _named(both, found, schema_of(found.name, session.catalog.schemas))
    if any(rule.name.lower() == other.name.lower() for other in found.constraints):
        raise InvalidError(f'constraint "{rule.name}" for relation "{found.name}" already exists')
    return rule


def add_unique_index(session: SqlSession, found: SqlObject, name: str, columns: Sequence[str]) -> None:
    """CREATE UNIQUE INDEX: the rule of a UNIQUE constraint, which DROP INDEX drops."""
    if "connector" in found.options:
        raise InvalidError(
            f"table {found.name!r} is a copy of a table of another system: it takes the rows as they are",
            hint="leave out UNIQUE",
        )
    session.catalog.free(name)
    rule = _checked_rule(session, found, SqlConstraint(name, unique=tuple(columns)))
    add_rule(session, found, AddedRule(rule, as_index=True))


def _refuse_among(parts: Sequence[SqlFragment]) -> None:
    """Refuse a rule among other actions: it is in force before the rows are checked."""
    for part in parts:
        at = 3 if part.has(0, "ADD", "CONSTRAINT") else 1
        if part.word(0) == "ADD" and part.word(at) in ("CHECK", "UNIQUE") and part.word(at + 1) == "(":
            part.fail("a constraint is added by a statement of its own", 0, "write an ALTER TABLE for each")
        if part.word(0) == "ALTER" and part.words[-3:] == ("SET", "NOT", "NULL"):
            part.fail("SET NOT NULL is a statement of its own", 0, "write an ALTER TABLE for each")


def _named(both: Definition, found: SqlObject, schema: str | None) -> SqlConstraint:
    rule = both.constraints[0]
    if rule.name:
        alone = replace(both, constraints=(rule,))
        return with_names(alone, found.name, schema).constraints[0]
    known = {c.name.lower() for c in found.constraints}
    made = with_names(replace(both, constraints=(rule,)), found.name, schema).constraints[0]
    name, number = made.name, 1
    while name.lower() in known:
        name, number = f"{made.name}{number}", number + 1
    return replace(made, name=name)


def add_rule(session: SqlSession, found: SqlObject, added: AddedRule) -> None:
    """Put a rule in force, then check the rows that are there."""
    if added.required is not None and _required(found, added.required):
        return
    if found.step not in session.host.program()[0].nodes:  # it is not committed yet, and has no rows
        _put_in_force(session, found, added)
        return
    session.commit()
    before = found
    _put_in_force(session, found, added)
    session.commit()
    broken = _broken(session, found, added)
    if session.transaction is not None:
        session.transaction.forget_reads()
    if broken is None:
        return
    session.edit(lambda plan: _restored(plan, before, added))
    session.commit()
    raise broken


def _put_in_force(session: SqlSession, found: SqlObject, added: AddedRule) -> None:
    if added.constraint is not None and added.constraint.unique:
        _add_unique(session, found, added.constraint, added.as_index)
    else:
        made = _with_rule(found, added)
        session.edit(lambda plan: plan.with_object(made))


def _with_rule(found: SqlObject, added: AddedRule) -> SqlObject:
    if added.constraint is not None:
        return replace(found, constraints=(*found.constraints, added.constraint))
    columns = tuple(replace(c, required=c.required or c.name == added.required) for c in found.columns)
    return replace(found, columns=columns)


def _restored(plan: Plan, before: SqlObject, added: AddedRule) -> Plan:
    plan = plan.with_object(before)
    if added.constraint is not None and added.constraint.unique:
        plan = without(plan, [added.constraint.name])
    return plan


def _add_unique(session: SqlSession, found: SqlObject, rule: SqlConstraint, as_index: bool) -> None:
    check_name("an index" if as_index else "a constraint", rule.name)
    session.catalog.free(rule.name)
    held = {c.name: c.stored_name for c in found.columns}

    def edit(builder: Builder) -> None:
        step = builder.plan.views[found.name].step
        view = Stream(builder, step).view(rule.name, key=[held[n] for n in rule.unique])
        options = {UNIQUE_INDEX: True} if as_index else {}
        index = SqlObject(
            "index",
            rule.name,
            found.columns,
            rule.unique,
            step=view.step,
            uses=(found.name,),
            options=options,
        )
        made = replace(found, constraints=(*found.constraints, rule))
        builder.plan = builder.plan.with_object(made).with_object(index)

    session.define(edit)


def _broken(session: SqlSession, found: SqlObject, added: AddedRule) -> InvalidError | None:
    """Why the rows of the table do not keep a rule; None if they do."""
    table = quoted(found.name)
    if added.required is not None:
        if not _any(session, f"select 1 from {table} where {quoted(added.required)} is null limit 1"):
            return None
        return InvalidError(f'column "{added.required}" of relation "{found.name}" contains null values')
    rule = added.constraint
    assert rule is not None
    if rule.check is not None:
        if not _any(session, f"select 1 from {table} where not ({rule.check}) limit 1"):
            return None
        return InvalidError(
            f'check constraint "{rule.name}" of relation "{found.name}" is violated by some row'
        )
    listed = ", ".join(map(quoted, rule.unique))
    known = " and ".join(f"{quoted(n)} is not null" for n in rule.unique)
    sql = f"select {listed} from {table} where {known} group by {listed} having count(*) > 1 limit 1"
    if not (twice := _any(session, sql)):
        return None
    values = ", ".join(map(str, twice[0]))
    return InvalidError(
        f'could not create unique index "{rule.name}"',
        detail=f"key ({', '.join(rule.unique)})=({values}) is duplicated",
    )


def _any(session: SqlSession, sql: str) -> Sequence[tuple[object, ...]]:
    (ask,) = statements(sql, "duckdb")
    return session.run_one(ask).fetchall()


def _required(found: SqlObject, name: str) -> bool:
    return any(c.name == name and c.required for c in found.columns)


def _column(found: SqlObject, name: str) -> str:
    known = {c.name.lower(): c.name for c in found.columns}
    if name.lower() not in known:
        raise InvalidError(
            f'column "{name}" of relation "{found.name}" does not exist',
            hint=closest_name(name, list(known.values())),
        )
    return known[name.lower()]
