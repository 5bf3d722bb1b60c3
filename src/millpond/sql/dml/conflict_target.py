"""What ON CONFLICT names: the primary key, or the columns of a UNIQUE constraint.

Law: DuckDB gets a statement that names columns; the name of a constraint stands for its own.
"""

from __future__ import annotations

from sqlglot import TokenType

from millpond.plan.objects import SqlObject
from millpond.sql.binding.types import quoted
from millpond.sql.text.parse import SqlFragment

Columns = tuple[str, ...]


def with_named_columns(fragment: SqlFragment, found: SqlObject) -> SqlFragment:
    """The same INSERT with the columns of the constraint that ON CONFLICT ON CONSTRAINT names."""
    at = fragment.find("ON", "CONFLICT", "ON", "CONSTRAINT")
    if at is None:
        return fragment
    name = fragment.tokens[at + 4].text.rpartition(".")[2]
    known = {one.rpartition(".")[2]: columns for one, columns in _rules(found).items()}
    if name.lower() not in known:
        fragment.fail(f'constraint "{name}" for table "{found.name}" does not exist', at + 4)
    start, end = fragment.tokens[at + 2].start, fragment.tokens[at + 4].end + 1
    return fragment.rewritten([(start, end, f"({', '.join(map(quoted, known[name.lower()]))})")])


def conflict_columns(fragment: SqlFragment, found: SqlObject) -> Columns:
    """The columns in which the rows of an INSERT … ON CONFLICT meet those of the table, if there are any."""
    at, rules = fragment.find("ON", "CONFLICT"), _rules(found)
    assert at is not None
    if fragment.word(at + 2) != "(":
        return found.key if found.key or len(rules) != 1 else next(iter(rules.values()))
    given, _ = fragment.bracket(at + 2)
    asked = {t.text.lower() for t in given.tokens if t.token_type is not TokenType.COMMA}
    for columns in rules.values():
        if {name.lower() for name in columns} == asked:
            return columns
    if rules:
        fragment.fail(
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
            at + 2,
            "name the columns of the primary key, or of a UNIQUE constraint",
        )
    return ()


def _rules(found: SqlObject) -> dict[str, Columns]:
    """The columns of the primary key, then of the UNIQUE constraints, by name."""
    rules = {f"{found.name}_pkey".lower(): found.key} if found.key else {}
    return rules | {rule.name.lower(): rule.unique for rule in found.constraints if rule.unique}
