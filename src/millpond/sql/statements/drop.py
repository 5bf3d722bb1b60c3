"""DROP: refused with a list of dependent objects, unless CASCADE drops these too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.plan.nodes import Plan
from millpond.plan.objects import SEQUENCE_OF, UNIQUE_INDEX, SqlObject, dependants, is_owned
from millpond.sql.binding.catalog import all_objects
from millpond.sql.result import Result
from millpond.sql.statements.objects import all_objects_with_uses, refuse_dependants, without
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run_for(kind: str) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        exists = words.if_exists()
        names = [_name(words, kind)]
        while words.take(","):
            names.append(_name(words, kind))
        cascade = words.take("CASCADE")
        _ = cascade or words.take("RESTRICT")
        words.end()
        catalog = session.catalog
        known = [n for n in names if catalog.find(n) is not None]
        found = [catalog.get(n, kind) for n in (known if exists else names)]
        status = f"DROP_{kind.upper().replace(' ', '_')}"
        if not found:
            return Result.said(f"{status}: not there")
        leaving = [f.name for f in found]
        objects = all_objects_with_uses(session.plan)
        for one in found:
            _refuse_owned(one, objects, leaving)
        more = dependants(objects, leaving)
        if not cascade and more:
            indexes = [n for n in more if is_owned(objects[n])]
            if len(indexes) < len(more):
                for one in found:
                    refuse_dependants(without(session.plan, indexes), one, "dropped")
        session.edit(lambda plan: without(_without_rules(plan, found), [*leaving, *more]))
        return Result.said(status)

    return called


def _refuse_owned(found: SqlObject, objects: Mapping[str, SqlObject], leaving: Sequence[str]) -> None:
    """Refuse to drop what a table needs for its constraints and identity columns."""
    if UNIQUE_INDEX in found.options:
        return
    owner = next((objects[n] for n in found.uses if n in objects and n not in leaving), None)
    if owner is None:
        return
    rule = next((c for c in owner.constraints if c.name == found.name and found.kind == "index"), None)
    if rule is not None or SEQUENCE_OF in found.options:
        what = f"constraint {rule.name}" if rule is not None else f"column {found.options[SEQUENCE_OF]}"
        raise InvalidError(
            f"cannot drop {found.kind} {found.name} because {what} on table {owner.name} requires it",
            hint=f"DROP TABLE {owner.name} drops it, too",
        )


def _without_rules(plan: Plan, leaving: Sequence[SqlObject]) -> Plan:
    """The rules of the unique indexes that leave; their tables stay."""
    for index in leaving:
        if UNIQUE_INDEX in index.options:
            table = all_objects(plan)[index.uses[0]]
            kept = tuple(rule for rule in table.constraints if rule.name != index.name)
            plan = plan.with_object(replace(table, constraints=kept))
    return plan


def _name(words: Words, kind: str) -> str:
    name = words.name(f"name of the {kind}")
    if kind == "function" and words.fragment.word(words.at) == "(":  # names are unique
        _, words.at = words.fragment.bracket(words.at)
    return name
