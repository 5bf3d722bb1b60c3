"""CREATE, ALTER and DROP SCHEMA: a schema is a name that others can begin with.

An object in a schema is stored as `schema.name`, so renaming a schema renames its objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.plan.nodes import Plan
from millpond.plan.objects import SCHEMA_PREFIX, SEQUENCE_OF, dependants, schema_object
from millpond.sql.result import Result
from millpond.sql.statements.alter import rename_objects
from millpond.sql.statements.objects import all_objects_with_uses, without
from millpond.sql.text.parse import Words
from millpond.sql.text.schema_names import PUBLIC, check_schema_name, schema_of, without_schema

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def create(session: SqlSession, words: Words) -> Result:
    """CREATE SCHEMA [IF NOT EXISTS] name [AUTHORIZATION user]; every user with the privilege may use it."""
    exists = words.if_not_exists()
    name = words.name("name of the schema")
    if words.take("AUTHORIZATION"):
        words.name("name of the user")
    if not words.over:
        words.fail("a schema is created without objects", "create them behind it: CREATE TABLE schema.name …")
    known = name.lower() == PUBLIC or name.lower() in session.catalog.schemas
    if known and exists:
        return Result.said(f"CREATE_SCHEMA {name}: there already")
    if known:
        raise InvalidError(f'schema "{name}" already exists')
    check_schema_name(name)
    made = schema_object(name, words.fragment.sql)
    session.edit(lambda plan: plan.with_object(made))
    return Result.said("CREATE_SCHEMA")


def drop(session: SqlSession, words: Words) -> Result:
    """DROP SCHEMA [IF EXISTS] name, … [CASCADE | RESTRICT]."""
    exists = words.if_exists()
    names = [words.name("name of the schema")]
    while words.take(","):
        names.append(words.name("name of the schema"))
    cascade = words.take("CASCADE")
    _ = cascade or words.take("RESTRICT")
    words.end()
    schemas = session.catalog.schemas
    gone = [schemas[name.lower()] for name in names if name.lower() in schemas]
    for name in names:
        if name.lower() == PUBLIC:
            raise InvalidError("cannot drop schema public because it is where names without a schema are")
        if name.lower() not in schemas and not exists:
            raise InvalidError(f'schema "{name}" does not exist')
    if not gone:
        return Result.said("DROP_SCHEMA: not there")
    objects = all_objects_with_uses(session.plan)
    inside = [name for name in objects if schema_of(name, {g.lower(): g for g in gone}) is not None]
    if inside and not cascade:
        raise InvalidError(
            f"cannot drop schema {gone[0]} because other objects depend on it",
            detail=", ".join(f"{objects[name].kind} {name}" for name in inside),
            hint="drop them first, or say CASCADE",
        )
    leaving = [*inside, *dependants(objects, inside)]

    def edit(plan: Plan) -> Plan:
        plan = without(plan, leaving) if leaving else plan
        kept = {n: o for n, o in plan.objects.items() if n not in {SCHEMA_PREFIX + g for g in gone}}
        return replace(plan, objects=kept)

    session.edit(edit)
    return Result.said("DROP_SCHEMA")


def alter(session: SqlSession, words: Words) -> Result:
    """ALTER SCHEMA name RENAME TO other; OWNER TO changes nothing, a pond has no owners."""
    name = words.name("name of the schema")
    schemas = session.catalog.schemas
    if name.lower() not in schemas:
        raise InvalidError(f'schema "{name}" does not exist')
    if words.take("OWNER", "TO"):
        words.name("name of the user")
        words.end()
        return Result.said("ALTER_SCHEMA")
    words.need("RENAME", "TO")
    to = words.name("new name")
    words.end()
    if to.lower() == PUBLIC or (to.lower() in schemas and to.lower() != name.lower()):
        raise InvalidError(f'schema "{to}" already exists')
    check_schema_name(to)
    old = schemas[name.lower()]
    known = session.catalog.objects.values()
    objects = [o for o in known if o.kind != "late rows" and SEQUENCE_OF not in o.options]
    inside = [o for o in objects if schema_of(o.name, {old.lower(): old}) is not None]
    names = {n for o in inside for n in (o.name, *(rule.name for rule in o.constraints))}
    rename_objects(session, {n: f"{to}.{without_schema(n, schemas)}" for n in sorted(names)})

    def edit(plan: Plan) -> Plan:
        kept = {n: o for n, o in plan.objects.items() if n != SCHEMA_PREFIX + old}
        return replace(plan, objects={**kept, SCHEMA_PREFIX + to: schema_object(to, f"CREATE SCHEMA {to}")})

    session.edit(edit)
    return Result.said("ALTER_SCHEMA")
